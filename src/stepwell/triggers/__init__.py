"""Every type of trigger, one file each."""

from __future__ import annotations

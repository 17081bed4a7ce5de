"""Every use case, one file for each noun."""

from __future__ import annotations

"""What people write workflows with."""

from __future__ import annotations

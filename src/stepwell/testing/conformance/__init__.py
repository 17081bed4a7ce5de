"""What every store must do: checks that a store's author runs against an empty store.

Each check takes a store that is open and empty, and raises AssertionError. Run them all:

    for check in CHECKS:
        await check(fresh_store())
"""

from __future__ import annotations

from stepwell.testing.conformance import (
    access,
    handing,
    limits,
    listing,
    recovery,
    running,
    triggers,
    waiting,
    watching,
)
from stepwell.testing.conformance.check import CHECKS, Check

__all__ = [
    "CHECKS",
    "Check",
    "access",
    "handing",
    "limits",
    "listing",
    "recovery",
    "running",
    "triggers",
    "waiting",
    "watching",
]

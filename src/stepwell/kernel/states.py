"""The states of runs and steps, and which changes between them are legal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

RunStatus = Literal[
    "pending", "running", "waiting", "completed", "failed", "cancelled", "timed_out"
]

# From each state, what a run may become; nothing leaves a state in which it has ended.
TRANSITIONS: dict[RunStatus, tuple[RunStatus, ...]] = {
    "pending": ("running", "cancelled", "timed_out"),
    "running": ("running", "waiting", "completed", "failed", "cancelled", "timed_out"),
    "waiting": ("running", "cancelled", "timed_out"),
    "completed": (),
    "failed": (),
    "cancelled": (),
    "timed_out": (),
}
ENDED: frozenset[str] = frozenset(
    status for status, following in TRANSITIONS.items() if not following
)

# The same for the entry of a step, sleep, wait or child. Skipped is what the program gave up,
# before its result reached it.
STEP_TRANSITIONS: dict[str, tuple[str, ...]] = {
    "running": ("running", "retrying", "completed", "failed", "skipped"),
    "retrying": ("running", "retrying", "completed", "failed", "skipped"),
    "completed": ("skipped",),
    "failed": ("skipped",),
    "timed_out": ("skipped",),
    "skipped": (),
}
OPEN = frozenset(status for status, following in STEP_TRANSITIONS.items() if "running" in following)
SETTLED = frozenset(STEP_TRANSITIONS) - OPEN
# What a replay hands to the program.
REPLAYED = SETTLED - {"skipped"}
# Kinds of entries that are written along with others, and that nobody waits for.
NOTED = frozenset({"now", "node"})


def quoted(statuses: Iterable[str]) -> str:
    """Statuses as a list in SQL."""
    return ", ".join(f"'{status}'" for status in sorted(statuses))

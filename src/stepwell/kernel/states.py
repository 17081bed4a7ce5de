"""The states of runs and steps, and which changes between them are legal."""

from __future__ import annotations

# From each state, what a run may become; nothing leaves a state in which it has ended.
TRANSITIONS: dict[str, tuple[str, ...]] = {
    "pending": ("running", "cancelled", "timed_out"),
    "running": ("running", "waiting", "completed", "failed", "cancelled", "timed_out"),
    "waiting": ("running", "cancelled", "timed_out"),
    "completed": (),
    "failed": (),
    "cancelled": (),
    "timed_out": (),
}
ENDED = frozenset(status for status, following in TRANSITIONS.items() if not following)

# A step is running, retrying or waiting until it has one of these; then it stays as it is.
SETTLED = frozenset({"completed", "failed", "timed_out", "skipped"})

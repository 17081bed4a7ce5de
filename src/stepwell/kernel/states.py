"""The states of runs and steps, and which changes between them are legal."""

from __future__ import annotations

from typing import Literal

RunStatus = Literal[
    "pending", "running", "waiting", "completed", "failed", "cancelled", "timed_out"
]
StepStatus = Literal[
    "running", "retrying", "waiting", "completed", "failed", "timed_out", "skipped"
]

ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled", "timed_out"})
SETTLED: frozenset[str] = frozenset({"completed", "failed", "timed_out", "skipped"})

# From each state, what a run may become; nothing leaves a state in which it has ended.
TRANSITIONS: dict[str, frozenset[str]] = {
    "pending": frozenset({"running", "failed", "cancelled", "timed_out"}),
    "running": frozenset({"waiting", "running", *ENDED}),
    "waiting": frozenset({"running", "failed", "cancelled", "timed_out"}),
    **{status: frozenset() for status in ENDED},
}

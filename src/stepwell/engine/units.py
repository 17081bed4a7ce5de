"""Units: changes that stand or fall together, on their way to a commit."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from stepwell.kernel.changes import (
    Change,
    ClaimRuns,
    EmitEvent,
    EndRun,
    ParkRun,
    RecordStep,
    SendSignal,
    StartRun,
    WatchWaits,
    run_ids_of,
)

# What may be in the units of one commit: PostgreSQL takes no message of a gigabyte.
MAX_BATCH_CHARACTERS = 32 * 1024 * 1024


class Unit:
    """Changes that stand or fall together, and who waits for them."""

    __slots__ = ("changes", "followers", "future", "opens", "pause", "unanswered")

    def __init__(self, changes: tuple[Change, ...], future: asyncio.Future[list[Any]]) -> None:
        self.changes = changes
        self.future = future
        # Whether it is the one by which a run begins to wait.
        self.opens = bool(changes) and type(changes[-1]) in (ParkRun, WatchWaits)
        # How long it was put off last, in seconds, because something else was in its way.
        self.pause = 0.0
        # Whether it was sent and no answer came: it may be durable as it was then.
        self.unanswered = False
        # Units of the same runs that were submitted since; they must not overtake this one.
        self.followers: list[Unit] = []

    def concerns(self, run_ids: Collection[str]) -> bool:
        return not self.run_ids.isdisjoint(run_ids)

    @property
    def run_ids(self) -> set[str]:
        """The runs it is about."""
        return {run_id for change in self.changes for run_id in run_ids_of(change)}

    def renumber(self) -> None:
        """It was refused: its entries belong to the commit that it will be part of, not to that.

        A claim may be changed again until then: its worker takes up and lets go of runs meanwhile.
        """
        for change in self.changes:
            if type(change) is RecordStep and not self.unanswered and not change.in_place:
                change.position = 0
            elif type(change) is ClaimRuns:
                change.dated = False

    def refuse(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # nobody need be waiting


def fitting(units: list[Unit], size: int) -> int:
    """How many of the first units may share a commit, for what is in them: at least one."""
    weight = 0
    for number, unit in enumerate(units[:size]):
        weight += sum(map(_weight, unit.changes))
        if weight > MAX_BATCH_CHARACTERS and number > 0:
            return number
    return size


# Where changes carry what users gave.
_BODIES: dict[type[Any], str] = {
    RecordStep: "output",
    StartRun: "input",
    EndRun: "output",
    SendSignal: "payload",
    EmitEvent: "payload",
}


def _weight(change: Change) -> int:
    """About how many characters the change comes to, beside the few that any has."""
    field = _BODIES.get(type(change))
    return 0 if field is None else len(getattr(change, field) or "")

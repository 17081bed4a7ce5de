"""Runs in hand that may take their worker down, and those that wait until they have not."""

from __future__ import annotations

from collections.abc import Iterable

from stepwell.kernel.changes import Change, ClaimedRun, EndRun, ParkRun, RecordStep
from stepwell.kernel.crashes import MOST_CALLED, SUSPECT
from stepwell.kernel.states import REPLAYED


class Suspects:
    """Calls up suspects that were set apart, as those before them turn out to be harmless."""

    def __init__(self) -> None:
        self._in_hand: set[str] = set()
        # How many are called up next. A worker that is taken down does not live to remember it.
        self._most = 1

    def took(self, runs: Iterable[ClaimedRun]) -> None:
        """The worker has claimed these."""
        self._in_hand.update(run.id for run in runs if run.attempt > SUSPECT and not run.nudge)

    def got_on(self, batch: Iterable[Change]) -> int:
        """This is durable; how many others may be taken up because of it."""
        before = len(self._in_hand)
        if before:
            for change in batch:
                if isinstance(change, EndRun | ParkRun) or (
                    isinstance(change, RecordStep) and change.status in REPLAYED
                ):
                    self._in_hand.discard(change.held.run_id)
        if len(self._in_hand) == before:
            return 0
        self._most = min(2 * self._most, MOST_CALLED)
        return self._most

"""The dispatcher: who has to hear of what was committed, here and in other processes."""

from __future__ import annotations

from stepwell.engine.ending import Endings
from stepwell.engine.feed import Feed
from stepwell.engine.housekeeping import Housekeeping
from stepwell.engine.observer import Observer
from stepwell.engine.worker import Worker
from stepwell.kernel.changes import (
    FENCED,
    Change,
    ClaimRuns,
    Committed,
    EndRun,
    RecordStep,
    StartRun,
)
from stepwell.store import Heard, Store


class Dispatcher:
    """Tells the workers of this process, those who wait for or watch runs, and other processes."""

    def __init__(self, store: Store, endings: Endings, feed: Feed, observer: Observer) -> None:
        self._store = store
        self._endings = endings
        self._feed = feed
        self._observer = observer
        self.workers: list[Worker] = []
        self.housekeeping: Housekeeping | None = None

    def fire_soon(self) -> None:
        """Some trigger may have to fire."""
        if self.housekeeping is not None:
            self.housekeeping.wake()

    def claim_soon(self) -> None:
        for worker in self.workers:
            worker.claim_soon()

    def heard(self, batch: list[Change], committed: Committed) -> None:
        """A commit of this process's own is durable."""
        for change, outcome in zip(batch, committed.outcomes, strict=True):
            if type(change) is EndRun and outcome != FENCED:
                self._endings.ended(change.held.run_id, change)
        for worker in self.workers:
            worker.claims.heard(batch)
        for run_id in committed.ended:
            self._endings.ended(run_id)
        self._feed.heard(batch, committed)
        for run_id, owner in committed.stopped:
            self._let_go(run_id, owner)
        # A claim in the batch has seen all that the batch made due.
        ask = next((change for change in batch if type(change) is ClaimRuns), None)
        if committed.due and (ask is None or len(self.workers) > 1):
            self.claim_soon()
        if ask is not None and _claimed_all(ask, batch, committed):
            committed.due = False  # nothing is left for others
        if committed.firing:
            self.fire_soon()
        self._store.announce(committed)
        self._observer.heard(batch, committed)

    def noticed(self, heard: Heard) -> None:
        """Another process did something."""
        if heard.stopped is not None:
            self._let_go(*heard.stopped)
        if heard.firing:
            self.fire_soon()
        self.claim_soon()

    def _let_go(self, run_id: str, owner: str | None) -> None:
        # A worker that claimed the run since then is not meant: it holds it rightly.
        for worker in self.workers:
            if worker.id == owner or owner is None:
                worker.let_go(run_id)


def _claimed_all(ask: ClaimRuns, batch: list[Change], committed: Committed) -> bool:
    """Whether whatever the batch made due has also been claimed in it."""
    claimed = committed.outcomes[batch.index(ask)]
    return (
        ask.limit > 0
        and not ask.sweep  # what a sweep sets free may be for others
        and not (claimed.more or claimed.lease_lost)
        and all(
            change.program in ask.programs
            if type(change) is StartRun
            else type(change) in (RecordStep, ClaimRuns)
            for change in batch
        )
    )

"""The dispatcher: who has to hear of what was committed, here and in other processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stepwell.engine.crew import Crew
from stepwell.engine.ending import Endings
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
    """Tells the crews of this process, those who wait for runs, and other processes."""

    def __init__(
        self, store: Store, endings: Endings, observer: Observer, *, shared: bool = False
    ) -> None:
        self._store = store
        # Whether workspaces share a limit: the end of a run in one may let another's begin.
        self._shared = shared
        self._endings = endings
        self._observer = observer
        # One for each workspace that is open.
        self.crews: list[Crew] = []

    @property
    def _workers(self) -> Iterator[Worker]:
        return (worker for crew in self.crews for worker in crew.workers)

    def heard(self, batch: list[Change], committed: Committed) -> None:
        """A commit of this process's own is durable."""
        for change, outcome in zip(batch, committed.outcomes, strict=True):
            if type(change) is EndRun and outcome != FENCED:
                self._endings.ended(change.held.run_id, change)
        for worker in self._workers:
            worker.claims.heard(batch)
        for run_id in committed.ended:
            self._endings.ended(run_id)
        for crew in self.crews:
            crew.feed.heard(batch, committed)
        for run_id, owner in committed.stopped:
            self._let_go(run_id, owner)
        # By workspace, the first of each.
        asks: dict[str, ClaimRuns] = {}
        for change in batch:
            if type(change) is ClaimRuns:
                asks.setdefault(change.workspace_id, change)
        if committed.due:
            self._claim_what_is_due(batch, asks)
        if asks and _claimed_all(asks, batch, committed):
            committed.due = False  # nothing is left for others
        if committed.firing:
            for crew in self._concerned(batch):
                crew.fire_soon()
        self._store.announce(committed)
        self._observer.heard(batch, committed)

    def noticed(self, heard: Heard) -> None:
        """Another process did something."""
        if heard.stopped is not None:
            self._let_go(*heard.stopped)
        for crew in self.crews:
            if heard.firing:
                crew.fire_soon()
            crew.claim_soon()

    def _claim_what_is_due(self, batch: list[Change], asks: Mapping[str, ClaimRuns]) -> None:
        """Let those claim who may have missed what the batch made due."""
        for crew in self._concerned(batch):
            # A claim in the batch has seen all of its workspace that the batch made due, except
            # what a claim behind it set free: by its sweep, or by leaving a slot they share.
            others = [ask for name, ask in asks.items() if name != crew.workspace_id]
            shared = self._shared and bool(others)
            missed = crew.workspace_id not in asks or shared or any(ask.sweep for ask in others)
            if missed or len(crew.workers) > 1:
                crew.claim_soon()

    def _concerned(self, batch: list[Change]) -> list[Crew]:
        """The crews of the workspaces that a batch is about: of all, if it swept."""
        if len(self.crews) <= 1 or self._shared:
            return self.crews
        owners = {worker.id: crew.workspace_id for crew in self.crews for worker in crew.workers}
        found: set[str | None] = set()
        for change in batch:
            if type(change) is ClaimRuns and change.sweep:
                return self.crews
            workspace_id = getattr(change, "workspace_id", None)
            found.add(workspace_id or owners.get(change.held.owner))  # type: ignore[union-attr]
        # None: of a worker that has another name by now.
        return [crew for crew in self.crews if None in found or crew.workspace_id in found]

    def _let_go(self, run_id: str, owner: str | None) -> None:
        # A worker that claimed the run since then is not meant: it holds it rightly.
        for worker in self._workers:
            if worker.id == owner or owner is None:
                worker.let_go(run_id)


def _claimed_all(asks: Mapping[str, ClaimRuns], batch: list[Change], committed: Committed) -> bool:
    """Whether whatever the batch made due has also been claimed in it."""
    for change, outcome in zip(batch, committed.outcomes, strict=True):
        if type(change) is StartRun:
            ask = asks.get(change.workspace_id)
            if ask is None or change.program not in ask.programs:
                return False
        elif type(change) is ClaimRuns:
            # What a sweep sets free may be for others.
            missed = change.limit <= 0 or change.sweep or outcome.more or outcome.lease_lost
            if missed and asks[change.workspace_id] is change:
                return False
        elif type(change) is not RecordStep:
            return False
    return True

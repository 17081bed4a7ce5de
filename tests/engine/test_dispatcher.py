"""Whom a commit concerns when several workspaces share it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from stepwell.engine.crew import Crew
from stepwell.engine.dispatcher import Dispatcher
from stepwell.engine.ending import Endings
from stepwell.engine.feed import Feed
from stepwell.engine.observer import Observer
from stepwell.engine.worker import Worker
from stepwell.kernel.changes import (
    Change,
    Claimed,
    ClaimRuns,
    Committed,
    EndRun,
    Held,
    StartRun,
)
from stepwell.store import Store
from stepwell.telemetry import SILENT


class Listening:
    """Stands for the store and other processes: keeps what they are told."""

    def __init__(self) -> None:
        self.announced: list[bool] = []

    def announce(self, committed: Committed) -> None:
        self.announced.append(committed.due)


class Waiting:
    """Stands for a worker: counts how often it is to claim."""

    def __init__(self, id: str) -> None:
        self.id, self.claims, self.asked = id, self, 0

    def heard(self, batch: list[Change]) -> None: ...

    def claim_soon(self) -> None:
        self.asked += 1


class Process:
    """A process in which some workspaces are open, with a worker each."""

    def __init__(self, *workspaces: str) -> None:
        self.others = Listening()
        store = cast("Store", self.others)
        self.dispatcher = Dispatcher(store, Endings(store), Observer(store, SILENT))
        self.workers = {name: Waiting(f"w-{name}") for name in workspaces}
        for name, worker in self.workers.items():
            crew = Crew(name, Feed(store, name))
            crew.workers.append(cast("Worker", worker))
            self.dispatcher.crews.append(crew)

    def commits(self, *changes: tuple[Change, Any]) -> tuple[list[str], bool]:
        """Who is to claim after a commit that made something due, and whether others hear."""
        batch, outcomes = [each[0] for each in changes], [each[1] for each in changes]
        self.dispatcher.heard(batch, Committed(outcomes, due=True))
        asked = [name for name, worker in self.workers.items() if worker.asked]
        return asked, self.others.announced[-1]


def start(workspace: str) -> tuple[Change, Any]:
    return StartRun("r", workspace, "d", 1, "p", "null", 0, 0, 60), ("r", True)


def claim(
    workspace: str, limit: int = 5, *, sweep: bool = False, more: bool = False
) -> tuple[Change, Any]:
    ask = ClaimRuns(workspace, f"w-{workspace}", ["p"], limit, sweep=sweep)
    return ask, Claimed([], None, more=more)


def end(workspace: str) -> tuple[Change, Any]:
    return EndRun(Held("r", f"w-{workspace}", 1), "completed", None, None, 1), None


@pytest.mark.parametrize(
    ("changes", "asked", "announced"),
    [
        # A claim that shares the commit has seen what its own workspace has.
        ([start("a"), claim("a")], [], False),
        ([start("a"), claim("a"), start("b"), claim("b")], [], False),
        # It has not seen what another has.
        ([start("a"), claim("b")], ["a"], True),
        ([start("a"), claim("a"), start("b")], ["b"], True),
        ([start("a"), claim("a", more=True), start("b"), claim("b")], [], True),
        ([start("a"), claim("a", limit=0), start("b"), claim("b")], [], True),
        # Who has nothing to do with it is left alone.
        ([start("a")], ["a"], True),
        ([end("b")], ["b"], True),
        # What a sweep sets free may be anybody's, and of who claimed before it too.
        ([claim("a", sweep=True)], ["b", "c"], True),
        ([claim("a"), claim("b", sweep=True)], ["a", "c"], True),
        # It is not known whose this was.
        ([end("gone")], ["a", "b", "c"], True),
    ],
)
async def test_those_claim_who_may_have_missed_what_became_due(
    changes: list[tuple[Change, Any]], asked: list[str], announced: bool
) -> None:
    assert Process("a", "b", "c").commits(*changes) == (asked, announced)


async def test_a_lone_workspace_claims_unless_it_just_did() -> None:
    assert Process("a").commits(end("gone")) == (["a"], True)
    assert Process("a").commits(start("a"), claim("a", sweep=True)) == ([], True)

"""What the workspaces of one host share: connections, who was let in, the room for runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from stepwell import workflow
from stepwell.app.hosting import Host, Shape
from stepwell.app.stepwell import Stepwell
from stepwell.errors import Unauthenticated
from stepwell.kernel.access import MemberRecord, UserRecord, WorkspaceRecord
from stepwell.kernel.changes import StartRun
from stepwell.operation import Caller
from stepwell.operations.tokens import Tokens
from stepwell.settings import Settings
from stepwell.stores.postgres.store import POOL_SIZE
from tests.conftest import new_database
from tests.engine.support import Gate, eventually, until

pytestmark = pytest.mark.anyio


@workflow(name="double")
async def double(ctx: Any, input: Any) -> Any:
    return input * 2


class Visits:
    """A workflow whose runs stay until they are let go, and who of them has been there."""

    def __init__(self) -> None:
        self.inside: set[str] = set()
        self.order: list[str] = []
        self.most = 0
        self._go: dict[str, asyncio.Event] = {}
        self._all = False

        @workflow(name="visit")
        async def visit(ctx: Any, input: Any) -> Any:
            self._enter(input)
            if not self._all:
                await self._go.setdefault(input, asyncio.Event()).wait()
            self.inside.discard(input)
            return input

        self.workflow = visit

    def _enter(self, name: str) -> None:
        self.inside.add(name)
        self.order.append(name)
        self.most = max(self.most, len(self.inside))

    def let_go(self, name: str) -> None:
        self._go[name].set()

    def let_all_go(self) -> None:
        self._all = True
        for each in self._go.values():
            each.set()


async def add_workspaces(host: Host, *names: str) -> list[Stepwell]:
    access, now = host.first.store.access, host.first.store.clock.now()
    for name in names:
        await access.add_workspace(WorkspaceRecord(name, name.title(), now), None)
    return [await host.workspace(name) for name in names]


async def start_visits(place: Stepwell, names: Sequence[str]) -> list[str]:
    started = await place.start_many([{"definition": "visit", "input": name} for name in names])
    return [run.id for run in started]


async def claimed_by(place: Stepwell) -> None:
    """Return once whatever is due in a workspace and has room was begun."""
    for _ in range(3):  # a claim, what it is told of by then, and a step of that
        place._crew.claim_soon()
        await place._writer.drained()
        await asyncio.sleep(0)


async def test_twelve_workspaces_need_no_more_connections_than_one(postgres_server: str) -> None:
    url = await new_database(postgres_server)
    async with Host(url, Shape((double,)), Settings()) as host:
        others = await add_workspaces(host, *(f"team-{number}" for number in range(11)))
        runs = [await place.start("double", 2) for place in (host.first, *others)]
        assert [await run.result(timeout=60) for run in runs] == [4] * 12
        db = await asyncpg.connect(postgres_server)
        connected = await db.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = $1",
            url.partition("?")[0].rpartition("/")[2],
        )
        await db.close()
    assert connected <= POOL_SIZE + 2, "one that writes, one that listens"


async def test_a_token_that_another_workspace_revokes_is_refused_at_once(store_url: str) -> None:
    async with Host(store_url, Shape(worker=None), Settings()) as host:
        (place,) = await add_workspaces(host, "team")
        access, now = host.first.store.access, host.first.store.clock.now()
        user = UserRecord(host.ids.new(), "ann", None, now)
        await access.add_member(MemberRecord("team", user.id, "owner"), user)
        owner = Caller("ann", "own", "owner", user.id)
        tokens = place.noun("tokens")
        assert isinstance(tokens, Tokens)
        made = await tokens.create("ci", "run", caller=owner)
        admission = await host.doorkeeper.by_token(made.text)
        assert admission.workspace_id == "team"
        await tokens.revoke(made.id, owner)
        with pytest.raises(Unauthenticated):
            await host.doorkeeper.by_token(made.text)


async def test_the_workspaces_of_a_process_execute_so_many_runs_together(store_url: str) -> None:
    visits = Visits()
    shape = Shape((visits.workflow,), (), {"concurrency": 3, "grace": 0})
    async with Host(store_url, shape, Settings()) as host:
        (other,) = await add_workspaces(host, "second")
        first = await start_visits(host.first, [f"first-{n}" for n in range(6)])
        await eventually(lambda: len(visits.inside) == 3)
        second = await start_visits(other, [f"second-{n}" for n in range(6)])
        await claimed_by(other)
        assert len(visits.inside) == 3
        visits.let_all_go()
        for place, run_ids in ((host.first, first), (other, second)):
            for run_id in run_ids:
                await place.result(run_id, timeout=60)
    assert len(visits.order) == 12
    assert visits.most == 3


async def test_a_busy_workspace_leaves_its_turn_to_another(store_url: str) -> None:
    visits = Visits()
    shape = Shape((visits.workflow,), (), {"concurrency": 1, "grace": 0})
    async with Host(store_url, shape, Settings()) as host:
        (other,) = await add_workspaces(host, "second")
        busy = await start_visits(host.first, [f"busy-{n}" for n in range(8)])
        await eventually(lambda: visits.inside)
        (quiet,) = await start_visits(other, ["quiet"])
        await claimed_by(other)
        assert visits.inside == {"busy-0"}
        for number in range(1, 3):
            visits.let_go(visits.order[-1])
            await eventually(lambda number=number: len(visits.order) > number)
        assert "quiet" in visits.order
        visits.let_all_go()
        assert await other.result(quiet, timeout=60) == "quiet"
        assert [await host.first.result(run_id, timeout=60) for run_id in busy]
    assert visits.most == 1


async def test_starts_of_different_workspaces_share_a_commit(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[list[str]] = []
    async with Host(store_url, Shape((double,), (), None), Settings()) as host:
        (other,) = await add_workspaces(host, "second")
        gate, commit = Gate(host.first.store), host.first.store.commit

        async def noted(batch: Any) -> Any:
            starts = [each.workspace_id for each in batch if isinstance(each, StartRun)]
            batches.append(starts)
            return await commit(batch)

        monkeypatch.setattr(host.first.store, "commit", noted)
        gate.shut()
        starting = [asyncio.create_task(host.first.start("double", 1))]
        await eventually(lambda: gate.waiting)
        starting += [asyncio.create_task(each.start("double", 2)) for each in (host.first, other)]
        await eventually(lambda: len(host.first._writer._pending) == 2)
        gate.open()
        await asyncio.gather(*starting)
    assert batches == [["default"], ["default", "second"]]


async def test_a_start_without_room_for_it_is_announced_and_claimed_later(store_url: str) -> None:
    """The claim that shares a commit with it is of another workspace."""
    visits = Visits()
    shape = Shape((visits.workflow, double), (), {"concurrency": 1, "grace": 0})
    async with Host(store_url, shape, Settings()) as host:
        (other,) = await add_workspaces(host, "second")
        held = (await start_visits(host.first, ["held"]))[0]
        await eventually(lambda: visits.inside)
        started = await asyncio.gather(host.first.start("double", 1), other.start("double", 2))
        for run, place in zip(started, (host.first, other), strict=True):
            assert (await place.get_run(run.id)).status == "pending"
        visits.let_all_go()
        assert [await run.result(timeout=60) for run in started] == [2, 4]
        await until(host.first, held, "completed")

"""How a host opens workspaces: in surroundings of its own, once, and leaving nothing half open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import workflow
from stepwell.app import hosting
from stepwell.app.hosting import Host, Shape
from stepwell.app.stepwell import Stepwell
from stepwell.errors import StoreUnavailable, WorkspaceNotFound
from stepwell.kernel.access import WorkspaceRecord
from stepwell.kernel.clock import SECOND
from stepwell.settings import Settings
from stepwell.telemetry import request_trace
from tests.conftest import World
from tests.engine.support import eventually

pytestmark = pytest.mark.anyio

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@workflow(name="double")
async def double(ctx: Any, input: Any) -> Any:
    return input * 2


def starting(place: list[Stepwell]) -> Any:
    """A workflow with a step that starts another run, and returns its id."""

    @workflow(name="starts")
    async def starts(ctx: Any, input: Any) -> Any:
        async def begin() -> str:
            return (await place[0].start("double", 1)).id

        return await ctx.step("begin", begin)

    return starts


async def make(host: Host, name: str) -> None:
    now = host.first.store.clock.now()
    await host.first.store.access.add_workspace(WorkspaceRecord(name, name, now), None)


async def test_a_worker_that_cannot_start_leaves_no_workspace_half_open(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Host(store_url, Shape((double,)), Settings()) as host:
        await make(host, "second")

        async def refuse(worker: Any) -> None:
            raise StoreUnavailable("no more workers")

        with monkeypatch.context() as patched:
            patched.setattr(host.first.store, "enlist", refuse)
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match="no more workers"):
                    await host.workspace("second")
        assert len(host._premises.dispatcher.crews) == 1
        place = await host.workspace("second")
        assert await (await place.start("double", 4)).result(timeout=30) == 8
        assert len(host._premises.dispatcher.crews) == 2


async def test_runs_of_a_workspace_are_not_part_of_the_request_that_opened_it(
    store_url: str,
) -> None:
    place: list[Stepwell] = []
    async with Host(store_url, Shape((double, starting(place))), Settings()) as host:
        await make(host, "second")
        token = request_trace.set(GIVEN)
        place.append(await host.workspace("second"))
        request_trace.reset(token)
        outer = await place[0].start("starts")
        inner = await place[0].get_run(await outer.result(timeout=30))
        assert (await place[0].get_run(outer.id)).trigger is None
        assert inner.trigger is None


async def test_runs_are_not_part_of_the_request_that_started_their_worker(world: World) -> None:
    place: list[Stepwell] = []
    async with world([double, starting(place)]) as sw:
        place.append(sw)
        token = request_trace.set(GIVEN)
        async with sw.worker():
            request_trace.reset(token)
            outer = await sw.start("starts")
            assert (await sw.get_run(await outer.result())).trigger is None


async def test_who_asks_for_no_workspace_does_not_wait_until_others_are_open(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Host(store_url, Shape((double,), (), None), Settings()) as host:
        await make(host, "second")
        register, waiting, go = host.first.store.register, asyncio.Event(), asyncio.Event()

        async def slow(*given: Any) -> None:
            waiting.set()
            await go.wait()
            await register(*given)

        monkeypatch.setattr(host.first.store, "register", slow)
        opening = [asyncio.create_task(host.workspace("second")) for _ in range(2)]
        await waiting.wait()
        assert await host.guessed("nobodys") is None
        with pytest.raises(WorkspaceNotFound):
            await host.workspace("nobodys")
        go.set()
        one, other = await asyncio.gather(*opening)
        assert one is other


async def test_a_workspace_is_opened_though_whoever_asked_for_it_has_gone(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Host(store_url, Shape((double,)), Settings()) as host:
        await make(host, "second")
        register, waiting, go = host.first.store.register, asyncio.Event(), asyncio.Event()

        async def slow(*given: Any) -> None:
            waiting.set()
            await go.wait()
            await register(*given)

        monkeypatch.setattr(host.first.store, "register", slow)
        asking = asyncio.create_task(host.workspace("second"))
        await waiting.wait()
        asking.cancel()
        await asyncio.wait([asking])
        go.set()
        await eventually(lambda: "second" in host.workers)


async def test_ids_that_no_workspace_has_are_looked_up_once_and_not_all_remembered(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosting, "MOST_MISSING", 3)
    monkeypatch.setattr(hosting, "MISSING", 3600 * SECOND)
    async with Host(store_url, Shape(worker=None), Settings()) as host:
        access = host.first.store.access
        asked: list[str] = []
        look = access.workspace

        async def noted(workspace_id: str) -> Any:
            asked.append(workspace_id)
            return await look(workspace_id)

        monkeypatch.setattr(access, "workspace", noted)
        for name in ("team", "team", "no id at all", "\0", "", "x" * 5_000):
            assert await host.guessed(name) is None
        assert asked == ["team"]
        for number in range(5):
            assert await host.guessed(f"team-{number}") is None
        assert len(host._missing) == 3
        await make(host, "team-4")
        # Whoever was let into it is let in at once, whatever strangers have asked for before.
        place = await host.workspace("team-4")
        assert await host.guessed("team-4") is place

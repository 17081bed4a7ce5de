"""Many who watch: they share reads, are woken at once, and leave nothing behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import Any

import pytest

from stepwell import Stepwell, workflow
from stepwell.engine.feed import Feed
from stepwell.errors import NotOpen, RunNotFound, StoreUnavailable
from stepwell.kernel.clock import SECOND
from stepwell.kernel.progress import MOST_ENTRIES, Place, Progress
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.listening import Listener, heard, lasting, lines
from tests.engine.support import echo, eventually, flowing, until

RUNS, LISTENERS = 1000, 500


@workflow
async def brief(ctx: Any, input: Any) -> Any:
    await ctx.step("first", echo, 1)
    return await ctx.step("second", echo, 2)


@workflow
async def asks(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("answer")


def reads_of(sw: Stepwell, monkeypatch: pytest.MonkeyPatch) -> list[list[Place]]:
    """The places of every read from now on."""
    read = sw.store.progress
    found: list[list[Place]] = []

    async def counted(workspace_id: str, places: Any) -> list[Progress | None]:
        found.append(list(places))
        return await read(workspace_id, places)

    monkeypatch.setattr(sw.store, "progress", counted)
    return found


def assert_nobody_listens(sw: Stepwell) -> None:
    feed = sw._feed
    assert (feed.listeners, feed._bells, feed._poll) == (0, {}, None)
    assert (feed._looks._wanted, feed._looks._task) == ({}, None)


async def test_each_of_many_listeners_sees_its_run_end(store_url: str) -> None:
    async with Stepwell(store_url, [brief]) as sw:
        runs = await sw.start_many([{"definition": "brief"}] * RUNS)
        listeners = [Listener(sw, run.id) for run in runs[::2]]
        await eventually(lambda: sw._feed.listeners == LISTENERS)
        async with sw.worker(), asyncio.timeout(60):
            found = [await listener.all() for listener in listeners]
        expected = [
            "run.started", "step.started first", "step.completed first",
            "step.started second", "step.completed second", "run.finished",
        ]  # fmt: skip
        assert Counter(tuple(lasting(each)) for each in found) == {tuple(expected): LISTENERS}
        await eventually(lambda: sw._feed._looks._task is None)
        assert_nobody_listens(sw)


async def test_listeners_of_one_run_share_what_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world([asks]) as sw, sw.worker():
        run = await sw.start("asks")
        await until(sw, run.id, "waiting")
        reads = reads_of(sw, monkeypatch)
        listeners = [Listener(sw, run.id) for _ in range(100)]
        for listener in listeners:
            await listener.until(lambda found: "run.waiting" in found)
        assert [len(places) for places in reads] == [1]
        await sw.signal(run.id, "answer")
        assert len({tuple(lines(await listener.all())) for listener in listeners}) == 1
        assert all(len(places) == 1 for places in reads)
        assert len(reads) < 10


async def test_runs_of_another_process_are_looked_at_now_and_then_all_together(
    world: World, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world([asks]) as one, world([asks]) as two, one.worker():
        runs = [await one.start("asks") for _ in range(20)]
        for run in runs:
            await until(one, run.id, "waiting")
        listeners = [Listener(two, run.id) for run in runs]
        for listener in listeners:
            await listener.until(lambda found: "run.waiting" in found)
        for run in runs:
            await one.signal(run.id, "answer")
            await run.result(30)
        reads = reads_of(two, monkeypatch)
        clock.advance("0.25s")
        for listener in listeners:
            assert (await listener.all())[-1].type == "run.finished"
        assert [len(places) for places in reads] == [20]


async def test_nothing_is_read_while_nothing_happens(
    world: World, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world([asks, brief]) as sw, sw.worker():
        run = await sw.start("asks")
        await until(sw, run.id, "waiting")
        listener = Listener(sw, run.id)
        await listener.until(lambda found: "run.waiting" in found)
        await (await sw.start("brief")).result(30)
        reads = reads_of(sw, monkeypatch)
        for _ in range(20):
            await (await sw.start("brief")).result(30)
        assert reads == []
        await listener.leave()


async def test_a_listener_that_does_not_read_on_is_only_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow
    async def long(ctx: Any, input: Any) -> Any:
        for number in range(3 * MOST_ENTRIES):
            await ctx.step(f"s{number}", echo, number)

    async with world([long]) as sw, sw.worker():
        run = await sw.start("long")
        async with aclosing(sw.watch(run.id)) as events:
            first = await anext(events)
            reads = reads_of(sw, monkeypatch)
            await run.result(30)
            assert reads == []
            rest = [event async for event in events]
        assert (first.type, rest[-1].type, len(rest)) == (
            "run.started", "run.finished", 6 * MOST_ENTRIES + 1,
        )  # fmt: skip


async def test_whoever_leaves_is_forgotten(world: World, clock: FakeClock) -> None:
    async with world([asks]) as sw, sw.worker():
        run = await sw.start("asks")
        patient, cancelled = Listener(sw, run.id), Listener(sw, run.id)
        for listener in (patient, cancelled):
            await listener.until(lambda found: "run.waiting" in found)
        async with aclosing(sw.watch(run.id)) as events:
            await anext(events)
            assert sw._feed.listeners == 3
        await cancelled.leave()
        assert sw._feed.listeners == 1
        async with flowing(clock):
            await sw.signal(run.id, "answer")
            await patient.all()
        await eventually(lambda: sw._feed._looks._task is None)
        assert_nobody_listens(sw)


async def test_a_stepwell_that_closes_lets_its_listeners_know(world: World) -> None:
    async with world([asks]) as sw:
        run = await sw.start("asks")
        listener = Listener(sw, run.id)
        await eventually(lambda: sw._feed.listeners)
    with pytest.raises(StoreUnavailable):
        await listener.all()
    assert_nobody_listens(sw)
    with pytest.raises(NotOpen):
        sw.watch(run.id)


async def test_a_listener_whose_read_has_not_begun_is_let_know_too(world: World) -> None:
    async with world([asks]) as sw:
        run = await sw.start("asks")
        feed = Feed(sw.store, "default")
        listening = asyncio.ensure_future(anext(feed.watch(run.id, None)))
        await asyncio.sleep(0)  # it has asked now, and nobody has begun to read
        await feed.close()
        async with asyncio.timeout(10):
            with pytest.raises(StoreUnavailable):
                await listening


async def test_a_run_that_is_deleted_while_it_is_watched_is_not_found(
    world: World, clock: FakeClock
) -> None:
    async with world([asks]) as sw, sw.worker():
        run = await sw.start("asks", retention="1s")
        async with aclosing(sw.watch(run.id)) as events:
            while (await anext(events)).type != "run.waiting":
                pass
            await sw.cancel(run.id)
            await sw.store.prune(clock.now() + 60 * SECOND, 10, 1000)
            with pytest.raises(RunNotFound):
                async for _ in events:
                    pass
        assert sw._feed.listeners == 0


async def test_a_store_that_is_away_for_a_while_only_delays(
    world: World, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world([brief]) as sw, sw.worker():
        run = await sw.start("brief")
        await run.result(30)
        read, failures = sw.store.progress, []

        async def away(workspace_id: str, places: Any) -> list[Progress | None]:
            if len(failures) < 3:
                failures.append(places)
                raise StoreUnavailable("away")
            return await read(workspace_id, places)

        monkeypatch.setattr(sw.store, "progress", away)
        async with flowing(clock):
            assert (await heard(sw, run.id))[-1].type == "run.finished"
        assert len(failures) == 3

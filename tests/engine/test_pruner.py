"""Retention: what the pruner deletes, how much of it, and who does it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import workflow
from tests.conftest import World
from tests.engine.support import eventually, until


@workflow
async def quick(ctx: Any, input: Any) -> Any:
    return input


@workflow
async def listen(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("news", lookback=input)


async def run_some(stepwell: Any, count: int) -> None:
    """Runs that have ended and may be deleted a second later."""
    async with stepwell.worker(lease="1h"):
        runs = [await stepwell.start("quick", retention="1s") for _ in range(count)]
        await asyncio.gather(*(run.result() for run in runs))


@pytest.mark.parametrize(("batch", "rows"), [(3, 1000), (1000, 1)])
async def test_a_worker_prunes_by_itself_batch_after_batch(
    world: World, clock: Any, monkeypatch: pytest.MonkeyPatch, batch: int, rows: int
) -> None:
    monkeypatch.setattr("stepwell.engine.pruner.BATCH", batch)
    monkeypatch.setattr("stepwell.engine.pruner.ROWS", rows)
    async with world([quick]) as sw:
        await run_some(sw, 10)
        async with sw.worker(lease="1h"):
            kept = await sw.start("quick")
            await kept.result()
            clock.advance("299s")
            for _ in range(20):
                assert len((await sw.list_runs()).items) == 11
            clock.advance("2s")
            while len(left := (await sw.list_runs()).items) > 1:
                await asyncio.sleep(0.001)
            assert [run.id for run in left] == [kept.id]


@pytest.mark.parametrize(("batch", "rows"), [(3, 1000), (1000, 1)])
async def test_pruning_goes_on_until_nothing_is_left(
    world: World, clock: Any, monkeypatch: pytest.MonkeyPatch, batch: int, rows: int
) -> None:
    monkeypatch.setattr("stepwell.engine.pruner.BATCH", batch)
    monkeypatch.setattr("stepwell.engine.pruner.ROWS", rows)
    async with world([quick]) as sw:
        await run_some(sw, 10)
        clock.advance("2s")
        assert await sw.prune() == 10
        assert (await sw.list_runs()).items == []


async def test_one_worker_at_a_time_prunes(
    world: World, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.engine.pruner.BATCH", 1)
    asked: list[tuple[str, bool]] = []
    pruned: list[str] = []

    def spy(stepwell: Any, name: str) -> None:
        take_duty, prune = stepwell.store.take_duty, stepwell.store.prune

        async def taking(*args: Any) -> Any:
            got = await take_duty(*args)
            asked.append((name, got))
            return got

        async def pruning(*args: Any) -> Any:
            pruned.append(name)
            return await prune(*args)

        stepwell.store.take_duty, stepwell.store.prune = taking, pruning

    async with world([quick]) as one, world([quick]) as two:
        await run_some(one, 5)
        spy(one, "one")
        spy(two, "two")
        async with one.worker(lease="1h"), two.worker(lease="1h"):
            await asyncio.sleep(0)  # their duties begin
            clock.advance("301s")
            await eventually(lambda: {name for name, _ in asked} == {"one", "two"})
            while (await one.list_runs()).items:
                await asyncio.sleep(0.001)
        assert len({name for name, got in asked if got}) == 1
        assert len(set(pruned)) == 1


async def test_events_are_kept_for_a_week(world: World, clock: Any) -> None:
    async with world([listen]) as sw:
        await sw.emit("news", "old")
        clock.advance("4d")
        await sw.emit("news", "young")
        clock.advance("4d")
        await sw.prune()
        async with sw.worker():
            assert await (await sw.start("listen", "30d")).result() == "young"
            assert await (await sw.start("listen", "5d")).result() == "young"
        clock.advance("4d")
        await sw.prune()
        async with sw.worker():
            nothing = await sw.start("listen", "30d")
            await until(sw, nothing.id, "waiting")


async def test_runs_in_flight_are_never_pruned(world: World, clock: Any) -> None:
    async with world([quick, listen]) as sw:
        async with sw.worker():
            waiting = await sw.start("listen", retention=0)
            await until(sw, waiting.id, "waiting")
        pending = await sw.start("quick", "late", retention=0)
        clock.advance("1000d")
        assert await sw.prune() == 0
        async with sw.worker():
            assert await pending.result() == "late"
            await sw.signal(waiting.id, "news", "at last")
            assert await waiting.result() == "at last"
        clock.advance("1s")
        assert await sw.prune() == 2


async def test_documents_go_with_the_last_run_that_was_pinned_to_them(
    world: World, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.engine.pruner.DOCUMENTS", 2)

    def edited(seconds: int) -> dict[str, Any]:
        return {"name": "checks", "nodes": [delay(seconds)]}

    def delay(seconds: int) -> dict[str, Any]:
        return {"id": "wait", "type": "delay", "config": {"duration": seconds}}

    async with world() as sw:
        published = (await sw.definitions.publish(edited(0))).revision.hash
        runs = [await sw.start_document(edited(n), retention="1d") for n in range(1, 6)]
        hashes = [(await sw.get_run(run.id)).revision for run in runs]

        async def left() -> list[str]:
            found = [await sw.store.records.document("default", hash) for hash in hashes]
            return [hash for hash, each in zip(hashes, found, strict=True) if each is not None]

        clock.advance("2d")
        await sw.prune()
        assert await left() == hashes, "their runs have not ended"
        for run in runs[1:]:
            await sw.cancel(run.id)
        clock.advance("2d")
        assert await sw.prune() == 4
        assert await left() == hashes[:1]
        assert await sw.store.records.document("default", published) is not None
        async with sw.worker(lease="1h"):
            await until(sw, runs[0].id, "waiting", "completed")


async def test_a_worker_prunes_documents_by_itself(world: World, clock: Any) -> None:
    async with world() as sw:
        await sw.store.records.keep("default", "old", "document", clock.now())
        clock.advance("1d")
        async with sw.worker(lease="1h"):
            await asyncio.sleep(0)  # its duties begin
            clock.advance("301s")
            while await sw.store.records.document("default", "old") is not None:
                await asyncio.sleep(0.001)

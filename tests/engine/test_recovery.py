"""Workers that die, stall or lose the store: their runs go on, and nothing is recorded twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import RunFailed, workflow
from stepwell.errors import StoreUnavailable
from stepwell.testing.crash import vanish
from tests.conftest import World
from tests.engine.support import echo, eventually, flowing, until

LEASE = "15s"


async def test_another_worker_takes_over_within_the_lease(world: World, clock: Any) -> None:
    calls: list[str] = []
    reached = asyncio.Event()

    async def work(name: str, block: bool) -> str:
        calls.append(name)
        if block and calls.count(name) == 1:
            reached.set()
            await asyncio.Event().wait()
        return name

    @workflow
    async def steps(ctx: Any, input: Any) -> Any:
        return [await ctx.step(n, work, n, n == "b") for n in ("a", "b", "c")]

    async with world([steps]) as one, world([steps]) as two:
        async with one.worker(lease=LEASE) as victim:
            run = await one.start("steps")
            await reached.wait()
            vanish(victim)
            async with two.worker(lease=LEASE), flowing(clock):
                assert await two.result(run.id) == ["a", "b", "c"]
        assert calls == ["a", "b", "b", "c"]
        record = await two.get_run(run.id)
        assert record.attempt == 2


async def test_a_zombie_can_compute_but_not_record(world: World, clock: Any) -> None:
    release = asyncio.Event()
    entered = asyncio.Event()
    calls: list[int] = []

    async def work() -> int:
        calls.append(len(calls))
        if len(calls) == 1:
            entered.set()
            await release.wait()
            return 111
        return 222

    @workflow
    async def contested(ctx: Any, input: Any) -> Any:
        return await ctx.step("work", work)

    async with world([contested]) as one, world([contested]) as two:
        async with one.worker(lease=LEASE) as zombie:
            run = await one.start("contested")
            await entered.wait()
            for duty in zombie._duties:  # it hangs: no heartbeat, no checks
                duty.cancel()
            async with two.worker(lease=LEASE), flowing(clock):
                assert await two.result(run.id) == 222
                release.set()
                await eventually(lambda: not zombie._active)
            assert (await two.get_run(run.id)).output == 222
            assert [s.output for s in await two.steps(run.id)] == [222]
    assert len(calls) == 2


async def test_a_worker_that_lost_its_lease_stops_and_comes_back_as_another(
    world: World, clock: Any
) -> None:
    interrupted = asyncio.Event()
    started = asyncio.Event()
    calls: list[int] = []

    async def work() -> str:
        calls.append(1)
        started.set()
        if len(calls) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                interrupted.set()
        return "done"

    @workflow
    async def long(ctx: Any, input: Any) -> Any:
        return await ctx.step("work", work)

    async with world([long]) as sw, sw.worker(lease=LEASE) as worker:
        first = worker.id
        run = await sw.start("long")
        await started.wait()
        clock.advance("60s")  # a laptop that slept
        await interrupted.wait()
        assert await run.result() == "done"
        assert worker.id != first


async def test_a_step_that_kills_its_worker_five_times_fails_the_run(
    world: World, clock: Any
) -> None:
    entered = asyncio.Event()
    calls: list[int] = []

    async def deadly() -> None:
        calls.append(1)
        entered.set()
        await asyncio.Event().wait()

    @workflow
    async def loop(ctx: Any, input: Any) -> Any:
        await ctx.step("fine", echo, 1)
        await ctx.step("deadly", deadly)

    async with world([loop]) as sw:
        run = await sw.start("loop")
        for _ in range(5):
            entered.clear()
            async with sw.worker(lease=LEASE) as worker:
                await entered.wait()
                vanish(worker)
            clock.advance("20s")
        async with sw.worker(lease=LEASE):
            with pytest.raises(RunFailed) as failed:
                await run.result()
        assert failed.value.error.type == "crash_loop"
        assert failed.value.error.step == "deadly"
        assert [step.status for step in await sw.steps(run.id)] == ["completed", "failed"]
    assert len(calls) == 5


async def test_runs_beside_one_that_takes_its_worker_down_are_not_blamed(
    world: World, clock: Any
) -> None:
    struck, calm = asyncio.Event(), asyncio.Event()
    strikes: list[int] = []

    async def poison() -> None:
        strikes.append(1)
        struck.set()
        await asyncio.Event().wait()

    @workflow
    async def work(ctx: Any, input: Any) -> Any:
        if input == "poison":
            await ctx.step("poison", poison)
        await ctx.step("patient", calm.wait)
        return input

    async with world([work]) as sw:
        runs = {n: await sw.start("work", "poison" if n == 2 else n) for n in range(5)}
        for _ in range(5):
            struck.clear()
            async with sw.worker(lease="5m") as worker, flowing(clock, "0.1s"):
                await struck.wait()
                vanish(worker)
            clock.advance("6m")
        calm.set()
        async with sw.worker(lease="5m"), flowing(clock, "0.1s"):
            with pytest.raises(RunFailed) as failed:
                await runs.pop(2).result()
            assert failed.value.error.type == "crash_loop"
            assert {n: await run.result() for n, run in runs.items()} == {n: n for n in runs}
    assert len(strikes) == 5


async def test_progress_resets_the_crash_count(world: World, clock: Any) -> None:
    entered = asyncio.Event()
    crashed: set[str] = set()

    async def once_deadly(name: str) -> str:
        if name not in crashed:
            crashed.add(name)
            entered.set()
            await asyncio.Event().wait()
        return name

    @workflow
    async def bumpy(ctx: Any, input: Any) -> Any:
        return [await ctx.step(f"s{n}", once_deadly, f"s{n}") for n in range(8)]

    async with world([bumpy]) as sw:
        run = await sw.start("bumpy")
        for _ in range(8):
            entered.clear()
            async with sw.worker(lease=LEASE) as worker:
                await entered.wait()
                vanish(worker)
            clock.advance("20s")
        async with sw.worker(lease=LEASE):
            assert await run.result() == [f"s{n}" for n in range(8)]
        assert (await sw.get_run(run.id)).attempt == 9


async def test_a_worker_that_stops_gives_its_runs_back_at_once(world: World) -> None:
    entered = asyncio.Event()
    calls: list[int] = []

    async def work() -> str:
        calls.append(1)
        if len(calls) == 1:
            entered.set()
            await asyncio.Event().wait()
        return "done"

    @workflow
    async def long(ctx: Any, input: Any) -> Any:
        return await ctx.step("work", work)

    async with world([long]) as sw:
        async with sw.worker(grace=0):
            run = await sw.start("long")
            await entered.wait()
        async with sw.worker():
            assert await run.result() == "done"
        assert (await sw.get_run(run.id)).attempt == 1  # no crash, so no new attempt


async def test_a_stopping_worker_lets_a_step_in_progress_finish(world: World) -> None:
    entered, go = asyncio.Event(), asyncio.Event()
    calls: list[int] = []

    async def work() -> str:
        calls.append(1)
        entered.set()
        await go.wait()
        return "done"

    @workflow
    async def long(ctx: Any, input: Any) -> Any:
        return await ctx.step("work", work)

    async with world([long]) as sw:
        async with sw.worker(grace="1h"):
            run = await sw.start("long")
            await entered.wait()
            asyncio.get_running_loop().call_soon(go.set)
        assert (await sw.get_run(run.id)).output == "done"
    assert calls == [1]


async def test_slots_of_a_dead_worker_do_not_leak(world: World, clock: Any) -> None:
    entered = asyncio.Event()
    calls: list[int] = []

    async def work() -> int:
        calls.append(1)
        if len(calls) == 1:
            entered.set()
            await asyncio.Event().wait()
        return len(calls)

    @workflow(max_concurrent_runs=1)
    async def single(ctx: Any, input: Any) -> Any:
        return await ctx.step("work", work)

    async with world([single]) as sw:
        runs = [await sw.start("single") for _ in range(3)]
        async with sw.worker(lease=LEASE) as worker:
            await entered.wait()
            vanish(worker)
        clock.advance("20s")
        async with sw.worker(lease=LEASE):
            assert [await run.result() for run in runs] == [2, 3, 4]


async def test_the_store_may_go_away_for_a_while(world: World, clock: Any) -> None:
    @workflow
    async def steps(ctx: Any, input: Any) -> Any:
        return [await ctx.step(f"s{n}", echo, n) for n in range(3)]

    async with world([steps]) as sw:
        real, down = sw.store.commit, True

        async def commit(batch: Any) -> Any:
            if down:
                raise StoreUnavailable("gone for a moment")
            return await real(batch)

        sw.store.commit = commit
        async with sw.worker():
            starting = asyncio.create_task(sw.start("steps"))
            for _ in range(3):
                await asyncio.sleep(0.01)
                clock.advance("1s")
            down = False
            clock.advance("3s")
            run = await starting
            assert await run.result() == [0, 1, 2]


async def test_a_commit_whose_acknowledgement_was_lost_is_sent_again(
    world: World, clock: Any
) -> None:
    executed: list[int] = []

    def work(n: int) -> int:
        executed.append(n)
        return n

    @workflow
    async def steps(ctx: Any, input: Any) -> Any:
        for n in range(3):
            await ctx.step(f"s{n}", work, n)
        await ctx.emit("done", 1)
        child = await ctx.run_child("child", "leaf")
        return [await ctx.wait_for_event("go"), child]

    @workflow
    async def leaf(ctx: Any, input: Any) -> Any:
        return "leaf"

    async with world([steps, leaf]) as sw:
        real, lose = sw.store.commit, True

        async def commit(batch: Any) -> Any:
            nonlocal lose
            committed = await real(batch)
            lose = not lose
            if not lose:
                return committed
            raise StoreUnavailable("the answer was lost")

        sw.store.commit = commit
        async with sw.worker(), flowing(clock, "0.1s"):
            run = await sw.start("steps", idempotency_key="k")
            assert await sw.signal(run.id, "go", "now")
            assert await run.result() == ["now", "leaf"]
            assert executed == [0, 1, 2]
            assert len((await sw.list_runs()).items) == 2


async def test_one_bad_change_does_not_fail_its_neighbours(world: World) -> None:
    @workflow
    async def quick(ctx: Any, input: Any) -> Any:
        return input

    async with world([quick]) as sw, sw.worker():
        real = sw.store.commit

        async def commit(batch: Any) -> Any:
            if any(getattr(change, "input", None) == '"bad"' for change in batch):
                raise ValueError("cannot be written")
            return await real(batch)

        sw.store.commit = commit
        starts = [sw.start("quick", "bad" if n == 7 else n) for n in range(20)]
        runs = await asyncio.gather(*starts, return_exceptions=True)
        assert isinstance(runs[7], ValueError)
        assert [await run.result() for n, run in enumerate(runs) if n != 7] == [
            n for n in range(20) if n != 7
        ]


async def test_a_parked_run_holds_no_capacity(world: World) -> None:
    @workflow
    async def hold(ctx: Any, input: Any) -> Any:
        return await ctx.wait_for_event("go")

    async with world([hold]) as sw, sw.worker(concurrency=2):
        runs = [await sw.start("hold") for _ in range(20)]
        for run in runs:
            await until(sw, run.id, "waiting")
        for run in runs:
            await sw.signal(run.id, "go", 1)
        assert [await run.result() for run in runs] == [1] * 20

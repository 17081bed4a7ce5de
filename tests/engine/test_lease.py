"""Leases: dead neighbours, a store out of reach, and the last moments of a worker."""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import Any

from stepwell import workflow
from stepwell.engine.host import host_name, process_started
from stepwell.errors import StoreUnavailable
from stepwell.kernel.changes import ClaimRuns
from stepwell.store import WorkerRow
from tests.conftest import World
from tests.engine.support import eventually, flowing

PROGRAM = "code:quick@1"


@workflow
async def quick(ctx: Any, input: Any) -> Any:
    return input


async def claimed_by(stepwell: Any, pid: int, pid_started: str) -> Any:
    """A run that a worker with this process holds, on this host and for an hour."""
    store = stepwell.store
    run = await stepwell.start("quick", "done")
    row = WorkerRow(
        "w-neighbour", "default", host_name(), pid, pid_started, 1, [PROGRAM], store.clock.now(),
        3600,
    )  # fmt: skip
    await store.enlist(row)
    ask = ClaimRuns("default", row.id, [PROGRAM], 1, store.clock.now())
    (claimed,) = (await store.commit([ask])).outcomes[0].runs
    assert claimed.id == run.id
    return run


async def is_left_alone(stepwell: Any, run_id: str) -> bool:
    """Whether a worker that starts now leaves the run to whoever holds it."""
    async with stepwell.worker():
        for _ in range(20):
            run = await stepwell.get_run(run_id)
    return bool((run.status, run.attempt) == ("running", 1))


async def test_a_neighbour_that_died_is_not_waited_for(world: World, python: str) -> None:
    neighbour = subprocess.Popen([python, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        async with world([quick]) as sw:
            run = await claimed_by(sw, neighbour.pid, process_started(neighbour.pid))
            assert await is_left_alone(sw, run.id)
            neighbour.kill()
            neighbour.wait()
            async with sw.worker():  # the clock stands still: no lease runs out
                assert await run.result() == "done"
            assert (await sw.get_run(run.id)).attempt == 2
    finally:
        neighbour.kill()
        neighbour.communicate()


async def test_a_neighbour_nobody_has_buried_yet_is_dead_too(world: World, python: str) -> None:
    neighbour = subprocess.Popen([python, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        async with world([quick]) as sw:
            run = await claimed_by(sw, neighbour.pid, process_started(neighbour.pid))
            neighbour.kill()  # and stays a zombie until its parent asks for its end
            await eventually(lambda: not process_started(neighbour.pid))
            async with sw.worker():
                assert await run.result() == "done"
    finally:
        neighbour.kill()
        neighbour.communicate()


async def test_another_process_with_the_same_id_is_not_the_neighbour(world: World) -> None:
    async with world([quick]) as sw:
        run = await claimed_by(sw, os.getpid(), "1")
        async with sw.worker():
            assert await run.result() == "done"


async def test_a_living_neighbour_keeps_its_runs(world: World) -> None:
    async with world([quick]) as sw:
        run = await claimed_by(sw, os.getpid(), process_started(os.getpid()))
        assert await is_left_alone(sw, run.id)


async def test_a_worker_that_cannot_reach_the_store_drops_its_runs_and_comes_back(
    world: World, clock: Any
) -> None:
    entered, interrupted = asyncio.Event(), asyncio.Event()
    never = asyncio.Event()
    calls: list[int] = []
    down = False

    async def work() -> str:
        calls.append(1)
        entered.set()
        if len(calls) == 1:
            try:
                await never.wait()
            except asyncio.CancelledError:
                interrupted.set()
                raise
        return "done"

    @workflow
    async def long(ctx: Any, input: Any) -> Any:
        return await ctx.step("work", work)

    def unreachable(real: Any) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            if down:
                raise StoreUnavailable("out of reach")
            return await real(*args, **options)

        return call

    async with world([long]) as sw:
        for name in ("commit", "enlist", "heartbeat", "lost", "retire", "worker_processes"):
            setattr(sw.store, name, unreachable(getattr(sw.store, name)))
        async with sw.worker(lease="60s") as worker:
            first = worker.id
            run = await sw.start("long")
            await entered.wait()
            down, began_at = True, clock.now()
            async with flowing(clock, "0.2s"):
                await interrupted.wait()
                assert clock.now() - began_at > 40_000_000  # not at the first failure
                down = False
                assert await run.result() == "done"
            assert worker.id != first
    assert len(calls) == 2


async def test_a_stopping_worker_keeps_its_lease_while_it_waits_for_its_steps(
    world: World, clock: Any
) -> None:
    entered, stop, go = asyncio.Event(), asyncio.Event(), asyncio.Event()
    calls: list[int] = []

    async def work() -> str:
        calls.append(1)
        entered.set()
        await go.wait()
        return "done"

    @workflow
    async def long(ctx: Any, input: Any) -> Any:
        return await ctx.step("work", work)

    async with world([long]) as one, world([long]) as two:

        async def serve() -> None:
            async with one.worker(lease="60s", grace="1h"):
                await stop.wait()

        serving = asyncio.create_task(serve())
        run = await one.start("long")
        await entered.wait()
        async with two.worker(lease="60s"), flowing(clock, "0.05s"):
            stop.set()
            late = clock.now() + 90_000_000
            await eventually(lambda: clock.now() > late)
            assert [worker.alive for worker in await two.workers()] == [True, True]
            go.set()
            await serving
            assert await two.result(run.id) == "done"
    assert calls == [1]

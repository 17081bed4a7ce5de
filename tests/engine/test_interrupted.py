"""Interruptions: of answers, of programs and of whole processes, from within and from outside."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest

from stepwell import Retry, RunFailed, workflow
from stepwell.engine.unwinding import QUICK_TURNS
from stepwell.errors import StoreUnavailable
from stepwell.kernel.changes import ResumeRun
from stepwell.kernel.clock import SECOND
from tests.conftest import World
from tests.engine.support import double, echo, eventually, flowing, until

ONCE = Retry(attempts=1)
# No lease runs out here, however much faster than the store the clock goes.
LEASE = "1d"


async def test_news_of_a_wait_whose_acknowledgement_was_lost_comes_again(
    world: World, clock: Any
) -> None:
    @workflow
    async def stoppable(ctx: Any, input: Any) -> Any:
        working = asyncio.create_task(ctx.step("work", asyncio.Event().wait))
        reason = await ctx.wait_for_event("stop")
        working.cancel()
        return reason

    async with world([stoppable]) as sw, sw.worker(lease=LEASE):
        run = await sw.start("stoppable")
        while not [step for step in await sw.steps(run.id) if step.status == "waiting"]:
            await asyncio.sleep(0.001)
        real, lost = sw.store.commit, []

        async def commit(batch: Any) -> Any:
            done = await real(batch)
            told = [claimed for claimed in done.outcomes if hasattr(claimed, "runs")]
            if not lost and any(run.nudge for claimed in told for run in claimed.runs):
                lost.append(1)
                raise StoreUnavailable("the answer was lost")
            return done

        sw.store.commit = commit
        async with flowing(clock, "0.1s"), asyncio.timeout(30):
            await sw.signal(run.id, "stop", "enough")
            assert await run.result() == "enough"
        assert lost


@pytest.mark.parametrize("way", ["start", "ctx"])
async def test_another_event_loop_is_refused_and_harms_nobody(world: World, way: str) -> None:
    @workflow
    async def strays(ctx: Any, input: Any) -> Any:
        if way == "ctx":
            return await asyncio.to_thread(lambda: asyncio.run(ctx.sleep("nap", 0)))
        return await ctx.step("start", lambda: asyncio.run(sw.start("fine")), retry=ONCE)

    @workflow
    async def fine(ctx: Any, input: Any) -> Any:
        return await ctx.step("double", double, 2)

    async with world([strays, fine]) as sw, sw.worker(lease=LEASE):
        with pytest.raises(RunFailed) as failed:
            await (await sw.start("strays")).result()
        assert failed.value.error.type == "context_misuse"
        run = await sw.start("fine")
        assert await run.result() == 4
        assert [step.status for step in await sw.steps(run.id)] == ["completed"]


def stall(turns: int = 10) -> None:
    """Be busy for some turns of the loop, then keep it from turning."""
    if turns > 0:
        asyncio.get_running_loop().call_soon(stall, turns - 1)
    else:
        time.sleep(0.02)


async def test_a_result_the_program_has_seen_survives_a_replay_slower_than_its_timer(
    world: World, clock: Any
) -> None:
    executions = 0

    @workflow
    async def hasty(ctx: Any, input: Any) -> Any:
        nonlocal executions
        executions += 1

        async def first() -> Any:
            step = asyncio.create_task(ctx.step("first", echo, "value"))
            if executions > 1:  # a timer that runs out while the journal is read again
                asyncio.get_running_loop().call_later(0.01, step.cancel)
                stall()
            try:
                return await step
            except asyncio.CancelledError:
                return "given up"

        value, _ = await asyncio.gather(first(), ctx.step("other", double, 1))
        used = await ctx.step("use", echo, value)
        await ctx.wait_for_event("go")
        return [value, used]

    async with world([hasty]) as sw, sw.worker(lease=LEASE):
        run = await sw.start("hasty")
        await until(sw, run.id, "waiting")
        async with flowing(clock, "0.1s"):  # until the program has left memory
            await asyncio.sleep(0.05)
        await sw.signal(run.id, "go")
        async with flowing(clock, "0.1s"):
            assert await run.result() == ["value", "value"]
        assert executions == 2
        assert {step.status for step in await sw.steps(run.id)} == {"completed"}


@pytest.mark.parametrize("cleans_up", [False, True])
async def test_waits_of_a_program_whose_tasks_are_all_cancelled_are_not_given_up(
    world: World, clock: Any, cleans_up: bool
) -> None:
    @workflow
    async def both(ctx: Any, input: Any) -> Any:
        try:
            async with asyncio.TaskGroup() as group:
                waits = [group.create_task(ctx.wait_for_event(name)) for name in "ab"]
            return [wait.result() for wait in waits]
        finally:
            for _ in range(50 if cleans_up else 0):
                await asyncio.sleep(0)

    async with world([both]) as sw:
        async with sw.worker(lease=LEASE):
            run = await sw.start("both")
            await until(sw, run.id, "waiting")
            names = ("Worker._execute", "Awaiting.wait_for_event")
            programs = [
                task for task in asyncio.all_tasks() if task.get_coro().__qualname__ in names
            ]
            assert len(programs) == 3
            for task in programs:
                task.cancel()
            await asyncio.wait(programs)
        assert {step.status for step in await sw.steps(run.id)} == {"waiting"}
        async with sw.worker(lease=LEASE), flowing(clock, "0.1s"), asyncio.timeout(30):
            await sw.signal(run.id, "a", 1)
            await sw.signal(run.id, "b", 2)
            assert await run.result() == [1, 2]


async def test_a_program_that_is_busy_beside_a_wait_hears_of_a_cancellation_elsewhere(
    world: World, clock: Any
) -> None:
    told: list[str] = []

    @workflow
    async def busy(ctx: Any, input: Any) -> Any:
        waiting = asyncio.create_task(ctx.wait_for_event("never"))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled" if ctx.cancelled else "interrupted")
            raise
        finally:
            waiting.cancel()

    async with world([busy]) as sw, sw.worker(lease=LEASE), world([busy]) as other:
        run = await sw.start("busy")
        await until(sw, run.id, "waiting")
        assert await other.cancel(run.id)
        async with flowing(clock, "0.1s"), asyncio.timeout(30):
            await eventually(lambda: told)
    assert told == ["cancelled"]


async def test_a_busy_program_is_not_begun_again_for_want_of_room_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.engine.unwinding.UNWIND_SECONDS", 0)
    begun = 0
    go = asyncio.Event()

    @workflow
    async def busy(ctx: Any, input: Any) -> Any:
        nonlocal begun
        begun += 1
        waiting = asyncio.create_task(ctx.wait_for_event("never"))
        await go.wait()
        waiting.cancel()
        return "done"

    @workflow
    async def resting(ctx: Any, input: Any) -> Any:
        await ctx.wait_for_event("go")

    async with world([busy, resting]) as sw, sw.worker(concurrency=1, lease=LEASE):
        await until(sw, (await sw.start("resting")).id, "waiting")  # it has the one warm place
        run = await sw.start("busy")
        await eventually(lambda: begun == 2)
        for _ in range(5):
            await until(sw, (await sw.start("resting")).id, "waiting")
        go.set()
        assert await run.result() == "done"
        assert begun == 2


async def test_a_branch_that_nobody_sees_goes_on_beside_a_program_that_waits(
    world: World, clock: Any
) -> None:
    pauses: list[asyncio.Event] = []
    left: list[int] = []

    @workflow
    async def polling(ctx: Any, input: Any) -> Any:
        async def poll() -> None:
            pauses.append(asyncio.Event())
            await pauses[-1].wait()  # something that is not durable
            await ctx.step("poll", echo, 1)

        polls = asyncio.create_task(poll())
        try:
            answer = await ctx.wait_for_event("answer")
        finally:
            left.append(len(pauses))
        await polls
        return answer

    async with world([polling]) as sw, sw.worker(lease=LEASE):
        run = await sw.start("polling")
        await until(sw, run.id, "waiting")
        async with flowing(clock, "0.1s"), asyncio.timeout(60):
            await eventually(lambda: left)
            pauses[0].set()
            await eventually(lambda: len(pauses) == 2)
            pauses[1].set()
            while not [s for s in await sw.steps(run.id) if s.key == "poll"]:
                await asyncio.sleep(0.001)
            await sw.signal(run.id, "answer", 42)
            assert await run.result() == 42
    assert left == [1, 2]


async def test_a_step_given_up_while_its_run_is_being_resumed_stays_given_up(
    world: World, clock: Any
) -> None:
    timers: list[asyncio.Timeout] = []
    taken: list[str] = []

    async def hurried(operation: Any) -> Any:
        async with asyncio.timeout(None) as timer:
            timers.append(timer)
            return await operation

    @workflow
    async def hasty(ctx: Any, input: Any) -> Any:
        with contextlib.suppress(TimeoutError):
            await hurried(ctx.wait_for_event("never"))
        try:
            way = await hurried(ctx.step("primary", echo, "primary"))
        except TimeoutError:
            way = await ctx.step("fallback", echo, "fallback")
        taken.append(way)
        await ctx.sleep("pause", "20s")
        return way

    def run_out(timer: asyncio.Timeout) -> None:
        timer.reschedule(asyncio.get_running_loop().time())

    async with world([hasty]) as sw, sw.worker(lease=LEASE):
        run = await sw.start("hasty")
        await until(sw, run.id, "waiting")
        real, resuming, gate = sw.store.commit, asyncio.Event(), asyncio.Event()

        async def commit(batch: Any) -> Any:
            if any(isinstance(change, ResumeRun) for change in batch):
                resuming.set()
                await gate.wait()
            return await real(batch)

        sw.store.commit = commit
        run_out(timers[0])
        await resuming.wait()
        run_out(timers[1])
        await eventually(lambda: timers[1].expired())
        gate.set()
        await eventually(lambda: taken)
        async with flowing(clock), asyncio.timeout(30):  # until it is replayed
            await eventually(lambda: len(timers) == 3)
            run_out(timers[2])
            await eventually(lambda: len(timers) == 4)
            for _ in range(50):  # time for the step to be executed, if it is
                await sw.get_run(run.id)
            run_out(timers[3])
            assert await run.result() == "fallback"
        statuses = {step.key: step.status for step in await sw.steps(run.id)}
    assert set(taken) == {"fallback"}
    assert statuses["primary"] == "skipped"


@pytest.mark.parametrize("shape", ["gather", "wait", "group"])
async def test_a_run_that_waits_in_branches_comes_to_rest(
    world: World, clock: Any, shape: str
) -> None:
    executions = 0

    @workflow
    async def branching(ctx: Any, input: Any) -> Any:
        nonlocal executions
        executions += 1
        waits = [ctx.wait_for_event("a"), ctx.wait_for_event("b")]
        if shape == "gather":
            await asyncio.gather(*waits, return_exceptions=True)
        elif shape == "wait":
            tasks = [asyncio.create_task(wait) for wait in waits]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        else:
            try:
                async with asyncio.TaskGroup() as group:
                    for wait in waits:
                        group.create_task(wait)
            finally:
                await ctx.step("cleanup", echo, 1)
        return await ctx.step("after", echo, 2)

    async with world([branching]) as sw, sw.worker(lease=LEASE):
        run = await sw.start("branching")
        await until(sw, run.id, "waiting")
        for _ in range(200):
            clock.advance("1s")
            for _ in range(3):
                await sw.get_run(run.id)
        assert executions <= 2
        await sw.signal(run.id, "a")
        await sw.signal(run.id, "b")
        async with flowing(clock), asyncio.timeout(30):
            assert await run.result() == 2


async def test_however_many_limits_were_waited_for_they_are_all_gone_through_at_once(
    world: World, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for store in ("sqlite.sweep", "postgres.sweep"):
        monkeypatch.setattr(f"stepwell.stores.{store}.SWEEP_LIMIT", 2)

    @workflow
    async def keyed(ctx: Any, input: Any) -> Any:
        return await ctx.step("double", double, input)

    async with world([keyed]) as sw:
        runs = [await sw.start("keyed", n, concurrency_key=f"k{n}") for n in range(11)]
        began = clock.now()
        async with sw.worker(lease=LEASE), flowing(clock, "0.01s"), asyncio.timeout(30):
            assert [await run.result() for run in runs] == [2 * n for n in range(11)]
        assert clock.now() - began < 3 * SECOND


@pytest.mark.parametrize("turns", [0, QUICK_TURNS])
async def test_a_program_that_goes_on_while_it_leaves_memory_is_begun_again(
    world: World, clock: Any, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr("stepwell.engine.worker.BRANCHES_WARM_SECONDS", 0.0)
    passes: list[int] = []
    ended = asyncio.Event()

    @workflow
    async def half(ctx: Any, input: Any) -> Any:
        passes.append(1)
        task = asyncio.create_task(ctx.wait_for_event("never"))
        try:
            if len(passes) == 1:
                await asyncio.wait([task])  # it is sent away
                for _ in range(turns):
                    await asyncio.sleep(0)
            result = await ctx.step("after", echo, len(passes))
            task.cancel()
            return result
        finally:
            ended.set()

    async with world([half]) as sw, sw.worker(lease=LEASE):
        run = await sw.start("half")
        async with flowing(clock, "0.01s"):  # until it leaves memory
            await ended.wait()
        if turns:  # surely not its answer to being sent away
            assert await run.result() == 2
        async with flowing(clock):  # else it may have been, and is looked at later
            assert await run.result() == 2

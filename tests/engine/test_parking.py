"""Parking: what stays in memory, what leaves it, and that a program is not executed needlessly."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from typing import Any

import pytest

from stepwell import RunFailed, workflow
from stepwell.errors import ChangeRefused
from stepwell.kernel.changes import EmitEvent, OpenWait
from tests.conftest import World
from tests.engine.support import double, echo, eventually, flowing, until

READS = (
    "count_runs", "ended", "facts", "get_run", "list_runs", "lost", "steps",
    "unclaimed", "version", "worker_processes", "workers",
)  # fmt: skip


def reads_of(store: Any) -> Counter[str]:
    """A counter of what is read from this store from now on."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> Any:
        real = getattr(store, name)

        async def read(*args: Any) -> Any:
            counts[name] += 1
            return await real(*args)

        return read

    for name in READS:
        setattr(store, name, counted(name))
    return counts


async def turns(stepwell: Any, run_id: str) -> None:
    """Give everything that could happen by itself ample time, without time."""
    for _ in range(50):
        await stepwell.get_run(run_id)


async def test_a_short_wait_goes_on_in_memory(world: World) -> None:
    passes: list[int] = []

    @workflow
    async def short(ctx: Any, input: Any) -> Any:
        passes.append(1)
        return [await ctx.wait_for_event("go") for _ in range(3)]

    async with world([short]) as sw, sw.worker():
        run = await sw.start("short")
        for n in range(3):
            await until(sw, run.id, "waiting")
            await sw.signal(run.id, "go", n)
        assert await run.result() == [0, 1, 2]
    assert passes == [1]


async def test_a_longer_wait_leaves_memory_and_is_replayed(world: World, clock: Any) -> None:
    calls: list[str] = []

    @workflow
    async def longer(ctx: Any, input: Any) -> Any:
        calls.append("begin")
        try:
            await ctx.step("once", lambda: calls.append("step"))
            return await ctx.wait_for_event("go")
        finally:
            calls.append("leave")

    async with world([longer]) as sw, sw.worker():
        run = await sw.start("longer")
        await until(sw, run.id, "waiting")
        async with flowing(clock, "0.1s"):
            await eventually(lambda: "leave" in calls)
        await turns(sw, run.id)
        assert calls == ["begin", "step", "leave"]
        await sw.signal(run.id, "go", 1)
        assert await run.result() == 1
    assert calls == ["begin", "step", "leave", "begin", "leave"]


async def test_what_leaves_memory_does_not_wait_for_the_collector(world: World) -> None:
    contexts: list[Any] = []

    @workflow
    async def sleeper(ctx: Any, input: Any) -> Any:
        contexts.append(weakref.ref(ctx))
        await ctx.sleep("long", "1d")

    async with world([sleeper]) as sw, sw.worker():
        gc.disable()
        try:
            run = await sw.start("sleeper")
            await until(sw, run.id, "waiting")
            await turns(sw, run.id)
            assert [context() for context in contexts] == [None]
        finally:
            gc.enable()


async def test_a_sleep_that_is_known_to_be_long_leaves_memory_at_once(
    world: World, clock: Any
) -> None:
    calls: list[str] = []

    @workflow
    async def sleeper(ctx: Any, input: Any) -> Any:
        calls.append("begin")
        try:
            await ctx.sleep("nap", "1h")
        finally:
            calls.append("leave")

    async with world([sleeper]) as sw, sw.worker():
        run = await sw.start("sleeper")
        await eventually(lambda: "leave" in calls)
        clock.advance("1h")
        await run.result()
    assert calls == ["begin", "leave", "begin", "leave"]


async def test_a_branch_that_waits_beside_something_undurable_is_begun_again_in_time(
    world: World, clock: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.engine.unwinding.UNWIND_SECONDS", 0.01)
    passes: list[int] = []
    outside = asyncio.Event()

    @workflow
    async def careless(ctx: Any, input: Any) -> Any:
        passes.append(1)
        branch = asyncio.create_task(ctx.wait_for_event("go"))
        await outside.wait()
        return await branch

    async with world([careless]) as sw, sw.worker(lease="10m"):
        run = await sw.start("careless")
        await until(sw, run.id, "waiting")
        clock.advance("2s")  # more than a program that only waits is kept for
        await turns(sw, run.id)
        assert len(passes) == 1
        for again in range(2):
            clock.advance("31s")
            await eventually(lambda before=again + 1: len(passes) > before)
            await until(sw, run.id, "waiting")
            await turns(sw, run.id)
            assert len(passes) == again + 2
        warnings = [log for log in caplog.records if "outside a step" in log.message]
        assert len(warnings) == 2
        outside.set()
        await sw.signal(run.id, "go", "went")
        assert await run.result() == "went"
    assert len(passes) == 3


async def test_a_run_goes_on_while_its_former_program_still_unwinds(
    world: World, clock: Any
) -> None:
    passes: list[int] = []
    unwinding, release, unwound = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @workflow
    async def slow_to_leave(ctx: Any, input: Any) -> Any:
        passes.append(1)
        first = len(passes) == 1
        try:
            return await ctx.wait_for_event("go")
        finally:
            if first:
                unwinding.set()
                await release.wait()
                unwound.set()

    async with world([slow_to_leave]) as sw, sw.worker():
        run = await sw.start("slow_to_leave")
        await until(sw, run.id, "waiting")
        async with flowing(clock, "0.1s"):
            await unwinding.wait()
        await sw.signal(run.id, "go", "on time")
        assert await run.result() == "on time"
        assert not unwound.is_set()
        release.set()
        await unwound.wait()
        await turns(sw, run.id)
        assert (await sw.get_run(run.id)).output == "on time"
    assert len(passes) == 2


async def test_a_program_that_never_unwinds_is_interrupted(
    world: World, clock: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.engine.unwinding.UNWIND_SECONDS", 0.01)
    passes: list[int] = []
    interrupted, never = asyncio.Event(), asyncio.Event()

    @workflow
    async def stuck(ctx: Any, input: Any) -> Any:
        passes.append(1)
        try:
            return await ctx.wait_for_event("go")
        finally:
            if len(passes) == 1:
                try:
                    await never.wait()
                except asyncio.CancelledError:
                    interrupted.set()
                    raise

    async with world([stuck]) as sw, sw.worker():
        run = await sw.start("stuck")
        await until(sw, run.id, "waiting")
        async with flowing(clock, "0.1s"):
            await interrupted.wait()
        await turns(sw, run.id)
        assert len(passes) == 1  # it rested, so there is nothing to begin again
        await sw.signal(run.id, "go", 1)
        assert await run.result() == 1
    assert [log.message for log in caplog.records if "outside a step" in log.message] == []


async def test_a_step_in_a_finally_happens_at_the_end_and_not_at_every_park(
    world: World, clock: Any
) -> None:
    calls: list[str] = []

    @workflow
    async def tidy(ctx: Any, input: Any) -> Any:
        try:
            return await ctx.wait_for_event("go")
        finally:
            calls.append("leave")
            await ctx.step("clean-up", lambda: calls.append("clean up"))

    async with world([tidy]) as sw, sw.worker():
        run = await sw.start("tidy")
        await until(sw, run.id, "waiting")
        async with flowing(clock, "0.1s"):
            await eventually(lambda: calls)
        await sw.signal(run.id, "go", 1)
        assert await run.result() == 1
        assert [step.key for step in await sw.steps(run.id)] == ["go", "clean-up"]
    assert calls == ["leave", "leave", "clean up"]


async def test_a_plain_function_parks_and_wakes(world: World, clock: Any) -> None:
    calls: list[str] = []

    @workflow
    def plain(ctx: Any, input: Any) -> Any:
        calls.append("begin")
        try:
            return [ctx.step("double", double, 2), ctx.wait_for_event("go")]
        finally:
            calls.append("leave")

    async with world([plain]) as sw, sw.worker():
        run = await sw.start("plain")
        await until(sw, run.id, "waiting")
        async with flowing(clock, "0.1s"):
            await eventually(lambda: "leave" in calls)
        await sw.signal(run.id, "go", 1)
        assert await run.result() == [4, 1]
    assert calls == ["begin", "leave", "begin", "leave"]


async def test_plain_functions_that_wait_do_not_starve_others(world: World) -> None:
    @workflow
    def plain(ctx: Any, input: Any) -> Any:
        return ctx.wait_for_event("go") if input is None else ctx.step("echo", echo, input)

    async with world([plain]) as sw, sw.worker(concurrency=2):
        # The clock stands still: whoever is kept in memory now is kept for good.
        runs = [await sw.start("plain") for _ in range(9)]
        for run in runs:
            await until(sw, run.id, "waiting")
        assert await (await sw.start("plain", "quick")).result() == "quick"
        for run in reversed(runs):
            await sw.signal(run.id, "go", run.id)
        assert [await run.result() for run in runs] == [run.id for run in runs]


@pytest.mark.parametrize("kind", ["event", "sleep", "both", "beside", "plain"])
async def test_a_wait_that_the_store_refuses_fails_the_run(world: World, kind: str) -> None:
    @workflow
    async def waits(ctx: Any, input: Any) -> Any:
        await ctx.step("before", echo, 1)
        if kind == "sleep":
            await ctx.sleep("nap", "1h")
        elif kind == "both":
            await asyncio.gather(ctx.sleep("nap", "1h"), ctx.wait_for_event("go"))
        elif kind == "beside":
            await asyncio.gather(ctx.step("beside", echo, 2), ctx.wait_for_event("go"))
        else:
            await ctx.wait_for_event("go")

    @workflow
    def plain(ctx: Any, input: Any) -> Any:
        ctx.wait_for_event("go")

    async with world([waits, plain]) as sw, sw.worker():
        real = sw.store.commit

        async def commit(batch: Any) -> Any:
            if any(isinstance(change, OpenWait) for change in batch):
                raise ChangeRefused("no waits today")
            return await real(batch)

        sw.store.commit = commit
        run = await sw.start("plain" if kind == "plain" else "waits")
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert failed.value.error.type == "change_refused"
        assert failed.value.error.message == "no waits today"


async def test_a_run_that_is_parked_while_its_wait_is_refused_is_not_stranded(
    world: World,
) -> None:
    ready, busy, reached = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @workflow
    async def beside(ctx: Any, input: Any) -> Any:
        ready.set()
        await busy.wait()
        reached.set()
        await asyncio.gather(ctx.step("double", double, 2), ctx.wait_for_event("go"))

    async with world([beside]) as sw, sw.worker():
        real = sw.store.commit

        async def commit(batch: Any) -> Any:
            # The step's result and the wait are to share the batch that is refused: the step is
            # then recorded first, and the run is parked for a wait that it never gets.
            kinds = {type(change) for change in batch}
            if EmitEvent in kinds:
                busy.set()
                await reached.wait()
            for _ in range(100 if kinds & {EmitEvent, OpenWait} else 0):
                await asyncio.sleep(0)
            if OpenWait in kinds:
                raise ChangeRefused("no waits today")
            return await real(batch)

        sw.store.commit = commit
        run = await sw.start("beside")
        await ready.wait()
        await sw.emit("noise")
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert failed.value.error.type == "change_refused"


async def test_many_steps_are_executed_once_each_and_read_nothing(world: World) -> None:
    passes: list[int] = []
    executed: Counter[int] = Counter()

    async def work(n: int) -> int:
        executed[n] += 1
        return n

    @workflow
    async def many(ctx: Any, input: Any) -> Any:
        passes.append(1)
        return sum([await ctx.step("work", work, n) for n in range(5000)])

    async with world([many]) as sw, sw.worker():
        reads = reads_of(sw.store)
        run = await sw.start("many")
        assert await run.result() == sum(range(5000))
        assert reads.total() < 10, reads
    assert passes == [1]
    assert executed == Counter(range(5000))

"""How runs end: cancel, deadline, children, retention."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import Retry, RunCancelled, RunFailed, RunTimedOut, workflow
from stepwell.settings import Settings
from tests.conftest import World
from tests.engine.support import echo, eventually, until, until_code


@workflow
async def hold(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("go")


async def test_a_run_can_be_cancelled_in_every_state(world: World, clock: Any) -> None:
    @workflow(max_concurrent_runs=1)
    async def queued(ctx: Any, input: Any) -> Any:
        return await ctx.wait_for_event("go")

    @workflow
    async def failing(ctx: Any, input: Any) -> Any:
        def fail() -> None:
            raise ValueError

        await ctx.step("fail", fail, retry=Retry(base="1h", max="1h"))

    @workflow
    async def sleeping(ctx: Any, input: Any) -> Any:
        await ctx.sleep("nap", "1h")

    async with world([hold, queued, failing, sleeping]) as sw:
        fresh = await sw.start("hold")
        assert await sw.cancel(fresh.id)
        async with sw.worker():
            ahead, behind = await sw.start("queued"), await sw.start("queued")
            runs = [await sw.start(name) for name in ("hold", "failing", "sleeping")]
            runs.append(await sw.start("hold", delay="1h"))
            await until(sw, ahead.id, "waiting")
            await until_code(sw, behind.id, "slot")
            for run in runs[:3]:
                await until(sw, run.id, "waiting")
            for run in (*runs, behind, ahead):
                assert await sw.cancel(run.id)
                assert not await sw.cancel(run.id)
                with pytest.raises(RunCancelled):
                    await run.result()
                record = await sw.get_run(run.id)
                assert (record.status, record.output) == ("cancelled", None)
                assert record.completed_at is not None
                assert (await sw.explain(run.id)).code == "cancelled"
            clock.advance("2h")
            done = await sw.start("hold")
            await until(sw, done.id, "waiting")
            await sw.signal(done.id, "go", 1)
            assert await done.result() == 1
            assert not await sw.cancel(done.id)
            assert (await sw.get_run(done.id)).status == "completed"
        for run in (fresh, *runs):
            assert (await sw.get_run(run.id)).status == "cancelled"


async def test_cancelling_interrupts_user_code_and_its_late_result_is_ignored(
    world: World,
) -> None:
    log: list[str] = []
    started = asyncio.Event()

    async def work(ctx: Any) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log.append(f"cancelled={ctx.cancelled}")
        return "late"

    @workflow
    async def stubborn(ctx: Any, input: Any) -> Any:
        got = await ctx.step("work", work, ctx)
        log.append(got)
        await ctx.step("next", echo, 1)

    async with world([stubborn]) as sw, sw.worker():
        run = await sw.start("stubborn")
        await started.wait()
        assert (await sw.steps(run.id))[0].status == "running"
        await sw.cancel(run.id)
        await eventually(lambda: log)
        with pytest.raises(RunCancelled):
            await run.result()
        steps = await sw.steps(run.id)
        assert [(s.key, s.status) for s in steps] == [("work", "skipped")]
    assert log == ["cancelled=True"]


async def test_what_a_cancelled_run_waited_for_shows_as_skipped(world: World) -> None:
    @workflow
    async def both(ctx: Any, input: Any) -> Any:
        await asyncio.gather(ctx.sleep("nap", "1h"), ctx.wait_for_event("never"))

    async with world([both]) as sw, sw.worker():
        run = await sw.start("both")
        await until(sw, run.id, "waiting")
        await sw.cancel(run.id)
        assert [(s.key, s.kind, s.status) for s in await sw.steps(run.id)] == [
            ("nap", "sleep", "skipped"),
            ("never", "event", "skipped"),
        ]


async def test_a_run_cancelled_elsewhere_is_interrupted_soon(world: World, clock: Any) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @workflow
    async def long(ctx: Any, input: Any) -> Any:
        await ctx.step("work", work)

    async with world([long]) as sw, world([long]) as elsewhere, sw.worker():
        run = await sw.start("long")
        await started.wait()
        await elsewhere.cancel(run.id)
        clock.advance("1s")
        await stopped.wait()


async def test_a_thread_sees_that_its_run_was_cancelled(world: World) -> None:
    seen: list[bool] = []

    @workflow
    def plain(ctx: Any, input: Any) -> Any:
        def work() -> None:
            seen.append(False)
            while not ctx.cancelled:
                pass
            seen.append(True)

        ctx.step("work", work)
        seen.append(False)

    async with world([plain]) as sw, sw.worker():
        run = await sw.start("plain")
        await eventually(lambda: seen)
        await sw.cancel(run.id)
        await eventually(lambda: len(seen) == 2)
    assert seen == [False, True]


async def test_cancel_against_completion_ends_in_exactly_one_of_them(world: World) -> None:
    @workflow
    async def quick(ctx: Any, input: Any) -> Any:
        return await ctx.step("s", echo, 1)

    async with world([quick]) as sw, sw.worker():
        for _ in range(40):
            run = await sw.start("quick")
            cancelled, outcome = await asyncio.gather(
                sw.cancel(run.id), run.result(), return_exceptions=True
            )
            record = await sw.get_run(run.id)
            if cancelled:
                assert record.status == "cancelled"
                assert isinstance(outcome, RunCancelled)
            else:
                assert (record.status, outcome) == ("completed", 1)


async def test_cancelling_a_parent_cancels_all_its_descendants(world: World) -> None:
    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        await ctx.start_child("loose", "hold")
        return await ctx.run_child("child", "middle")

    @workflow
    async def middle(ctx: Any, input: Any) -> Any:
        return await ctx.run_child("leaf", "hold")

    async with world([parent, middle, hold]) as sw, sw.worker():
        run = await sw.start("parent")
        await until(sw, run.id, "waiting")
        while len((await sw.list_runs(status="waiting")).items) < 4:
            await asyncio.sleep(0.001)
        await sw.cancel(run.id)
        assert {r.status for r in (await sw.list_runs()).items} == {"cancelled"}


async def test_children_give_their_output_or_their_error(world: World) -> None:
    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        if input == "fail":
            raise ValueError("child failed")
        if input == "wait":
            await ctx.wait_for_event("go")
        return {"got": input}

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        found: list[Any] = [await ctx.run_child("a", "child", 1)]
        handle = await ctx.start_child("b", "child", 2)
        found.append(await handle.result())
        try:
            await ctx.run_child("c", "child", "fail")
        except RunFailed as error:
            found.append([error.error.type, error.error.message])
        late = await ctx.start_child("d", "child", "wait")
        await ctx.step("cancel", cancel, late.id)
        try:
            await late.result()
        except RunCancelled:
            found.append("cancelled")
        try:
            await ctx.run_child("e", "nowhere")
        except Exception as error:
            found.append(type(error).__name__)
        await ctx.wait_for_event("go")
        return found

    async with world([parent, child]) as sw:
        cancel = sw.cancel
        async with sw.worker():
            run = await sw.start("parent")
            while (await sw.explain(run.id)).details.get("event") != "go":
                await asyncio.sleep(0.001)
            children = (await sw.list_runs(definition="child")).items
            assert {r.parent_run_id for r in children} == {run.id}
            assert len(children) == 4
        async with sw.worker():
            await sw.signal(run.id, "go")
            assert await run.result() == [
                {"got": 1}, {"got": 2}, ["ValueError", "child failed"], "cancelled",
                "UnknownDefinition",
            ]  # fmt: skip


async def test_a_deadline_ends_a_run_wherever_it_is(world: World, clock: Any) -> None:
    interrupted = asyncio.Event()
    started = asyncio.Event()

    async def forever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()

    @workflow(deadline="1h")
    async def busy(ctx: Any, input: Any) -> Any:
        await ctx.step("forever", forever)

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        return await ctx.run_child("child", "hold", deadline="5h")

    async with world([busy, hold, parent]) as sw, sw.worker():
        runs = [
            await sw.start("busy"),
            await sw.start("hold", deadline="30m"),
            await sw.start("hold", deadline="30m", delay="10h"),
            await sw.start("parent", deadline="30m"),
        ]
        free = await sw.start("hold")
        await started.wait()
        for run in (runs[1], runs[3], free):
            await until(sw, run.id, "waiting")
        clock.advance("61m")
        for run in runs:
            with pytest.raises(RunTimedOut) as expired:
                await run.result()
            assert expired.value.error.type == "deadline_exceeded"
        await interrupted.wait()
        children = [r for r in (await sw.list_runs()).items if r.parent_run_id]
        assert [r.status for r in children] == ["timed_out"]
        assert (await sw.get_run(free.id)).status == "waiting"


async def test_result_gives_up_after_its_timeout(world: World, clock: Any) -> None:
    async with world([hold]) as sw, sw.worker():
        run = await sw.start("hold")
        waiting = asyncio.create_task(run.result(timeout="5s"))
        await until(sw, run.id, "waiting")
        clock.advance("6s")
        with pytest.raises(TimeoutError):
            await waiting


async def test_retention_counts_from_the_end_and_spares_runs_in_flight(
    world: World, clock: Any
) -> None:
    @workflow(retention="10d")
    async def kept(ctx: Any, input: Any) -> Any:
        await ctx.step("s", echo, 1)
        await ctx.wait_for_event("go", timeout="20d")

    async with world([kept]) as sw:
        async with sw.worker():
            short = await sw.start("kept", retention="1h")
            long = await sw.start("kept")
            for run in (short, long):
                await until(sw, run.id, "waiting")
            clock.advance("15d")
            assert await sw.prune() == 0  # in flight, however old
            await sw.signal(short.id, "go")
            await sw.signal(long.id, "go")
            await short.result()
            await long.result()
        clock.advance("59m")
        assert await sw.prune() == 0
        clock.advance("2m")
        assert await sw.prune() == 1
        assert [r.id for r in (await sw.list_runs()).items] == [long.id]
        clock.advance("9d")
        assert await sw.prune() == 0
        clock.advance("1d")
        assert await sw.prune() == 1
        assert (await sw.list_runs()).items == []


async def test_the_operator_caps_retention(world: World, clock: Any) -> None:
    @workflow(retention="300d")
    async def quick(ctx: Any, input: Any) -> Any:
        return None

    settings = Settings(max_retention_seconds=3600)
    async with world([quick], settings=settings) as sw:
        async with sw.worker():  # gone before its own pruner can be faster
            for options in ({}, {"retention": "200d"}):
                await (await sw.start("quick", **options)).result()
        clock.advance("61m")
        assert await sw.prune() == 2

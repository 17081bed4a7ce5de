"""Programs that cancel what they began: what they never saw, a replay must not show them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import Retry, RunFailed, workflow
from stepwell.kernel.changes import GROUP_BITS
from stepwell.testing.samples import claim_one, commit, enlist, record
from tests.conftest import World
from tests.engine.support import Gate, echo, eventually, flowing, until


async def _replayed(sw: Any, run: Any) -> Any:
    """The output of a run that waits for the signal `go`, from a worker with nothing in memory."""
    async with sw.worker():
        await sw.signal(run.id, "go")
        return await sw.result(run.id)


async def test_a_step_cancelled_while_its_result_is_committed_stays_given_up(world: World) -> None:
    began = asyncio.Event()

    async def work() -> str:
        began.set()
        return "primary"

    @workflow
    async def hedge(ctx: Any, input: Any) -> Any:
        gate.shut()
        primary = asyncio.create_task(ctx.step("primary", work))
        await began.wait()
        await eventually(lambda: gate.waiting)
        primary.cancel()
        gate.open()
        await asyncio.wait([primary])
        await ctx.step("choose", echo, "fallback" if primary.cancelled() else "primary")
        await ctx.wait_for_event("go")

    @workflow(name="hedge", version=1)
    async def hedge_replayed(ctx: Any, input: Any) -> Any:
        primary = asyncio.create_task(ctx.step("primary", work))
        chosen = await ctx.step("choose", echo, "?")
        await ctx.wait_for_event("go")
        return [chosen, primary.done()]

    async with world([hedge]) as sw:
        gate = Gate(sw.store)
        async with sw.worker():
            run = await sw.start("hedge")
            await until_waiting(sw, run)
    async with world([hedge_replayed]) as sw:
        assert await _replayed(sw, run) == ["fallback", False]


async def until_waiting(sw: Any, run: Any) -> None:
    while "go" not in {step.key for step in await sw.steps(run.id) if step.status == "waiting"}:
        await asyncio.sleep(0.001)


async def test_a_signal_taken_by_a_wait_that_is_cancelled_goes_to_the_next_one(
    world: World,
) -> None:
    @workflow
    async def both(ctx: Any, input: Any) -> Any:
        first = asyncio.create_task(ctx.wait_for_event("a"))
        second = asyncio.create_task(ctx.wait_for_event("b"))
        tasks = {first: "a", second: "b"}
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        return sorted(
            [task.result() for task in done] + [await ctx.wait_for_event(tasks[t]) for t in pending]
        )

    async with world([both]) as sw, world() as other, sw.worker():
        for _ in range(30):
            runs = [await sw.start("both") for _ in range(10)]
            await asyncio.gather(
                *(other.signal(run.id, name, name) for run in runs for name in ("a", "b"))
            )
            for run in runs:
                assert await run.result() == ["a", "b"]


async def test_what_ended_while_nobody_worked_comes_after_what_was_recorded(world: World) -> None:
    @workflow
    async def race(ctx: Any, input: Any) -> Any:
        step = asyncio.create_task(ctx.step("step", echo, 1))
        event = asyncio.create_task(ctx.wait_for_event("event"))
        tasks = {step: "step", event: "event"}
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winners = sorted(tasks[task] for task in done)
        for name in winners:
            await ctx.step(f"act-on-{name}", echo, name)
        await ctx.wait_for_event("go")
        return winners

    async with world([race]) as sw:
        async with sw.worker():
            run = await sw.start("race")
            await until_waiting(sw, run)
        await sw.signal(run.id, "event")
        assert await _replayed(sw, run) == ["step"]
        assert {step.key for step in await sw.steps(run.id)} >= {"act-on-step"}
        assert "act-on-event" not in {step.key for step in await sw.steps(run.id)}


async def test_a_branch_that_awaits_something_of_its_own_does_not_hang_the_run(
    world: World, clock: Any
) -> None:
    @workflow
    async def mixed(ctx: Any, input: Any) -> Any:
        async def branch(number: int) -> int:
            for turn in range(3):
                for _ in range(number * 7 % 11 * 3):
                    await asyncio.sleep(0)
                await ctx.sleep(f"nap-{number}-{turn}", 0.01 * (number % 3))
            return await ctx.step(f"step-{number}", echo, number)

        return await asyncio.gather(*(branch(number) for number in range(6)))

    async with world([mixed]) as sw, sw.worker(), flowing(clock, "0.01s"):
        runs = await sw.start_many([{"definition": "mixed"}] * 60)
        for run in runs:
            assert await run.result() == list(range(6))


async def test_branches_left_behind_are_called_off_when_the_program_ends(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ends: list[str] = []

    @workflow
    async def loose(ctx: Any, input: Any) -> Any:
        async def branch() -> None:
            try:
                await ctx.wait_for_event("never")
            finally:
                ends.append("branch")

        task = asyncio.create_task(branch())
        await ctx.step("work", echo, 1)
        return task is not None

    async with world([loose]) as sw, sw.worker():
        assert await (await sw.start("loose")).result() is True
        await eventually(lambda: ends)
    assert caplog.records == []


async def test_readings_of_the_clock_after_repeated_steps_do_not_mix(
    world: World, clock: Any
) -> None:
    @workflow
    async def clocks(ctx: Any, input: Any) -> Any:
        times = []
        for _ in range(3):
            await ctx.step("a", echo, 1)
            for _ in range(2):
                times.append(ctx.now().isoformat())
                clock.advance("1s")
        recorded = await ctx.step("times", echo, times)
        await ctx.wait_for_event("go")
        return recorded == times and len(set(times)) == 6

    async with world([clocks]) as sw:
        async with sw.worker():
            run = await sw.start("clocks")
            await until(sw, run.id, "waiting")
        assert await _replayed(sw, run) is True


@pytest.mark.parametrize("kind", [StopIteration, GeneratorExit])
@pytest.mark.parametrize("where", ["step", "body"])
async def test_what_cannot_pass_through_a_future_fails_the_run(
    world: World, clock: Any, kind: type[BaseException], where: str
) -> None:
    def boom() -> None:
        raise kind

    @workflow
    def plain(ctx: Any, input: Any) -> Any:
        if where == "body":
            boom()
        ctx.step("boom", boom)

    async with world([plain]) as sw, sw.worker(), flowing(clock):
        with pytest.raises(RunFailed, match=kind.__name__):
            await (await sw.start("plain")).result()


class Abort(BaseException):
    """An error of the user's own that is no Exception."""


@pytest.mark.parametrize("raises", [asyncio.CancelledError, Abort])
async def test_a_workflow_that_cancels_itself_again_and_again_fails(
    world: World, clock: Any, raises: type[BaseException]
) -> None:
    @workflow
    async def suicidal(ctx: Any, input: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise raises from None

    async with world([suicidal]) as sw, sw.worker(), flowing(clock):
        with pytest.raises(RunFailed, match="cancelled its own task"):
            await (await sw.start("suicidal")).result()


async def test_a_retry_starts_children_anew_that_ended_badly(world: World) -> None:
    well = False

    def work() -> str:
        if not well:
            raise ValueError("not yet")
        return "done"

    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        return await ctx.step("work", work, retry=Retry(attempts=1))

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        fine = await ctx.start_child("fine", "healthy")
        first = await fine.result()
        handle = await ctx.start_child("child", "child")
        return [first, await handle.result()]

    @workflow
    async def healthy(ctx: Any, input: Any) -> Any:
        return ctx.run_id

    async with world([child, parent, healthy]) as sw, sw.worker():
        run = await sw.start("parent")
        with pytest.raises(RunFailed):
            await run.result()
        well = True
        again = await sw.retry(run.id)
        healthy_id, result = await again.result()
        assert result == "done"
        kept = (await sw.list_runs(definition="healthy")).items
        assert [(each.id, each.parent_run_id) for each in kept] == [(healthy_id, again.id)]


async def test_what_the_program_saw_before_is_not_given_up_along(world: World) -> None:
    began = asyncio.Event()

    async def work() -> str:
        began.set()
        return "late"

    @workflow
    async def forward(ctx: Any, input: Any) -> Any:
        first = await ctx.wait_for_event("first")  # its entry goes with the next commit
        if live:
            task = asyncio.create_task(ctx.step("given-up", work))
            await began.wait()
            await eventually(lambda: gate.waiting)
            task.cancel()
            gate.open()
            await asyncio.wait([task])
        else:
            ctx_task = asyncio.create_task(ctx.step("given-up", work))
            await asyncio.sleep(0)
            assert not ctx_task.done()
        at = ctx.now()
        seen = await ctx.step("seen", echo, [first, at.isoformat()])
        await ctx.wait_for_event("go")
        return seen == [first, at.isoformat()]

    live = True
    async with world([forward]) as sw:
        gate = Gate(sw.store)
        async with sw.worker():
            run = await sw.start("forward")
            await until(sw, run.id, "waiting")
            await sw.signal(run.id, "first", 1)
            await eventually(lambda: began.is_set() or gate.shut())
            await until_waiting(sw, run)
        live = False
        assert await _replayed(sw, run) is True


async def test_a_program_cancelled_from_outside_goes_on_later(world: World, clock: Any) -> None:
    tasks: list[asyncio.Task[Any]] = []

    @workflow
    async def resting(ctx: Any, input: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        return await ctx.wait_for_event("go")

    async with world([resting]) as sw, sw.worker(), flowing(clock, "0.1s"):
        run = await sw.start("resting")
        await until(sw, run.id, "waiting")
        tasks[0].cancel()  # as a handler does that cancels everything
        await asyncio.wait([tasks[0]])
        await sw.signal(run.id, "go", 7)
        assert await run.result() == 7


async def test_a_child_that_is_given_up_before_it_started_does_not_start(world: World) -> None:
    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        return None

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        task = asyncio.create_task(ctx.run_child("child", "child"))
        for _ in range(input):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    async with world([child, parent]) as sw, sw.worker():
        for turns in range(1, 6):
            assert await (await sw.start("parent", turns)).result() is True
        assert (await sw.list_runs(definition="child")).items == []


async def test_a_step_given_up_between_attempts_replays_as_a_step(world: World) -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise ValueError

    @workflow
    async def impatient(ctx: Any, input: Any) -> Any:
        task = asyncio.create_task(ctx.step("flaky", fail, retry=Retry(base="1h", max="1h")))
        await eventually(lambda: calls)
        for _ in range(input):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await ctx.wait_for_event("go")
        return "went on"

    async with world([impatient]) as sw:
        for turns in range(8):
            async with sw.worker():
                run = await sw.start("impatient", turns)
                await until_waiting(sw, run)
            assert {step.kind for step in await sw.steps(run.id) if step.key == "flaky"} == {"step"}
            assert await _replayed(sw, run) == "went on"


async def test_what_a_program_gave_up_on_hearing_a_result_is_given_up_again(world: World) -> None:
    async def beside(ctx: Any) -> Any:
        await ctx.step("beside", echo, "?")
        return await ctx.step("later", echo, "?")

    @workflow
    async def race(ctx: Any, input: Any) -> Any:
        other = asyncio.create_task(beside(ctx))
        losing = asyncio.create_task(ctx.step("slow", echo, "?"))
        await ctx.step("fast", echo, "?")
        losing.cancel()
        await asyncio.wait([losing])
        return [losing.cancelled(), await other]

    async with world([race]) as sw:
        run = await sw.start("race")
        await enlist(sw.store, "gone")
        _, held = await claim_one(sw.store, "gone", programs=["code:race@1"])
        # Its worker died after `later` was recorded, before it was that `slow` was given up.
        for seq, key in enumerate(("fast", "slow", "beside", "later")):
            position = (seq + 1) << GROUP_BITS
            entry = record(sw.store, held, key, '"done"', seq=seq, position=position)
            await commit(sw.store, entry)
        await sw.store.retire(["gone"], alive=True)
        async with sw.worker():
            assert await run.result() == [True, "done"]
            assert (await sw.steps(run.id))[1].status == "skipped"

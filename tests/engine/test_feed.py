"""The live feed of a run: what a listener is told of whatever can happen, once and in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import Retry, workflow
from stepwell.errors import InvalidCursor, RunNotFound
from stepwell.kernel.feed import MOST_TEXT
from stepwell.kernel.progress import MOST_ENTRIES, MOST_OPEN, MOST_OUTPUT
from stepwell.testing.clock import FakeClock
from stepwell.testing.crash import vanish
from tests.conftest import World
from tests.engine.listening import Listener, check_resuming, heard, lasting, lines
from tests.engine.support import echo, eventually, flowing, until


async def test_a_run_is_told_from_its_start_to_its_end(world: World) -> None:
    @workflow
    async def two(ctx: Any, input: Any) -> Any:
        first = await ctx.step("a", echo, input)
        return await ctx.step("b", echo, first + 1)

    async with world([two]) as sw, sw.worker():
        run = await sw.start("two", 1)
        live = await Listener(sw, run.id).all()
        assert lasting(live) == [
            "run.started", "step.started a", "step.completed a", "step.started b",
            "step.completed b", "run.finished",
        ]  # fmt: skip
        assert live[0].data == {"definition": "two", "version": 1}
        assert live[2].data == {"step": "a", "kind": "step", "attempts": 1, "output": 1}
        assert live[-1].data == {"status": "completed", "output": 2}
        assert {event.run_id for event in live} == {run.id}
        await check_resuming(sw, run.id, live)


async def test_failed_attempts_are_told_and_then_the_failure(
    world: World, clock: FakeClock
) -> None:
    def fail() -> None:
        raise ConnectionError("down" * MOST_TEXT)

    @workflow
    async def fails(ctx: Any, input: Any) -> Any:
        return await ctx.step("call", fail, retry=Retry(attempts=3, base="10s"))

    async with world([fails]) as sw, sw.worker():
        run = await sw.start("fails")
        listener = Listener(sw, run.id)
        await listener.until(lambda found: "run.waiting" in found)
        [waits] = listener.events[-1].data["waits"]
        assert (waits["step"], waits["due_at"] is not None) == ("call", True)
        async with flowing(clock):
            live = await listener.all()
        assert lasting(live) == [
            "run.started", "step.started call", "step.retrying call 1", "step.retrying call 2",
            "step.failed call", "run.finished",
        ]  # fmt: skip
        error = live[-1].data["error"]
        assert (error["type"], len(error["message"])) == ("ConnectionError", MOST_TEXT)
        await check_resuming(sw, run.id, live)


async def test_a_sleeping_run_is_told_to_wait_and_to_go_on(world: World, clock: FakeClock) -> None:
    @workflow
    async def naps(ctx: Any, input: Any) -> Any:
        await ctx.sleep("nap", "1m")
        await ctx.sleep("nap", "5m")

    async with world([naps]) as sw:
        async with sw.worker():
            run = await sw.start("naps")
            first = Listener(sw, run.id)
            await first.until(lambda found: "run.waiting" in found)
            assert lines(first.events) == ["run.started", "step.started nap", "run.waiting"]
            await first.leave()
    async with world([naps]) as sw, sw.worker():
        second = Listener(sw, run.id, first.events[-1].id)
        async with flowing(clock):
            await second.until(lambda found: "run.waiting" in found)
        assert lines(second.events) == [
            "run.resumed 1", "step.completed nap", "step.started nap#2", "run.waiting",
        ]  # fmt: skip
        async with flowing(clock):
            live = first.events + await second.all()
        await check_resuming(sw, run.id, live)


async def test_branches_are_told_as_they_end_and_steps_at_work_as_they_begin(
    world: World, clock: FakeClock
) -> None:
    doors = {name: asyncio.Event() for name in "abc"}

    async def wait(name: str) -> str:
        await doors[name].wait()
        return name

    @workflow
    async def fan(ctx: Any, input: Any) -> Any:
        return await asyncio.gather(*(ctx.step(name, wait, name) for name in doors))

    async with world([fan]) as sw, sw.worker():
        run = await sw.start("fan")
        listener = Listener(sw, run.id)
        async with flowing(clock):
            await listener.until(lambda found: len(found) == 4)
            for number, name in enumerate("cab", 5):
                doors[name].set()
                await listener.until(lambda found, number=number: len(found) >= number)
            live = await listener.all()
        assert lasting(live) == [
            "run.started", "step.started a", "step.started b", "step.started c",
            "step.completed c", "step.completed a", "step.completed b", "run.finished",
        ]  # fmt: skip
        assert lasting(await heard(sw, run.id)) == lasting(live)
        await check_resuming(sw, run.id, live)


async def test_after_a_crash_another_worker_goes_on_and_nothing_is_told_twice(
    world: World, clock: FakeClock
) -> None:
    reached = asyncio.Event()
    calls: list[str] = []

    async def work(name: str) -> str:
        calls.append(name)
        if calls == ["a", "b"]:
            reached.set()
            await asyncio.Event().wait()
        return name

    @workflow
    async def steps(ctx: Any, input: Any) -> Any:
        return [await ctx.step(name, work, name) for name in ("a", "b", "c")]

    async with world([steps]) as one, world([steps]) as two:
        async with one.worker() as victim:
            run = await one.start("steps")
            listener = Listener(two, run.id)
            await reached.wait()
            async with flowing(clock):
                await listener.until(lambda found: "step.started b" in found)
                vanish(victim)
                async with two.worker():
                    live = await listener.all()
        assert lines(live) == [
            "run.started", "step.started a", "step.completed a", "step.started b",
            "run.resumed 2", "step.completed b", "step.started c", "step.completed c",
            "run.finished",
        ]  # fmt: skip
        await check_resuming(two, run.id, live)


async def test_what_was_open_when_its_run_was_cancelled_is_told_to_be_cancelled(
    world: World, clock: FakeClock
) -> None:
    begun: list[int] = []

    async def hang(number: int) -> None:
        begun.append(number)
        await asyncio.Event().wait()

    @workflow
    async def many(ctx: Any, input: Any) -> Any:
        steps = [ctx.step(f"s{number}", hang, number) for number in range(3)]
        await asyncio.gather(*steps, ctx.wait_for_event("never"))

    async with world([many]) as sw, sw.worker():
        run = await sw.start("many")
        listener = Listener(sw, run.id)
        await eventually(lambda: len(begun) == 3)
        async with flowing(clock):
            await listener.until(lambda found: len(found) == 5)
        await sw.cancel(run.id)
        live = await listener.all()
        assert lines(live)[-5:] == [
            "step.cancelled never", "step.cancelled s0", "step.cancelled s1",
            "step.cancelled s2", "run.finished",
        ]  # fmt: skip
        assert live[-1].data == {"status": "cancelled"}
        await check_resuming(sw, run.id, live)


async def test_a_run_that_never_began_is_only_told_to_have_finished(world: World) -> None:
    @workflow
    async def idle(ctx: Any, input: Any) -> Any: ...

    async with world([idle]) as sw:
        run = await sw.start("idle")
        listener = Listener(sw, run.id)
        await sw.cancel(run.id)
        assert lines(await listener.all()) == ["run.finished"]


async def test_a_fork_is_told_what_it_was_given(world: World, clock: FakeClock) -> None:
    @workflow
    async def three(ctx: Any, input: Any) -> Any:
        return [await ctx.step(name, echo, name) for name in ("a", "b", "c")]

    async with world([three]) as sw, sw.worker():
        origin = await sw.start("three")
        await origin.result(30)
        clock.advance("1m")
        fork = await sw.fork(origin.id, "c")
        live = await Listener(sw, fork.id).all()
        assert lasting(live) == [
            "run.started", "step.completed a", "step.completed b", "step.started c",
            "step.completed c", "run.finished",
        ]  # fmt: skip
        assert [event.data.get("copied") for event in live[1:5]] == [True, True, None, None]
        await check_resuming(sw, fork.id, live)


async def test_what_the_program_gave_up_is_told_to_be_skipped(
    world: World, clock: FakeClock
) -> None:
    @workflow
    async def impatient(ctx: Any, input: Any) -> Any:
        waiting = asyncio.ensure_future(ctx.wait_for_event("answer"))
        await ctx.sleep("patience", "1m")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return await ctx.step("go", echo, 1)

    async with world([impatient]) as sw, sw.worker():
        run = await sw.start("impatient")
        listener = Listener(sw, run.id)
        await until(sw, run.id, "waiting")
        async with flowing(clock):
            live = await listener.all()
        assert "step.skipped answer" in lines(live)
        assert live[-1].data["status"] == "completed"
        replayed = await heard(sw, run.id)
        assert set(lasting(live)) - set(lasting(replayed)) == {"step.started answer"}


async def test_a_long_journal_and_long_outputs_come_in_small_pieces(world: World) -> None:
    count = 2 * MOST_ENTRIES + 7

    @workflow
    async def long(ctx: Any, input: Any) -> Any:
        for number in range(count):
            await ctx.step(f"s{number}", echo, "x" * (MOST_OUTPUT + number % 2 - 2))
        await asyncio.gather(*(ctx.step(f"p{number}", echo, 0) for number in range(count)))

    async with world([long]) as sw, sw.worker():
        run = await sw.start("long")
        await run.result(30)
        events = await heard(sw, run.id)
        assert len(events) == 2 + 4 * count
        ends = [event.data for event in events if event.type == "step.completed"][:2]
        assert (len(ends[0]["output"]), ends[1].get("output_left_out")) == (MOST_OUTPUT - 2, True)
        for number in range(0, len(events), 61):
            assert await heard(sw, run.id, events[number].id) == events[number + 1 :]


async def test_of_very_many_steps_at_once_no_id_tells_of_all(
    world: World, clock: FakeClock
) -> None:
    count = MOST_OPEN + 50
    door = asyncio.Event()

    async def wait() -> None:
        await door.wait()

    @workflow
    async def wide(ctx: Any, input: Any) -> Any:
        await asyncio.gather(*(ctx.step(f"s{number}", wait) for number in range(count)))

    async with world([wide]) as sw, sw.worker():
        run = await sw.start("wide")
        listener = Listener(sw, run.id)
        async with flowing(clock):
            await listener.until(lambda found: len(found) == 1 + MOST_OPEN)
        door.set()
        live = await listener.all()
        assert sorted(lasting(live)) == sorted(lasting(await heard(sw, run.id)))
        assert len(live) == 2 + 2 * count
        assert max(len(event.id) for event in live) < 16 * (MOST_OPEN + MOST_ENTRIES)


async def test_what_is_no_event_of_the_run_is_refused(world: World) -> None:
    @workflow
    async def idle(ctx: Any, input: Any) -> Any: ...

    async with world([idle]) as sw, sw.worker():
        one, other = await sw.start("idle"), await sw.start("idle")
        events = await heard(sw, one.id)
        assert await heard(sw, one.id, events[-1].id) == []
        for wrong in ("", "1", "1-", "nonsense", "7" + events[0].id, "\ud800"):
            with pytest.raises(InvalidCursor):
                await heard(sw, one.id, wrong)
        with pytest.raises(InvalidCursor):
            await heard(sw, other.id, events[0].id)
        with pytest.raises(RunNotFound):
            await heard(sw, "0" * 26)
    async with world([idle], workspace="elsewhere") as sw:
        with pytest.raises(RunNotFound):
            await heard(sw, one.id)

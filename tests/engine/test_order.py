"""What a run asks for in quick succession is applied in that order, whatever shares a commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from stepwell import workflow
from stepwell.engine.writer import Writer
from stepwell.errors import ChangeBlocked
from stepwell.kernel.changes import Change, Committed, Held, OpenWait, ParkRun, WatchWaits
from stepwell.testing.clock import FakeClock
from stepwell.testing.samples import record, wait
from tests.conftest import World
from tests.engine.support import flowing, until


async def turns() -> None:
    """Give everything that could happen by itself ample time, without time."""
    for _ in range(200):
        await asyncio.sleep(0)


@asynccontextmanager
async def commit_under_way(stepwell: Any) -> AsyncIterator[None]:
    """While inside, one commit is under way, and the next one gathers."""
    gate, under_way = asyncio.Event(), asyncio.Event()
    real = stepwell.store.commit

    async def commit(batch: Any) -> Any:
        under_way.set()
        await gate.wait()
        return await real(batch)

    stepwell.store.commit = commit
    emitting = asyncio.create_task(stepwell.emit("tick"))
    await under_way.wait()
    try:
        yield
    finally:
        stepwell.store.commit = real
        gate.set()
        await emitting


async def test_a_run_that_parks_right_after_it_worked_beside_a_wait_wakes_in_time(
    world: World, clock: Any
) -> None:
    begin, give_up = asyncio.Event(), asyncio.Event()

    @workflow
    async def napping(ctx: Any, input: Any) -> Any:
        await begin.wait()
        event = asyncio.create_task(ctx.wait_for_event("never"))
        step = asyncio.create_task(ctx.step("step", asyncio.Event().wait))
        await give_up.wait()
        step.cancel()
        await ctx.sleep("nap", "1s")
        event.cancel()
        return "awake"

    async with world([napping]) as sw, sw.worker():
        run = await sw.start("napping")
        await until(sw, run.id, "running")
        async with commit_under_way(sw):
            begin.set()
            await turns()
            give_up.set()
            await turns()
        async with flowing(clock, "0.1s"), asyncio.timeout(30):
            assert await run.result() == "awake"


async def test_a_wait_given_up_before_it_was_open_takes_no_signal(world: World) -> None:
    begin, give_up, finish = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def working() -> None:
        await finish.wait()

    @workflow
    async def second_thoughts(ctx: Any, input: Any) -> Any:
        await begin.wait()
        step = asyncio.create_task(ctx.step("step", working))
        first = asyncio.create_task(ctx.wait_for_event("first", "go"))
        await give_up.wait()
        first.cancel()
        await step
        return await ctx.wait_for_event("second", "go")

    async with world([second_thoughts]) as sw, sw.worker():
        run = await sw.start("second_thoughts")
        await until(sw, run.id, "running")
        async with commit_under_way(sw):
            begin.set()
            await turns()
            give_up.set()
            finish.set()
            await turns()
        await until(sw, run.id, "waiting")
        await sw.signal(run.id, "go", "now")
        async with asyncio.timeout(30):
            assert await run.result() == "now"


class Recorder:
    """A store that notes what it is given, and may be told to refuse some of it."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.batches: list[list[str]] = []
        self.blocked: set[str] = set()
        self.names_runs = False

    async def commit(self, batch: list[Change]) -> Committed:
        held = {key for change in batch if (key := getattr(change, "key", "")) in self.blocked}
        if held:
            run_ids = {
                change.held.run_id for change in batch if getattr(change, "key", "") in self.blocked
            }
            raise ChangeBlocked("held", run_ids if self.names_runs else ())
        self.batches.append([getattr(c, "key", type(c).__name__) for c in batch])
        return Committed([None] * len(batch))


def opened(clock: FakeClock) -> tuple[Recorder, Writer]:
    store = Recorder(clock)
    writer = Writer(store, lambda batch, committed: None)
    writer.open()
    return store, writer


async def test_what_a_run_asks_for_after_it_began_to_wait_goes_with_the_next_commit(
    clock: FakeClock,
) -> None:
    store, writer = opened(clock)
    one, two = Held("r1", "w1", 1), Held("r2", "w1", 1)
    opening: OpenWait = wait(store, one, "x")
    futures = [
        writer.submit(record(store, one, "a")),
        writer.submit(opening, WatchWaits(one, ["x"])),
        writer.submit(record(store, two, "b")),
        writer.submit(ParkRun(two, [])),
        writer.submit(record(store, one, "x", settles=True)),
        asyncio.ensure_future(writer.drained()),
    ]
    await asyncio.gather(*futures)
    assert store.batches == [["a", "x", "WatchWaits", "b", "ParkRun"], ["x"]]
    await writer.close()


async def test_nothing_overtakes_a_blocked_change_whose_caller_has_gone(clock: FakeClock) -> None:
    store, writer = opened(clock)
    held = Held("r1", "w1", 1)
    store.blocked = {"a"}
    first = writer.submit(record(store, held, "a"))
    await turns()
    first.cancel()
    behind = writer.submit(record(store, held, "b"))
    clock.advance("2s")
    await turns()
    assert not behind.done()
    store.blocked = set()
    async with flowing(clock):
        await behind
    assert store.batches == [["a"], ["b"]]
    await writer.close()


async def test_what_is_blocked_is_put_off_at_once_and_in_order(clock: FakeClock) -> None:
    store, writer = opened(clock)
    store.blocked, store.names_runs = {"a", "c"}, True
    one, two, three = (Held(f"r{n}", "w1", 1) for n in range(3))
    futures = [
        writer.submit(record(store, held, key))
        for held, key in [(one, "a"), (two, "b"), (one, "c"), (one, "d"), (three, "e")]
    ]
    await futures[4]
    assert store.batches == [["b", "e"]]
    store.blocked = set()
    async with flowing(clock):
        await asyncio.gather(*futures)
    assert [key for batch in store.batches for key in batch] == ["b", "e", "a", "c", "d"]
    await writer.close()

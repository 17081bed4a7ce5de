"""What a run asks for in quick succession is applied in that order, whatever shares a commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stepwell import workflow
from stepwell.engine.writer import Writer
from stepwell.errors import ChangeBlocked, StoreUnavailable
from stepwell.kernel.changes import (
    GROUP_BITS,
    Change,
    Committed,
    Held,
    OpenWait,
    ParkRun,
    WatchWaits,
)
from stepwell.testing.clock import FakeClock
from stepwell.testing.samples import record, wait
from tests.conftest import World
from tests.engine.support import echo, flowing, until


async def turns() -> None:
    """Give everything that could happen by itself ample time, without time."""
    for _ in range(200):
        await asyncio.sleep(0)


@asynccontextmanager
async def commit_under_way(
    stepwell: Any, doing: Callable[[], Awaitable[Any]]
) -> AsyncIterator[None]:
    """While inside, the commit of this is under way, and the next one gathers."""
    gate, under_way = asyncio.Event(), asyncio.Event()
    real = stepwell.store.commit

    async def commit(batch: Any) -> Any:
        under_way.set()
        await gate.wait()
        return await real(batch)

    stepwell.store.commit = commit
    done = asyncio.ensure_future(doing())
    await under_way.wait()
    try:
        yield
    finally:
        stepwell.store.commit = real
        gate.set()
        await done


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
        async with commit_under_way(sw, lambda: sw.emit("tick")):
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
        async with commit_under_way(sw, lambda: sw.emit("tick")):
            begin.set()
            await turns()
            give_up.set()
            finish.set()
            await turns()
        await until(sw, run.id, "waiting")
        await sw.signal(run.id, "go", "now")
        async with asyncio.timeout(30):
            assert await run.result() == "now"


async def test_a_sweep_does_not_take_a_run_that_is_just_being_resumed(
    world: World, clock: Any
) -> None:
    go = asyncio.Event()
    begun: list[str] = []

    @workflow
    async def busy(ctx: Any, input: Any) -> Any:
        begun.append(ctx.run_id)
        waiting = asyncio.create_task(ctx.wait_for_event("never"))
        await go.wait()
        result = await ctx.step("after", echo, 1)
        waiting.cancel()
        return result

    async with world([busy]) as sw, sw.worker(lease="1d") as worker:
        ended = await sw.start("busy")
        assert await sw.cancel(ended.id)
        run = await sw.start("busy")
        await until(sw, run.id, "waiting")
        clock.advance("2s")  # the next claim sweeps
        async with commit_under_way(sw, lambda: sw.cancel(ended.id)):
            worker.claim_soon()
            go.set()
            await turns()
        async with flowing(clock, "0.01s"):
            assert await run.result() == 1
    assert begun.count(run.id) == 1


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


async def test_what_was_held_back_does_not_overtake_what_is_blocked(clock: FakeClock) -> None:
    store, writer = opened(clock)
    held = Held("r1", "w1", 1)
    store.blocked = {"x"}
    opening: OpenWait = wait(store, held, "x")
    first = writer.submit(opening, WatchWaits(held, ["x"]))
    second = writer.submit(record(store, held, "y", settles=True))
    await turns()
    assert store.batches == []
    store.blocked = set()
    async with flowing(clock):
        await asyncio.gather(first, second)
    assert store.batches == [["x", "WatchWaits"], ["y"]]
    await writer.close()


async def test_what_came_during_the_commit_does_not_overtake_what_that_found_blocked(
    clock: FakeClock,
) -> None:
    store, writer = opened(clock)
    one, two = Held("r1", "w1", 1), Held("r2", "w1", 1)
    store.blocked = {"a"}
    refused, commit = asyncio.Event(), store.commit

    async def slow_commit(batch: list[Change]) -> Committed:
        await refused.wait()
        return await commit(batch)

    store.commit = slow_commit  # type: ignore[method-assign]
    first = writer.submit(record(store, one, "a"))
    await turns()
    second, other = writer.submit(record(store, one, "b")), writer.submit(record(store, two, "c"))
    refused.set()
    await other
    assert store.batches == [["c"]]
    store.blocked = set()
    async with flowing(clock):
        await asyncio.gather(first, second)
    assert store.batches == [["c"], ["a"], ["b"]]
    await writer.close()


async def test_what_waited_behind_a_blocked_change_comes_before_what_came_later(
    clock: FakeClock,
) -> None:
    store, writer = opened(clock)
    one, two = Held("r1", "w1", 1), Held("r2", "w1", 1)
    store.blocked, store.names_runs = {"a"}, True
    go, commit, late = asyncio.Event(), store.commit, []

    async def slow_commit(batch: list[Change]) -> Committed:
        await go.wait()
        if [getattr(change, "key", "") for change in batch] == ["other"]:  # "a" is put off by now
            late.append(writer.submit(record(store, one, "third")))
        return await commit(batch)

    store.commit = slow_commit  # type: ignore[method-assign]
    futures = [writer.submit(record(store, one, "a")), writer.submit(record(store, two, "other"))]
    await turns()
    futures.append(writer.submit(record(store, one, "second")))
    go.set()
    await futures[1]
    store.blocked = set()
    async with flowing(clock):
        await asyncio.gather(*futures, *late)
    assert [key for batch in store.batches for key in batch] == ["other", "a", "second", "third"]
    await writer.close()


@pytest.mark.parametrize("names_runs", [True, False])
async def test_a_blocked_batch_keeps_its_order_before_what_comes_meanwhile(
    clock: FakeClock, names_runs: bool
) -> None:
    store, writer = opened(clock)
    one, two = Held("r1", "w1", 1), Held("r2", "w1", 1)
    store.blocked, store.names_runs = {"a1", "a2", "b1", "b2"}, names_runs
    commit, late = store.commit, []

    async def slow_commit(batch: list[Change]) -> Committed:
        if not late:
            late.append(writer.submit(record(store, one, "a3")))
        await asyncio.sleep(0)
        return await commit(batch)

    store.commit = slow_commit  # type: ignore[method-assign]
    futures = [
        writer.submit(record(store, held, key))
        for held, key in [(one, "a1"), (two, "b1"), (one, "a2"), (two, "b2")]
    ]
    await turns()
    store.blocked = set()
    async with flowing(clock):
        await asyncio.gather(*futures, *late)
    keys = [key for batch in store.batches for key in batch]
    assert [key for key in keys if key.startswith("a")] == ["a1", "a2", "a3"]
    assert [key for key in keys if key.startswith("b")] == ["b1", "b2"]
    await writer.close()


async def test_what_is_large_does_not_all_go_into_one_commit(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.engine.units.MAX_BATCH_CHARACTERS", 100)
    store, writer = opened(clock)
    held = Held("r1", "w1", 1)
    sizes = [60, 30, 30, 500, 10]
    futures = [
        writer.submit(record(store, held, f"{number}", "x" * size))
        for number, size in enumerate(sizes)
    ]
    await asyncio.gather(*futures)
    assert store.batches == [["0", "1"], ["2"], ["3"], ["4"]]
    await writer.close()


async def test_entries_are_numbered_by_the_commit_that_made_them_durable(
    clock: FakeClock,
) -> None:
    store, writer = opened(clock)
    one, two = Held("r1", "w1", 1), Held("r2", "w1", 1)
    store.blocked = {"held"}
    changes = [record(store, one, "a"), record(store, two, "held"), record(store, one, "b")]
    futures = [writer.submit(change) for change in changes]
    await asyncio.gather(futures[0], futures[2])
    assert store.batches == [["a"], ["b"]]
    assert changes[0].position >> GROUP_BITS < changes[2].position >> GROUP_BITS
    await writer.close()


async def test_entries_that_may_be_durable_keep_their_number(clock: FakeClock) -> None:
    store, writer = opened(clock)
    held = Held("r1", "w1", 1)
    change = record(store, held, "a")
    commit, positions = store.commit, list[int]()

    async def losing(batch: list[Change]) -> Committed:
        positions.append(change.position)
        if len(positions) == 1:
            raise StoreUnavailable("the answer is lost")
        if len(positions) == 2:
            raise ChangeBlocked("held", [])
        return await commit(batch)

    store.commit = losing  # type: ignore[method-assign]
    submitted = writer.submit(change)
    async with flowing(clock):
        await submitted
    assert len(positions) == 3
    assert len(set(positions)) == 1
    await writer.close()

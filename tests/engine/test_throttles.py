"""Throttles: never more begin in any such time, and nobody waits for who does not begin."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import Stepwell, workflow
from stepwell.catalog import store_for
from stepwell.engine.pruner import prune_once
from stepwell.kernel.clock import SECOND, to_micros
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import flowing, until

ONE = {"limit": 1, "per": "10s"}


@workflow
async def quick(ctx: Any, input: Any) -> Any:
    return input


@workflow(max_concurrent_runs=1)
async def held(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("go")


async def begun(sw: Stepwell, clock: FakeClock, runs: list[Any]) -> list[int]:
    """Seconds after now at which these runs have begun, late by less than five."""
    now = clock.now()
    async with sw.worker(lease="1h"), flowing(clock, "0.02s"):
        for run in runs:
            await run.result()
    return [late_by_less_than_five(at - now) for at in await starts_of(sw, runs)]


def late_by_less_than_five(micros: int) -> int:
    """Seconds: never early, but late, for time flows on while a busy machine commits."""
    return micros // (5 * SECOND) * 5


async def starts_of(sw: Stepwell, runs: list[Any]) -> list[int]:
    """When these runs have begun, in microseconds."""
    found = [(await sw.get_run(run.id)).started_at for run in runs]
    return [to_micros(at) for at in found if at is not None]


async def test_a_throttle_lets_so_many_begin_in_any_such_time(
    world: World, clock: FakeClock
) -> None:
    async with world([quick]) as sw:
        throttle = {"limit": 2, "per": "10s"}
        runs = [await sw.start("quick", n, throttle=throttle) for n in range(5)]
        assert (await sw.explain(runs[0].id)).code == "no_worker"
        explained = await sw.explain(runs[2].id)
        assert explained.code == "throttle"
        assert explained.details["due_at"] is not None
        assert await begun(sw, clock, runs) == [0, 0, 10, 10, 20]


async def test_throttles_have_keys_and_stand_in_a_policy(world: World, clock: FakeClock) -> None:
    node = {"id": "a", "type": "transform", "config": {"value": "@input"}}
    policy = {"throttle": {"limit": 1, "per": "10s", "key": "{{input.who}}"}}
    async with world([]) as sw:
        await sw.definitions.publish({"name": "paced", "nodes": [node], "policy": policy})
        runs = [await sw.start("paced", {"who": who}) for who in ("a", "a", "b", "a")]
        assert await begun(sw, clock, runs) == [0, 10, 0, 20]


async def test_a_delayed_start_does_not_hold_up_those_before_it(
    world: World, clock: FakeClock
) -> None:
    async with world([quick]) as sw:
        later = await sw.start("quick", 0, throttle=ONE, delay="1d")
        runs = [await sw.start("quick", n, throttle=ONE) for n in range(2)]
        assert await begun(sw, clock, runs) == [0, 10]
        assert (await sw.explain(later.id)).code == "delay"


async def test_who_never_begins_takes_no_turn(world: World, clock: FakeClock) -> None:
    async with world([quick]) as sw:
        runs = [await sw.start("quick", n, throttle=ONE) for n in range(5)]
        runs += [await sw.start("quick", n, throttle=ONE, ttl="5s") for n in range(5)]
        async with sw.worker(lease="1h"):
            await runs[0].result()
            for run in runs[1:5]:
                await sw.cancel(run.id)
            last = await sw.start("quick", 9, throttle=ONE)
            async with flowing(clock, "0.02s"):
                await last.result()
        first, at = await starts_of(sw, [runs[0], last])
        assert late_by_less_than_five(at - first) == 10
        assert {(await sw.get_run(run.id)).status for run in runs[5:]} == {"timed_out"}


async def test_turns_that_nobody_was_there_for_are_not_made_up(
    world: World, clock: FakeClock
) -> None:
    async with world([quick]) as sw:
        runs = [await sw.start("quick", n, throttle=ONE) for n in range(3)]
        clock.advance("1h")
        assert await begun(sw, clock, runs) == [0, 10, 20]


async def test_a_worker_that_comes_late_goes_on_with_the_queue(
    world: World, clock: FakeClock
) -> None:
    async with world([quick]) as sw:
        async with sw.worker(lease="1h"):
            runs = [await sw.start("quick", n, throttle=ONE) for n in range(3)]
            await runs[0].result()
        clock.advance("1h")
        assert await begun(sw, clock, runs[1:]) == [0, 10]


async def test_throttled_runs_begin_by_priority_then_order(world: World, clock: FakeClock) -> None:
    async with world([quick]) as sw:
        async with sw.worker(lease="1h"):
            first = await sw.start("quick", 0, throttle=ONE)
            await first.result()
            a, b = [await sw.start("quick", n, throttle=ONE) for n in range(2)]
            urgent = await sw.start("quick", 9, throttle=ONE, priority=5)
            assert (await sw.explain(urgent.id)).details["queued_ahead"] == 0
            async with flowing(clock, "0.02s"):
                for run in (a, b, urgent):
                    await run.result()
        at = await starts_of(sw, [first, urgent, a, b])
        assert [late_by_less_than_five(each - at[0]) for each in at] == [0, 10, 20, 30]


async def test_who_waits_for_a_slot_takes_no_turn(world: World, clock: FakeClock) -> None:
    async with world([held]) as sw, sw.worker(lease="1h"):
        runs = [await sw.start("held", throttle=ONE) for _ in range(3)]
        await until(sw, runs[0].id, "waiting")
        clock.advance("1m")
        for run, following in zip(runs, [*runs[1:], None], strict=True):
            await sw.signal(run.id, "go")
            await run.result()
            if following is not None:
                async with flowing(clock, "0.02s"):
                    await until(sw, following.id, "waiting")
        at = await starts_of(sw, runs)
        assert at[1] - at[0] >= 60 * SECOND
        assert at[2] - at[1] >= 10 * SECOND


async def test_another_throttle_of_the_key_holds_for_who_is_started_with_it(
    world: World, clock: FakeClock
) -> None:
    async with world([quick]) as sw:
        runs = [await sw.start("quick", n, throttle={"limit": 1, "per": "1h"}) for n in range(2)]
        runs += [await sw.start("quick", n, throttle={"limit": 2, "per": "1s"}) for n in range(3)]
        async with sw.worker(lease="1h"):
            await runs[0].result()
            await sw.cancel(runs[1].id)
            async with flowing(clock, "0.02s"):
                for run in runs[2:]:
                    await run.result()
        at = await starts_of(sw, [runs[0], *runs[2:]])
        assert at[-1] - at[0] <= 10 * SECOND


async def test_turns_are_forgotten_when_they_count_no_more(world: World, clock: FakeClock) -> None:
    async with world([quick]) as sw:
        runs = [await sw.start("quick", n, throttle=ONE | {"key": str(n)}) for n in range(3)]
        await begun(sw, clock, runs)
        late = await sw.start("quick", 0, throttle=ONE | {"key": "0"})
        assert (await sw.explain(late.id)).code == "throttle", "its turn counts still"
        clock.advance("2h")
        await prune_once(sw.store)
        assert await sw.store.triggers.prune_turns(clock.now(), 10) == 0
        assert await begun(sw, clock, [late]) == [0]


@pytest.mark.parametrize("workers", [1, 8])
async def test_a_throttle_is_exact_whoever_starts_and_whoever_works(
    store_url: str, clock: FakeClock, workers: int
) -> None:
    def process() -> Stepwell:
        return Stepwell(workflows=[quick], store=store_for(store_url, clock))

    async def work(number: int) -> list[Any]:
        async with process() as sw, sw.worker(lease="1h"):
            throttle = {"limit": 5, "per": "10s"}
            runs = [await sw.start("quick", n, throttle=throttle) for n in range(24 // workers)]
            for run in runs:
                await run.result()
            return [(await sw.get_run(run.id)).started_at for run in runs]

    async with flowing(clock, "0.05s"):
        found = await asyncio.gather(*map(work, range(workers)))
    at = sorted(to_micros(each) for listed in found for each in listed)
    assert len(at) == 24
    for first, sixth in zip(at, at[5:], strict=False):
        assert sixth - first >= 10 * SECOND


@pytest.mark.parametrize(
    ("before", "after", "most"),
    [
        ({"throttle": {"limit": 1, "per": "1h"}}, {"throttle": {"limit": 100, "per": "1s"}}, 4),
        ({"throttle": {"limit": 1, "per": "1h"}}, {}, 4),
        ({"concurrency": {"key": "@input.k", "limit": 1}},
         {"concurrency": {"key": "@input.k", "limit": 3}}, 3),
        ({"concurrency": {"key": "@input.k", "limit": 1}}, {}, 4),
    ],
)  # fmt: skip
async def test_what_is_published_counts_for_runs_that_are_queued(
    world: World, clock: FakeClock, before: Any, after: Any, most: int
) -> None:
    def graph(policy: Any) -> dict[str, Any]:
        wait = {"id": "a", "type": "delay", "config": {"duration": "30d"}}
        return {"name": "g", "policy": policy, "nodes": [wait]}

    async with world([]) as sw:
        await sw.definitions.publish(graph(before))
        runs = [await sw.start("g", {"k": "x" * 300}) for _ in range(4)]
        async with sw.worker(lease="1h"):
            await until(sw, runs[0].id, "waiting")
            await sw.definitions.publish(graph(after))
            begin = clock.now()
            async with flowing(clock, "0.2s"):
                for run in runs[1:most]:
                    await until(sw, run.id, "waiting")
            assert clock.now() < begin + 600 * SECOND, "long before the old throttle's turn"
            found = [(await sw.get_run(run.id)).status for run in runs]
    assert found.count("waiting") == most

"""Queues that are bounded: above that a start is refused, and nothing is written of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from stepwell import Stepwell, workflow
from stepwell.catalog import store_for
from stepwell.errors import InvalidDefinition, InvalidInput, QueueFull
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import flowing, until, until_code


@workflow(max_concurrent_runs=2, max_queued_runs=3)
async def bounded(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("go")


@workflow
async def free(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("go")


@workflow(max_concurrent_runs=1, max_queued_runs=0)
async def down(ctx: Any, input: Any) -> Any:
    return 0 if input == 0 else 1 + await ctx.run_child("child", "down", input - 1)


async def test_a_start_is_refused_when_no_slot_is_free_and_the_queue_is_full(world: World) -> None:
    async with world([bounded]) as sw:
        runs = [await sw.start("bounded", n) for n in range(5)]
        with pytest.raises(QueueFull) as refused:
            await sw.start("bounded", 5)
        assert refused.value.details | {"queue": ""} == {
            "definition": "bounded", "limit": "max_queued_runs", "value": 3, "queue": "",
        }  # fmt: skip
        assert "'bounded'" in refused.value.message
        assert len((await sw.list_runs()).items) == 5
        async with sw.worker():
            await until(sw, runs[1].id, "waiting")
            with pytest.raises(QueueFull):
                await sw.start("bounded", 5)
            await sw.signal(runs[0].id, "go")
            await until(sw, runs[2].id, "waiting")
            await sw.start("bounded", 5)
            with pytest.raises(QueueFull):
                await sw.start("bounded", 6)


async def test_a_start_that_was_made_before_is_not_refused(world: World) -> None:
    async with world([bounded]) as sw:
        runs = [await sw.start("bounded", n, idempotency_key=str(n)) for n in range(5)]
        again = await sw.start("bounded", 4, idempotency_key="4")
        assert (again.id, again.created) == (runs[4].id, False)


async def test_queues_of_keys_are_bounded_one_by_one(world: World) -> None:
    async with world([free]) as sw:
        options: dict[str, Any] = {"concurrency_limit": 1, "max_queued_runs": 1}
        for key in "ab":
            for _ in range(2):
                await sw.start("free", concurrency_key=key, **options)
            with pytest.raises(QueueFull, match=f"'{key}'"):
                await sw.start("free", concurrency_key=key, **options)
        await sw.start("free", concurrency_key="a")


async def test_a_free_slot_of_a_definition_is_for_keys_that_have_room(world: World) -> None:
    async with world([bounded]) as sw, sw.worker():
        first, *_ = [await sw.start("bounded", concurrency_key="a") for _ in range(4)]
        await until(sw, first.id, "waiting")
        with pytest.raises(QueueFull, match="'a'"):
            await sw.start("bounded", concurrency_key="a")
        other = await sw.start("bounded", concurrency_key="b")
        await until(sw, other.id, "waiting")
        with pytest.raises(QueueFull, match="'bounded'"):
            await sw.start("bounded", concurrency_key="c")


async def test_what_is_due_later_is_not_queued_yet(world: World, clock: FakeClock) -> None:
    async with world([bounded]) as sw, sw.worker(lease="1h"):
        later = [await sw.start("bounded", delay="1m") for _ in range(6)]
        for _ in range(5):
            await sw.start("bounded")
        with pytest.raises(QueueFull):
            await sw.start("bounded", delay="1m")
        async with flowing(clock):
            for run in later:
                await until_code(sw, run.id, "slot")


async def test_a_child_that_shares_a_slot_is_not_refused(world: World) -> None:
    async with world([down]) as sw, sw.worker():
        run = await sw.start("down", 3)
        assert await run.result() == 3


async def test_a_bounded_queue_is_exact_whoever_starts(store_url: str, clock: FakeClock) -> None:
    def process() -> Stepwell:
        return Stepwell(workflows=[bounded], store=store_for(store_url, clock))

    async with process() as one, process() as two, process() as three:
        found = await asyncio.gather(
            *(sw.start("bounded", n) for n in range(8) for sw in (one, two, three)),
            return_exceptions=True,
        )
        assert Counter(type(each).__name__ for each in found) == {"RunHandle": 5, "QueueFull": 19}
        assert len((await one.list_runs()).items) == 5


async def test_a_policy_bounds_the_queue_and_triggers_list_what_it_refused(
    world: World, clock: FakeClock
) -> None:
    wait = {"id": "a", "type": "wait_event", "config": {"event": "go"}}
    document = {
        "name": "few", "nodes": [wait],
        "policy": {"max_concurrent_runs": 1, "max_queued_runs": 1},
        "triggers": [{"id": "t", "type": "event", "event": "news"}],
    }  # fmt: skip
    async with world([]) as sw:
        await sw.definitions.publish(document)
        for _ in range(2):
            await sw.start("few")
        await sw.emit("news", 1)
        async with sw.housekeeping():
            while not (refusals := await sw.triggers.refusals("few/t")):
                await asyncio.sleep(0.001)
        assert refusals[0].code == "queue_full"


async def test_a_bound_of_a_queue_that_cannot_be_is_refused(world: World) -> None:
    for most in (-1, True, "1"):
        with pytest.raises(InvalidInput, match="max_queued_runs"):
            workflow(max_concurrent_runs=1, max_queued_runs=most)(bounded.function)
    with pytest.raises(InvalidInput, match="max_concurrent_runs"):
        workflow(max_queued_runs=1)(bounded.function)
    async with world([free]) as sw:
        for options in ({"max_queued_runs": 1}, {"max_queued_runs": -1, "concurrency_key": "k"}):
            with pytest.raises(InvalidInput, match="max_queued_runs"):
                await sw.start("free", **options)
        node = {"id": "a", "type": "transform", "config": {"value": 1}}
        for policy in ({"max_queued_runs": 1}, {"max_queued_runs": -1, "max_concurrent_runs": 1}):
            with pytest.raises(InvalidDefinition, match=r"policy\.max_queued_runs"):
                await sw.definitions.publish({"name": "x", "nodes": [node], "policy": policy})

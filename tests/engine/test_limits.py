"""Limits: how many runs may be active at once, who queues, and who goes next."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from stepwell import workflow
from tests.conftest import World
from tests.engine.support import flowing, until


@workflow
async def hold(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("go")


async def test_max_concurrent_runs_is_exact_and_counts_parked_runs(world: World) -> None:
    @workflow(max_concurrent_runs=2)
    async def limited(ctx: Any, input: Any) -> Any:
        return await ctx.wait_for_event("go")

    async with world([limited]) as one, world([limited]) as two, one.worker(), two.worker():
        runs = [await one.start("limited", n) for n in range(6)]
        for batch in range(3):
            pair = runs[2 * batch : 2 * batch + 2]
            for run in pair:
                await until(one, run.id, "waiting")
            for run in runs[2 * batch + 2 :]:
                assert (await one.get_run(run.id)).status == "pending"
                explanation = await one.explain(run.id)
                assert explanation.code == "slot"
                assert sorted(explanation.details["held_by"]) == sorted(r.id for r in pair)
            for run in pair:
                await two.signal(run.id, "go", batch)
                assert await two.result(run.id) == batch


async def test_limits_are_exact_under_many_workers(world: World) -> None:
    running: dict[str, int] = {}
    most: dict[str, int] = {}

    async def work(name: str) -> None:
        running[name] = running.get(name, 0) + 1
        most[name] = max(most.get(name, 0), running[name])
        await asyncio.sleep(0)
        running[name] -= 1

    @workflow(max_concurrent_runs=3)
    async def limited(ctx: Any, input: Any) -> Any:
        await ctx.step("one", work, "definition")
        await ctx.step("two", work, f"key-{input}")

    async with AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(world([limited])) for _ in range(6)]
        await crowd[0].start_many(
            [
                {"definition": "limited", "input": n % 4, "concurrency_key": f"k{n % 4}"}
                for n in range(60)
            ]
        )
        for one in crowd:
            await stack.enter_async_context(one.worker(concurrency=10))
        while {run.status for run in (await crowd[0].list_runs(limit=100)).items} != {"completed"}:
            await asyncio.sleep(0.001)
    assert most["definition"] <= 3
    assert all(most[f"key-{n}"] == 1 for n in range(4))


async def test_a_key_limits_runs_of_any_definition_that_have_it(world: World) -> None:
    async with world([hold]) as sw, sw.worker():
        first = await sw.start("hold", concurrency_key="tenant")
        second = await sw.start("hold", concurrency_key="tenant")
        wide = await sw.start("hold", concurrency_key="wide", concurrency_limit=2)
        wider = await sw.start("hold", concurrency_key="wide", concurrency_limit=2)
        free = await sw.start("hold")
        for run in (first, wide, wider, free):
            await until(sw, run.id, "waiting")
        assert (await sw.explain(second.id)).code == "slot"
        await sw.cancel(first.id)
        await until(sw, second.id, "waiting")


async def test_queued_runs_start_by_priority_then_order(world: World) -> None:
    order = []

    @workflow(max_concurrent_runs=1)
    async def one_by_one(ctx: Any, input: Any) -> Any:
        order.append(input)
        if input == "first":
            await ctx.wait_for_event("go")

    async with world([one_by_one]) as sw, sw.worker():
        first = await sw.start("one_by_one", "first")
        await until(sw, first.id, "waiting")
        rest = [
            await sw.start("one_by_one", name, priority=priority)
            for name, priority in [("a", 0), ("b", 0), ("urgent", 9)]
        ]
        await sw.signal(first.id, "go")
        await asyncio.gather(*(run.result() for run in rest))
    assert order[0] == "first"
    assert [name for name in order if name != "first"] == ["urgent", "a", "b"]


async def test_a_run_with_two_limits_does_not_hold_up_others(world: World) -> None:
    @workflow(max_concurrent_runs=2)
    async def both(ctx: Any, input: Any) -> Any:
        return await ctx.wait_for_event("go")

    async with world([both]) as sw, sw.worker():
        a = await sw.start("both", concurrency_key="k")
        b = await sw.start("both", concurrency_key="k")  # behind a's key
        c = await sw.start("both", concurrency_key="other")
        d = await sw.start("both")
        await until(sw, a.id, "waiting")
        await until(sw, c.id, "waiting")
        assert (await sw.explain(b.id)).code == "slot"
        assert (await sw.explain(d.id)).code == "slot"
        await sw.signal(c.id, "go")
        await until(sw, d.id, "waiting")  # b cannot use the slot, d can
        await sw.signal(a.id, "go")
        await until(sw, b.id, "waiting")


async def test_recursion_shares_its_parents_slot(world: World) -> None:
    @workflow(max_concurrent_runs=1)
    async def down(ctx: Any, input: Any) -> Any:
        if input == 0:
            return 0
        via = "between" if input == 2 else "down"
        return 1 + await ctx.run_child("child", via, input - 1)

    @workflow
    async def between(ctx: Any, input: Any) -> Any:
        return await ctx.run_child("child", "down", input)

    async with world([down, between]) as sw, sw.worker():
        runs = [await sw.start("down", 4) for _ in range(3)]
        assert await asyncio.gather(*(run.result() for run in runs)) == [4, 4, 4]


async def test_a_raised_limit_lets_queued_runs_go(world: World) -> None:
    def limited(n: int) -> Any:
        @workflow(name="limited", max_concurrent_runs=n)
        async def body(ctx: Any, input: Any) -> Any:
            return await ctx.wait_for_event("go")

        return body

    async with world([limited(1)]) as sw, sw.worker():
        runs = [await sw.start("limited") for _ in range(3)]
        await until(sw, runs[0].id, "waiting")
        assert (await sw.explain(runs[1].id)).code == "slot"
    async with world([limited(3)]) as sw, sw.worker():
        for run in runs:
            await until(sw, run.id, "waiting")


@pytest.mark.parametrize("versions", [(1,), (1, 2), (2, 1)])
async def test_older_versions_do_not_lift_a_limit(
    world: World, clock: Any, versions: tuple[int, ...]
) -> None:
    def version(n: int) -> Any:
        @workflow(name="limited", version=n, max_concurrent_runs=1 if n == 2 else None)
        async def body(ctx: Any, input: Any) -> Any:
            return await ctx.wait_for_event("go")

        return body

    async with world([version(2)]) as sw, sw.worker():
        first, second = [await sw.start("limited") for _ in range(2)]
        await until(sw, first.id, "waiting")
        async with world([version(n) for n in versions]):
            assert (await sw.explain(second.id)).code == "slot"
        async with world([version(3)]), flowing(clock):
            await until(sw, second.id, "waiting")


async def test_the_highest_version_limits_runs_of_all_versions(world: World) -> None:
    def version(n: int, most: int | None) -> Any:
        @workflow(name="limited", version=n, max_concurrent_runs=most)
        async def body(ctx: Any, input: Any) -> Any:
            return await ctx.wait_for_event("go")

        return body

    async with world([version(1, None), version(2, 1)]) as sw, sw.worker():
        first, second = [await sw.start("limited", version=1) for _ in range(2)]
        await until(sw, first.id, "waiting")
        assert (await sw.explain(second.id)).code == "slot"

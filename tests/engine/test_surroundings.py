"""Whom a program inherits from: nobody but its worker, whoever made its run due."""

from __future__ import annotations

import contextvars
from typing import Any

from stepwell import workflow
from tests.conftest import World
from tests.engine.support import double, flowing, until_code

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


@workflow
async def waiter(ctx: Any, input: Any) -> Any:
    await ctx.wait_for_event("go")
    return await ctx.step("own", double, 2), ctx.idempotency_key == ctx.run_id


@workflow
async def started(ctx: Any, input: Any) -> Any:
    return await ctx.step("own", double, 1), ctx.idempotency_key == ctx.run_id


async def test_a_step_function_may_start_runs_emit_events_and_send_signals(
    world: World, clock: Any
) -> None:
    async def launch() -> str:
        await sw.signal(signalled.id, "go")
        await sw.emit("go")
        return (await sw.start("started")).id

    @workflow
    async def launching(ctx: Any, input: Any) -> Any:
        return await ctx.step("launch", launch)

    async with world([launching, started, waiter]) as sw:
        async with sw.worker():
            signalled, told = await sw.start("waiter"), await sw.start("waiter")
            for run in (signalled, told):
                await until_code(sw, run.id, "event")
        # In a new worker, so that no program is in memory that began before.
        async with sw.worker(), flowing(clock):
            run_id = await (await sw.start("launching")).result()
            assert await sw.result(run_id) == [2, True]
            assert await signalled.result() == await told.result() == [4, True]


async def test_a_timer_set_by_a_step_function_is_no_part_of_it(world: World, clock: Any) -> None:
    async def tell() -> None:
        await sw.emit("nobody waits for this")

    @workflow
    async def telling(ctx: Any, input: Any) -> Any:
        await ctx.step("tell", tell)

    @workflow
    async def sleeping(ctx: Any, input: Any) -> Any:
        await ctx.sleep("nap", "3s")
        return await ctx.step("own", double, 2)

    async with world([telling, sleeping]) as sw, sw.worker():
        run = await sw.start("sleeping")
        await until_code(sw, run.id, "sleep")
        clock.advance("2s")  # its program leaves memory
        await (await sw.start("telling")).result()
        async with flowing(clock):
            assert await run.result() == 4


async def test_the_time_at_the_beginning_is_the_same_on_replay(world: World, clock: Any) -> None:
    seen: dict[int, list[str]] = {}

    @workflow
    async def child(ctx: Any, number: int) -> Any:
        seen.setdefault(number, []).append(ctx.now().isoformat())
        await ctx.step("early", double, 1)
        await ctx.sleep("nap", "10s")

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        await ctx.step("before", double, 1)
        for number in range(3):
            await ctx.run_child(f"child {number}", "child", number)

    # One at a time, so that runs are begun where others have ended.
    async with world([parent, child]) as sw, sw.worker(concurrency=1, lease="1h"), flowing(clock):
        await (await sw.start("parent")).result()
    assert all(len(times) == 2 and len(set(times)) == 1 for times in seen.values()), seen


async def test_a_program_sees_the_context_variables_its_worker_was_started_with(
    world: World,
) -> None:
    @workflow
    async def looking(ctx: Any, input: Any) -> Any:
        before = tenant.get()
        tenant.set("a program")
        return before

    token = tenant.set("worker")
    async with world([looking]) as sw, sw.worker():
        tenant.set("whoever starts it")
        for _ in range(2):
            assert await (await sw.start("looking")).result() == "worker"
    tenant.reset(token)

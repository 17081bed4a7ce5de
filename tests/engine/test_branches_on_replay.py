"""Branches of a program on replay: each begins, asks and is answered as it was the first time."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stepwell import workflow
from stepwell.engine.deliveries import Deliveries
from stepwell.engine.turns import Turns
from stepwell.kernel.changes import GROUP_BITS
from tests.conftest import World
from tests.engine.support import echo, eventually, flowing, until


async def lanes(ctx: Any, note: Callable[..., None]) -> None:
    async def lane(name: str) -> None:
        note(name, "begins")
        for number in range(2):
            note(name, await ctx.step("ask", echo, f"{name}{number}"))

    await asyncio.gather(lane("a"), lane("b"))


async def locked(ctx: Any, note: Callable[..., None]) -> None:
    lock = asyncio.Lock()

    async def inside(name: str) -> None:
        await ctx.step("before", echo, name)
        async with lock:
            note(name, await ctx.step("inside", echo, name))

    await asyncio.gather(inside("a"), inside("b"))


async def queued(ctx: Any, note: Callable[..., None]) -> None:
    queue: asyncio.Queue[str] = asyncio.Queue()

    async def put(name: str) -> None:
        await queue.put(await ctx.step("made", echo, name))

    async def take() -> None:
        for _ in range(2):
            note(await ctx.step("taken", echo, await queue.get()))

    async with asyncio.TaskGroup() as group:
        group.create_task(take())
        for name in ("a", "b"):
            group.create_task(put(name))


async def beside(ctx: Any, note: Callable[..., None]) -> None:
    async def background() -> None:
        note("background", await ctx.step("send", echo, "background"))

    task = asyncio.create_task(background())
    note("first", await ctx.step("first", echo, 1))
    note("program", await ctx.step("send", echo, "program"))
    await task


async def patched(ctx: Any, note: Callable[..., None]) -> None:
    async def branch(number: int) -> None:
        note(number, await ctx.patched("change"))
        note(number, await ctx.step("ask", echo, number))

    await asyncio.gather(*(branch(number) for number in range(3)))


async def patched_beside(ctx: Any, note: Callable[..., None]) -> None:
    async def background() -> None:
        note("background", await ctx.step("ask", echo, "background"))

    await ctx.step("first", echo, 0)
    task = asyncio.create_task(background())
    await ctx.patched("change")
    note("program", await ctx.step("ask", echo, "program"))
    await task


async def deep(ctx: Any, note: Callable[..., None]) -> None:
    async def down(levels: int) -> None:
        if levels:
            await asyncio.gather(down(levels - 1))
        else:
            note("bottom", await ctx.step("ask", echo, "bottom"))

    await ctx.step("first", echo, 0)
    task = asyncio.create_task(down(8))
    await ctx.emit("quick")
    for number in range(3):
        note("top", await ctx.step("ask", echo, number))
    await task


@pytest.mark.parametrize("program", [lanes, locked, queued, beside, patched, patched_beside, deep])
async def test_branches_see_again_what_they_saw(world: World, program: Any) -> None:
    traces: list[list[Any]] = []

    @workflow
    async def branching(ctx: Any, input: Any) -> Any:
        trace: list[Any] = []
        traces.append(trace)
        await program(ctx, lambda *seen: trace.append(seen))
        await ctx.wait_for_event("go")
        return "went"

    async with world([branching]) as sw:
        run = await sw.start("branching")
        async with sw.worker():
            await until(sw, run.id, "waiting")
        async with sw.worker():
            await sw.signal(run.id, "go")
            assert await run.result() == "went"
    assert len(traces) >= 2
    assert all(trace == traces[0] for trace in traces)


async def test_a_child_that_ended_meanwhile_goes_to_the_branch_that_waited(world: World) -> None:
    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        async def lane(name: str) -> list[Any]:
            return [await ctx.run_child("work", "child", f"{name}{n}") for n in range(2)]

        return await asyncio.gather(lane("a"), lane("b"))

    ran: list[str] = []

    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        await ctx.step("ran", ran.append, input)
        if input.endswith("0"):
            await ctx.wait_for_event("go")
        return input

    async with world([child]) as children, children.worker():
        async with world([parent, child]) as sw:
            async with sw.worker():
                run = await sw.start("parent")
                await until(sw, run.id, "waiting")
                await eventually(lambda: len(ran) == 2)
            runs = {each.input: each.id for each in (await sw.list_runs(definition="child")).items}
            await until(sw, runs["a0"], "waiting")
            await children.signal(runs["a0"], "go")
            await until(sw, runs["a0"], "completed")
            async with sw.worker():
                await eventually(lambda: "a1" in ran)
                await sw.signal(runs["b0"], "go")
                assert await run.result() == [["a0", "a1"], ["b0", "b1"]]
    assert sorted(ran) == sorted(["a0", "b0", "a1", "b1"])


async def test_of_two_waits_that_ended_meanwhile_one_comes_first_for_good(world: World) -> None:
    paid: list[str] = []
    stopped = asyncio.Event()

    async def slow() -> None:
        await stopped.wait()

    @workflow
    async def choose(ctx: Any, input: Any) -> Any:
        tasks = [
            asyncio.create_task(ctx.wait_for_event("a")),
            asyncio.create_task(ctx.step("slow", slow)),
            asyncio.create_task(ctx.wait_for_event("c")),
        ]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = [name for name, task in zip("abc", tasks, strict=True) if task in done]
        await ctx.step(f"pay-{first}", paid.append, str(first))
        await ctx.wait_for_event("go")
        return first

    async with world([choose]) as sw:
        async with sw.worker(grace=0):
            run = await sw.start("choose")
            while len(await sw.steps(run.id)) < 3:
                await asyncio.sleep(0.001)
        await sw.signal(run.id, "a")
        await sw.signal(run.id, "c")
        async with sw.worker(grace=0):
            await eventually(lambda: paid)
            stopped.set()
            await until(sw, run.id, "waiting")
        async with sw.worker():
            await sw.signal(run.id, "go")
            await run.result()
    assert len(paid) == 1


async def test_threads_of_a_plain_workflow_get_their_own_results_again(world: World) -> None:
    executions: list[list[str]] = []

    @workflow
    def threads(ctx: Any, input: Any) -> Any:
        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(ctx.step, name, echo, name) for name in "abc"]
            executions.append([each.result() for each in asked])
        ctx.wait_for_event("go")
        return executions[-1]

    async with world([threads]) as sw:
        run = await sw.start("threads")
        async with sw.worker():
            await until(sw, run.id, "waiting")
        async with sw.worker():
            await sw.signal(run.id, "go")
            assert await run.result() == ["a", "b", "c"]
    assert len(executions) >= 2


async def test_threads_are_answered_in_the_order_of_the_journal() -> None:
    first, second, third = (number << GROUP_BITS for number in (1, 2, 3))
    deliveries = Deliveries(Turns(), [first, second, third])
    deliveries.threaded = True
    answered: list[int] = []

    async def ask(position: int) -> None:
        deliveries.begins(None)
        turn = deliveries.replayed(position)
        assert turn is not None
        await turn
        answered.append(position)
        if position == first:  # a thread that comes to its operation late
            await ask(second)

    await asyncio.gather(ask(third), ask(first))
    assert answered == [first, second, third]


async def test_tasks_left_behind_by_a_program_that_leaves_memory_are_no_error(
    world: World, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow
    async def nested(ctx: Any, input: Any) -> Any:
        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.sleep("a", "1h"))
                group.create_task(ctx.sleep("b", "1h"))

        tasks = [asyncio.create_task(both()), asyncio.create_task(both())]
        await asyncio.wait(tasks)

    async with world([nested]) as sw, sw.worker():
        run = await sw.start("nested")
        await until(sw, run.id, "waiting")
        async with flowing(clock, "2s"):
            await run.result()
    gc.collect()  # asyncio complains when a task is collected: here, after the worker is gone
    assert [record.name for record in caplog.records if record.levelno >= logging.ERROR] == []

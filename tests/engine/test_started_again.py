"""Children that a retry starts again, in the place where they were started the first time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from stepwell import NonRetryable, Retry, workflow
from tests.conftest import World
from tests.engine.support import Gate, echo, eventually, until

NEVER = Retry(attempts=1)
# A child that never completes.
KID = {
    "name": "kid", "nodes": [{"id": "x", "type": "transform", "config": {"value": "@input.no"}}]
}  # fmt: skip


def failing_until(mended: Callable[[], bool]) -> Callable[[], str]:
    def work() -> str:
        if not mended():
            raise NonRetryable("broken")
        return "fine"

    return work


async def failed_with_its_child(sw: Any, run: Any) -> None:
    await until(sw, run.id, "failed")
    [child] = (await sw.list_runs(definition="kid")).items
    await until(sw, child.id, "failed")


async def test_a_child_that_cannot_be_started_again_keeps_its_place_for_the_next_retry(
    world: World,
) -> None:
    calls: list[str] = []
    mended = False

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        seen: list[Any] = []

        async def ask(name: str) -> None:
            def answer() -> str:
                calls.append(name)
                return name

            seen.append((name, await ctx.step("ask", answer)))

        async def starting() -> None:
            await ctx.start_child("child", "kid")
            await ask("a")

        async def later() -> None:
            await ctx.step("first", echo, None)
            await ctx.step("second", echo, None)
            await ask("b")

        async def caught() -> None:
            calls.append("caught")
            raise LookupError("caught")

        await asyncio.gather(starting(), later())
        try:
            await ctx.step("caught", caught, retry=NEVER)
        except LookupError:
            seen.append("caught")
        await ctx.step("broken", failing_until(lambda: mended))
        return seen

    async with world([parent]) as sw, sw.worker():
        await sw.definitions.publish(KID)
        run = await sw.start("parent")
        await failed_with_its_child(sw, run)
        mended = True
        await sw.definitions.set_enabled("kid", False)
        refused = await sw.retry(run.id)
        error = (await until(sw, refused.id, "failed")).error
        assert (error.type, error.step) == ("definition_disabled", "child")
        await sw.definitions.set_enabled("kid", True)
        calls.clear()
        seen = await (await sw.retry(refused.id)).result()
        assert sorted(seen[:2]) == [["a", "a"], ["b", "b"]]
        assert calls == []


async def test_a_node_behind_a_run_that_cannot_be_started_again_does_not_spoil_the_retry(
    world: World,
) -> None:
    mended = False

    def work() -> str:
        return failing_until(lambda: mended)()

    graph = {
        "name": "graph",
        "nodes": [
            {"id": "start", "type": "run", "config": {"definition": "kid", "wait": False}},
            {"id": "after", "type": "transform", "config": {"value": 1}},
            {"id": "end", "type": "python", "config": {"function": "work"}},
        ],
        "edges": [{"source": "start", "target": "after"}, {"source": "after", "target": "end"}],
    }
    async with world([], functions=[work]) as sw, sw.worker():
        await sw.definitions.publish(KID)
        await sw.definitions.publish(graph)
        run = await sw.start("graph")
        await failed_with_its_child(sw, run)
        mended = True
        await sw.definitions.set_enabled("kid", False)
        refused = await sw.retry(run.id)
        error = (await until(sw, refused.id, "failed")).error
        assert (error.type, error.step) == ("definition_disabled", "start")
        await sw.definitions.set_enabled("kid", True)
        assert await (await sw.retry(refused.id)).result() == "fine"


async def test_a_timer_that_runs_out_before_a_child_is_started_again_comes_too_early(
    world: World,
) -> None:
    seen: list[list[str]] = []
    mended = False
    too_early = asyncio.Event()

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        mine: list[str] = []
        seen.append(mine)
        if len(seen) > 1:
            gate.shut()

        async def timed(name: str, operation: Any) -> None:
            task = asyncio.ensure_future(operation)
            if len(seen) > 1:
                # Whoever sees it first lets it go on.
                await eventually(lambda: gate.waiting or too_early.is_set())
                too_early.set()
                task.cancel()  # as a timer would
                asyncio.get_running_loop().call_soon(gate.open)
            await asyncio.wait([task])
            mine.append(f"{name} {'given up' if task.cancelled() else 'done'}")

        await asyncio.gather(
            timed("start", ctx.start_child("child", "kid")), timed("patch", ctx.patched("new"))
        )
        await ctx.step("broken", failing_until(lambda: mended))

    async with world([parent]) as sw:
        gate = Gate(sw.store)
        async with sw.worker():
            await sw.definitions.publish(KID)
            run = await sw.start("parent")
            await failed_with_its_child(sw, run)
            mended = True
            await (await sw.retry(run.id)).result()
    assert [sorted(each) for each in seen] == [["patch done", "start done"]] * 2


async def test_a_step_that_is_called_like_the_result_of_a_child_is_none(world: World) -> None:
    mended = False

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        await ctx.step("child.result", echo, 1)
        await ctx.start_child("child", "kid")
        return await ctx.step("broken", failing_until(lambda: mended))

    async with world([parent]) as sw, sw.worker():
        await sw.definitions.publish(KID)
        run = await sw.start("parent")
        await failed_with_its_child(sw, run)
        mended = True
        assert await (await sw.retry(run.id)).result() == "fine"
        assert len((await sw.list_runs(definition="kid")).items) == 2

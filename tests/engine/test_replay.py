"""Replay: the program takes the same turns again, whatever it waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import NonRetryable, RunFailed, workflow
from stepwell.testing.crash import vanish
from tests.conftest import World
from tests.engine.support import Gate, double, echo, eventually, flowing, until


async def test_waits_and_steps_and_sleeps_can_be_gathered(world: World, clock: Any) -> None:
    @workflow
    async def many(ctx: Any, input: Any) -> Any:
        return await asyncio.gather(
            ctx.step("step", double, 2),
            ctx.wait_for_event("event"),
            ctx.sleep("sleep", "1h"),
            ctx.run_child("child", "leaf", {"n": 3}),
            ctx.wait_for_event("never", timeout="30m"),
        )

    @workflow
    async def leaf(ctx: Any, input: Any) -> Any:
        await ctx.sleep("nap", "10m")
        return input["n"]

    async with world([many, leaf]) as sw:
        async with sw.worker():
            run = await sw.start("many")
            await until(sw, run.id, "waiting")
            await sw.signal(run.id, "event", "hello")
        clock.advance("15m")
        async with sw.worker():
            await asyncio.sleep(0)
            await until(sw, run.id, "waiting")
        clock.advance("2h")
        async with sw.worker():
            assert await run.result() == [4, "hello", None, 3, None]


async def test_which_of_several_came_first_is_the_same_on_replay(world: World, clock: Any) -> None:
    winners: list[list[str]] = []

    @workflow
    async def race(ctx: Any, input: Any) -> Any:
        names = ["a", "b", "c"]
        tasks = {asyncio.create_task(ctx.wait_for_event(name)): name for name in names}
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = sorted(tasks[task] for task in done)
        for task in pending:
            task.cancel()
        winners.append(first)
        later = await ctx.wait_for_event("a")
        return [first, later]

    async with world([race]) as sw:
        async with sw.worker():
            run = await sw.start("race")
            await until(sw, run.id, "waiting")
            await sw.signal(run.id, "c", "c!")
            await eventually(lambda: winners)
            while (await sw.explain(run.id)).details.get("step") != "a#2":
                await asyncio.sleep(0.001)
        async with sw.worker():
            # The wait for a that lost the race must not swallow this.
            await sw.signal(run.id, "a", "a!")
            assert await run.result() == [["c"], "a!"]
    assert len(winners) >= 2
    assert all(winner == ["c"] for winner in winners)


async def test_the_order_of_parallel_results_is_the_same_on_replay(world: World) -> None:
    orders: list[list[int]] = []
    gates = [asyncio.Event() for _ in range(5)]

    async def gated(i: int) -> int:
        await gates[i].wait()
        return i

    @workflow
    async def fan(ctx: Any, input: Any) -> Any:
        order: list[int] = []

        async def branch(i: int) -> None:
            order.append(await ctx.step(f"s{i}", gated, i))

        await asyncio.gather(*(branch(i) for i in range(5)))
        orders.append(order)
        await ctx.wait_for_event("go")
        return order

    async with world([fan]) as sw:
        async with sw.worker():
            run = await sw.start("fan")
            for i in (3, 1, 4, 0, 2):
                await until(sw, run.id, "running")
                gates[i].set()
                while len([s for s in await sw.steps(run.id) if s.status == "completed"]) < (
                    [3, 1, 4, 0, 2].index(i) + 1
                ):
                    await asyncio.sleep(0.001)
            await until(sw, run.id, "waiting")
        async with sw.worker():
            await sw.signal(run.id, "go")
            assert await run.result() == [3, 1, 4, 0, 2]
    assert orders[0] == orders[-1] == [3, 1, 4, 0, 2]


async def test_user_code_cannot_swallow_a_suspension(world: World) -> None:
    tries = []

    @workflow
    async def stubborn(ctx: Any, input: Any) -> Any:
        while True:
            try:
                tries.append(1)
                return await ctx.wait_for_event("go")
            except Exception:
                tries.append("swallowed")

    async with world([stubborn]) as sw:
        async with sw.worker():
            run = await sw.start("stubborn")
            await until(sw, run.id, "waiting")
        async with sw.worker():
            await sw.signal(run.id, "go", "ok")
            assert await run.result() == "ok"
    assert "swallowed" not in tries


async def test_a_change_of_code_is_safe_with_patched(world: World) -> None:
    @workflow(name="evolving")
    async def old(ctx: Any, input: Any) -> Any:
        await ctx.step("a", echo, 1)
        await ctx.wait_for_event("go")
        return "old way"

    @workflow(name="evolving")
    async def new(ctx: Any, input: Any) -> Any:
        await ctx.step("a", echo, 1)
        if await ctx.patched("more"):
            await ctx.step("b", echo, 2)
        await ctx.wait_for_event("go")
        return "new way" if await ctx.patched("more") else "old way"

    async with world([old]) as sw, sw.worker():
        before = await sw.start("evolving")
        await until(sw, before.id, "waiting")
    async with world([new]) as sw:
        async with sw.worker():
            after = await sw.start("evolving")
            await until(sw, after.id, "waiting")
        async with sw.worker():
            await sw.signal(before.id, "go")
            await sw.signal(after.id, "go")
            assert await sw.result(before.id) == "old way"
            assert await sw.result(after.id) == "new way"


async def test_a_journal_that_does_not_fit_the_code_is_named(world: World) -> None:
    @workflow(name="changed")
    async def old(ctx: Any, input: Any) -> Any:
        await ctx.step("thing", echo, 1)
        await ctx.wait_for_event("go")

    @workflow(name="changed")
    async def new(ctx: Any, input: Any) -> Any:
        await ctx.sleep("thing", 1)

    async with world([old]) as sw, sw.worker():
        run = await sw.start("changed")
        await until(sw, run.id, "waiting")
    async with world([new]) as sw, sw.worker():
        await sw.signal(run.id, "go")
        with pytest.raises(RunFailed) as failed:
            await sw.result(run.id)
        assert failed.value.error.type == "journal_mismatch"


async def test_a_program_parked_too_soon_goes_on_by_itself(world: World, clock: Any) -> None:
    """One branch waits durably while another is busy with something nobody can see."""
    release = asyncio.Event()
    passes: list[int] = []

    @workflow
    async def busy(ctx: Any, input: Any) -> Any:
        passes.append(1)
        waiting = asyncio.create_task(ctx.wait_for_event("never"))
        await release.wait()
        got = await ctx.step("after", echo, "done")
        waiting.cancel()
        return got

    @workflow
    async def busy_to_the_end(ctx: Any, input: Any) -> Any:
        waiting = asyncio.create_task(ctx.wait_for_event("never"))
        await release.wait()
        waiting.cancel()
        return "done"

    async with world([busy, busy_to_the_end]) as sw, sw.worker():
        runs = [await sw.start("busy"), await sw.start("busy_to_the_end")]
        for run in runs:
            await until(sw, run.id, "waiting")
        release.set()
        for run in runs:
            assert await run.result() == "done"
        assert passes == [1]


@pytest.mark.parametrize("once", [True, False])
async def test_patched_keeps_a_run_on_its_way_that_was_stopped_inside_a_step(
    world: World, clock: Any, once: bool
) -> None:
    calls: list[str] = []

    async def charge(way: str) -> str:
        calls.append(way)
        if len(calls) == 1:
            await asyncio.Event().wait()
        return way

    @workflow(name="pay")
    async def before(ctx: Any, input: Any) -> Any:
        return await ctx.step("charge", charge, "old", once=once, on_unknown="retry")

    @workflow(name="pay")
    async def after(ctx: Any, input: Any) -> Any:
        if await ctx.patched("better"):
            return await ctx.step("charge-better", charge, "new")
        return await ctx.step("charge", charge, "old", once=once, on_unknown="retry")

    async with world([before]) as sw, sw.worker(grace=0):
        run = await sw.start("pay")
        await eventually(lambda: calls)
        clock.advance("1s")
        while not await sw.steps(run.id):
            await asyncio.sleep(0.001)
    async with world([after]) as sw, sw.worker():
        assert await sw.result(run.id) == "old"
        assert await (await sw.start("pay")).result() == "new"
    assert calls == ["old", "old", "new"]


async def test_an_interrupted_step_is_given_the_same_time_again(world: World, clock: Any) -> None:
    seen: list[str] = []

    async def note(at: str) -> None:
        seen.append(at)
        if len(seen) == 1:
            await asyncio.Event().wait()

    @workflow
    async def timed(ctx: Any, input: Any) -> Any:
        await ctx.step("note", note, ctx.now().isoformat())

    async with world([timed]) as sw:
        async with sw.worker() as victim:
            run = await sw.start("timed")
            await eventually(lambda: seen)
            vanish(victim)
        async with sw.worker(), flowing(clock):
            await run.result()
    assert len(seen) == 2
    assert seen[0] == seen[1]


@pytest.mark.parametrize("what", ["time", "gave_up", "patched"])
@pytest.mark.parametrize("steps", [1, 2])
async def test_what_a_program_decided_is_durable_before_any_step_acts_on_it(
    world: World, what: str, steps: int
) -> None:
    calls: list[int] = []

    @workflow
    async def hasty(ctx: Any, input: Any) -> Any:
        if what == "time":
            gate.shut()
            ctx.now()
        elif what == "patched":
            gate.shut()
        else:
            waiting = asyncio.create_task(ctx.wait_for_event("go"))
            await ctx.step("before", echo, 0)
            gate.shut()
            waiting.cancel()
            await asyncio.wait([waiting])
        await asyncio.gather(*(act(ctx, n) for n in range(steps)))

    async def act(ctx: Any, n: int) -> None:
        if what == "patched":
            assert await ctx.patched("change")
        await ctx.step(f"act-{n}", calls.append, n)

    async with world([hasty]) as sw, sw.worker():
        gate = Gate(sw.store)
        run = await sw.start("hasty")
        await eventually(lambda: gate.waiting)
        for _ in range(100):
            await asyncio.sleep(0)
        assert calls == []
        gate.open()
        await run.result()
    assert sorted(calls) == list(range(steps))


async def test_what_came_one_after_the_other_does_so_on_replay(world: World) -> None:
    seen: list[list[list[str]]] = []
    gates = {name: asyncio.Event() for name in ("fast", "slow")}

    async def gated(name: str) -> None:
        await gates[name].wait()

    @workflow
    async def watch(ctx: Any, input: Any) -> Any:
        tasks = {asyncio.create_task(ctx.step(name, gated, name)): name for name in gates}
        groups: list[list[str]] = []
        pending = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            groups.append(sorted(tasks[task] for task in done))
        seen.append(groups)
        await ctx.wait_for_event("go")

    async with world([watch]) as sw:
        async with sw.worker():
            run = await sw.start("watch")
            gates["fast"].set()
            while not [s for s in await sw.steps(run.id) if s.status == "completed"]:
                await asyncio.sleep(0.001)
            gates["slow"].set()
            await until(sw, run.id, "waiting")
        async with sw.worker():
            await sw.signal(run.id, "go")
            await run.result()
    assert len(seen) >= 2
    assert all(groups == [["fast"], ["slow"]] for groups in seen)


@pytest.mark.parametrize("plain", [False, True])
async def test_a_retry_does_not_wait_for_what_the_run_did_because_of_its_failure(
    world: World, plain: bool
) -> None:
    mended = False

    def charge() -> str:
        if not mended:
            raise NonRetryable("declined")
        return "charged"

    @workflow
    async def saga(ctx: Any, input: Any) -> Any:
        try:
            await ctx.step("charge", charge)
        except NonRetryable:
            await ctx.step("release", echo, None)
            raise
        return await ctx.patched("ship faster")

    @workflow
    def plain_saga(ctx: Any, input: Any) -> Any:
        try:
            ctx.step("charge", charge)
        except NonRetryable:
            ctx.step("release", echo, None)
            raise
        return ctx.patched("ship faster")

    async with world([saga, plain_saga]) as sw, sw.worker():
        run = await sw.start("plain_saga" if plain else "saga")
        await until(sw, run.id, "failed")
        mended = True
        assert await (await sw.retry(run.id)).result() is True

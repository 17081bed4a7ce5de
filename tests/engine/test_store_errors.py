"""Errors of the store: what a program hears of, and what its run lives through."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from stepwell import RunFailed, workflow
from stepwell.errors import ChangeRefused
from stepwell.kernel.changes import EmitEvent, EndRun, OpenWait, RecordStep, ResumeRun
from tests.conftest import World
from tests.engine.support import echo, flowing, until, until_code


async def test_a_run_whose_end_the_store_will_not_have_fails(world: World) -> None:
    @workflow
    async def odd(ctx: Any, input: Any) -> Any:
        return "odd"

    async with world([odd]) as sw, sw.worker():
        real = sw.store.commit

        async def commit(batch: Any) -> Any:
            if any(type(change) is EndRun and change.output == '"odd"' for change in batch):
                raise ChangeRefused("no place for that")
            return await real(batch)

        sw.store.commit = commit
        run = await sw.start("odd")
        with pytest.raises(RunFailed, match="no place for that") as caught:
            await run.result()
        assert caught.value.error.type == "change_refused"


@pytest.mark.parametrize("what", [EndRun, RecordStep, OpenWait])
async def test_a_passing_error_of_the_store_does_not_fail_a_run(
    world: World, clock: Any, what: type[Any]
) -> None:
    @workflow
    async def fine(ctx: Any, input: Any) -> Any:
        await ctx.sleep("nap", "1s")
        return await ctx.step("echo", echo, "fine")

    async with world([fine]) as sw, sw.worker(), flowing(clock):
        real, errors = sw.store.commit, [OSError("who knows"), OSError("who knows")]

        async def commit(batch: Any) -> Any:
            if errors and any(type(change) is what for change in batch):
                raise errors.pop()
            return await real(batch)

        sw.store.commit = commit
        assert await (await sw.start("fine")).result() == "fine"
    assert errors == []


async def test_an_error_of_the_store_that_stays_fails_the_run(world: World, clock: Any) -> None:
    calls: list[int] = []

    @workflow
    async def doomed(ctx: Any, input: Any) -> Any:
        await ctx.step("call", calls.append, 1)

    async with world([doomed]) as sw, sw.worker(), flowing(clock):
        real = sw.store.commit

        async def commit(batch: Any) -> Any:
            if any(type(change) is RecordStep and change.key == "call" for change in batch):
                raise OSError("always")
            return await real(batch)

        sw.store.commit = commit
        with pytest.raises(RunFailed, match="always"):
            await (await sw.start("doomed")).result()
    assert len(calls) == 3


async def test_errors_of_the_store_do_not_add_up_while_a_run_gets_on(
    world: World, clock: Any
) -> None:
    broken = ["step 1", "step 3", "step 5", "step 7"]

    @workflow
    async def long(ctx: Any, input: Any) -> Any:
        for number in range(9):
            await ctx.step(f"step {number}", echo, number)
        return "fine"

    async with world([long]) as sw, sw.worker(), flowing(clock):
        real = sw.store.commit

        async def commit(batch: Any) -> Any:
            if any(type(change) is RecordStep and change.key in broken[:1] for change in batch):
                del broken[0]
                raise OSError("who knows")
            return await real(batch)

        sw.store.commit = commit
        assert await (await sw.start("long")).result() == "fine"
    assert broken == []


async def test_a_program_that_goes_on_beside_its_waits_lives_through_an_error_of_the_store(
    world: World,
) -> None:
    go_on = asyncio.Event()
    errors = [OSError("who knows")]

    @workflow
    async def beside(ctx: Any, input: Any) -> Any:
        async def branch() -> Any:
            await go_on.wait()
            await ctx.emit("go", "gone")

        task = asyncio.create_task(branch())
        heard = await ctx.wait_for_event("go")
        await task
        return heard

    async with world([beside]) as sw, sw.worker():
        real = sw.store.commit

        async def commit(batch: Any) -> Any:
            if errors and any(type(change) is ResumeRun for change in batch):
                raise errors.pop()
            return await real(batch)

        sw.store.commit = commit
        run = await sw.start("beside")
        await until(sw, run.id, "waiting")
        go_on.set()
        assert await run.result() == "gone"
    assert errors == []


@pytest.mark.parametrize("how", ["run_child", "start_child"])
async def test_a_passing_error_in_looking_up_a_definition_does_not_fail_the_run(
    world: World, clock: Any, how: str
) -> None:
    errors = [OSError("who knows"), OSError("who knows")]

    @workflow
    async def elsewhere(ctx: Any, input: Any) -> Any:
        return "done"

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        if how == "run_child":
            return await ctx.run_child("child", "elsewhere")
        return await (await ctx.start_child("child", "elsewhere")).result()

    async with world([elsewhere]) as other, world([parent]) as sw, other.worker(), sw.worker():
        real = sw.store.version

        async def version(*args: Any) -> Any:
            if errors:
                raise errors.pop()
            return await real(*args)

        sw.store.version = version
        async with flowing(clock):
            assert await (await sw.start("parent")).result() == "done"
    assert errors == []


async def test_what_was_decided_stays_though_the_change_after_it_was_refused(
    world: World, clock: Any
) -> None:
    seen: list[str] = []

    @workflow
    async def deciding(ctx: Any, input: Any) -> Any:
        now = ctx.now().isoformat()
        with contextlib.suppress(ChangeRefused):
            await ctx.emit("refused")
        await ctx.step("act", seen.append, now)
        await ctx.wait_for_event("go")
        return now

    async with world([deciding]) as sw:
        real = sw.store.commit

        async def commit(batch: Any) -> Any:
            if any(type(change) is EmitEvent for change in batch):
                raise ChangeRefused("no place for that")
            return await real(batch)

        sw.store.commit = commit
        async with sw.worker():
            run = await sw.start("deciding")
            await until_code(sw, run.id, "event")
        clock.advance("1s")
        sw.store.commit = real
        async with sw.worker():
            await sw.signal(run.id, "go")
            assert [await run.result()] == seen


async def test_no_step_acts_on_a_decision_that_was_refused(world: World, clock: Any) -> None:
    acted: list[str] = []

    @workflow
    async def deciding(ctx: Any, input: Any) -> Any:
        now = ctx.now().isoformat()
        with contextlib.suppress(ChangeRefused):
            await ctx.emit("done")
        await ctx.step("act", acted.append, now)

    async with world([deciding]) as sw, sw.worker():
        real = sw.store.commit

        async def commit(batch: Any) -> Any:
            if any(type(change) is RecordStep and change.kind == "now" for change in batch):
                raise ChangeRefused("no place for that")
            return await real(batch)

        sw.store.commit = commit
        with pytest.raises(RunFailed, match="no place for that"):
            await (await sw.start("deciding")).result()
    assert acted == []

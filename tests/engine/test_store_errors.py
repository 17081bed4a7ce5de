"""Errors of the store: what a program hears of, and what its run lives through."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import RunFailed, workflow
from stepwell.errors import ChangeRefused
from stepwell.kernel.changes import EndRun, OpenWait, RecordStep
from tests.conftest import World
from tests.engine.support import echo, flowing


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

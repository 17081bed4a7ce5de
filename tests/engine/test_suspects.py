"""Many runs in workers that died again and again: the guilty one fails, the others get on soon."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import RunFailed, workflow
from stepwell.kernel.crashes import CRASH_LIMIT, SUSPECT
from stepwell.testing.crash import vanish
from tests.conftest import World
from tests.engine.support import eventually, flowing

LEASE = "5m"
MANY = 40


async def test_many_that_died_without_their_fault_need_not_be_waited_for(
    world: World, clock: Any
) -> None:
    begun: set[str] = set()
    calm = asyncio.Event()

    @workflow
    async def work(ctx: Any, input: Any) -> Any:
        async def wait() -> None:
            begun.add(ctx.run_id)
            await calm.wait()

        await ctx.step("wait", wait)
        return input

    async with world([work]) as sw:
        runs = [await sw.start("work", n) for n in range(MANY)]
        for _ in range(SUSPECT):
            begun.clear()
            async with sw.worker(lease=LEASE) as worker:
                await eventually(lambda: len(begun) == MANY)
                vanish(worker)
            clock.advance("6m")
        calm.set()
        async with sw.worker(lease=LEASE):  # and no time passes
            assert [await run.result() for run in runs] == list(range(MANY))


async def test_the_guilty_one_among_many_that_are_called_up_together_is_found(
    world: World, clock: Any
) -> None:
    struck = asyncio.Event()
    strikes: list[int] = []

    @workflow
    async def work(ctx: Any, input: Any) -> Any:
        async def strike() -> None:
            if input == MANY - 1:
                strikes.append(1)
                struck.set()
            if input == MANY - 1 or len(strikes) < SUSPECT:
                await asyncio.Event().wait()

        await ctx.step("strike", strike)
        return input

    async with world([work]) as sw:
        runs = [await sw.start("work", n) for n in range(MANY)]
        for _ in range(CRASH_LIMIT):
            struck.clear()
            async with sw.worker(lease=LEASE) as worker, flowing(clock, "0.1s"):
                await struck.wait()
                vanish(worker)
            clock.advance("6m")
        async with sw.worker(lease=LEASE), flowing(clock, "0.1s"):
            with pytest.raises(RunFailed) as failed:
                await runs.pop().result()
            assert failed.value.error.type == "crash_loop"
            assert [await run.result() for run in runs] == list(range(MANY - 1))
    assert len(strikes) == CRASH_LIMIT

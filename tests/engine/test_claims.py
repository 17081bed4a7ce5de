"""Claims: what a worker takes, and what it must not take from itself."""

from __future__ import annotations

import asyncio
from typing import Any

from stepwell import workflow
from stepwell.errors import ChangeBlocked
from stepwell.kernel.changes import ClaimRuns
from tests.conftest import World
from tests.engine.support import eventually, flowing, until


async def test_a_claim_that_was_put_off_does_not_take_a_run_that_was_resumed_since(
    world: World, clock: Any
) -> None:
    go, free = asyncio.Event(), asyncio.Event()
    begun: list[str] = []

    @workflow
    async def busy(ctx: Any, input: Any) -> Any:
        begun.append(ctx.run_id)
        waiting = asyncio.create_task(ctx.wait_for_event("never"))
        await go.wait()
        result = await ctx.step("after", free.wait)
        waiting.cancel()
        return result

    async with world([busy]) as sw, sw.worker(lease="1d") as worker:
        run = await sw.start("busy")
        await until(sw, run.id, "waiting")
        real, refused = sw.store.commit, []

        async def commit(batch: Any) -> Any:
            if not refused and any(type(change) is ClaimRuns for change in batch):
                refused.append("claim")
                raise ChangeBlocked("somebody holds the workers")
            return await real(batch)

        sw.store.commit = commit
        clock.advance("2s")  # the next claim sweeps
        worker.claim_soon()
        await eventually(lambda: refused)
        go.set()
        await until(sw, run.id, "running")
        clock.advance("1.1s")  # the claim is tried again
        await sw.get_run(run.id)  # it is through
        free.set()
        async with flowing(clock, "0.01s"):
            assert await run.result() is True
    assert begun == [run.id]

"""What is late ends on time, also while there is no worker."""

from __future__ import annotations

from typing import Any

from stepwell import workflow
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import flowing, until


@workflow
async def idle(ctx: Any, input: Any) -> Any:
    return input


async def test_a_run_past_its_deadline_ends_without_any_worker(
    world: World, clock: FakeClock
) -> None:
    async with world([idle]) as sw, sw.housekeeping():
        run = await sw.start("idle", 1, deadline="10s")
        queued = await sw.start("idle", 1, ttl="20s")
        async with flowing(clock, "0.5s"):
            assert (await until(sw, run.id, "timed_out")).error.type == "deadline_exceeded"
            await until(sw, queued.id, "timed_out")

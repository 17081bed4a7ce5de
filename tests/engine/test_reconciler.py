"""What is late ends on time, also while there is no worker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import workflow
from stepwell.errors import GateClosed
from stepwell.testing.clock import FakeClock
from stepwell.testing.crash import vanish
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


async def test_a_gate_whose_time_is_up_is_closed_without_any_worker(
    world: World, clock: FakeClock
) -> None:
    asks = {
        "name": "asks",
        "nodes": [
            {"id": "g", "type": "approval",
             "config": {"prompt": "May I?", "timeout": "1h", "on_timeout": "approve"}},
        ],
        "output": "@g.decision",
    }  # fmt: skip
    async with world([]) as sw:
        await sw.definitions.publish(asks)
        run = await sw.start("asks", {})
        async with sw.worker(lease="1h"):
            await until(sw, run.id, "waiting")
        (gate,) = await sw.gates.list()
        async with sw.housekeeping():
            clock.advance("59m")
            assert (await sw.gates.get(gate.id)).status == "open"
            async with flowing(clock, "1s"):
                while await sw.gates.list():
                    await asyncio.sleep(0.001)
        assert (await sw.gates.get(gate.id)).status == "expired"
        with pytest.raises(GateClosed):
            await sw.gates.decide(gate.id, "deny", by="ann")
        async with sw.worker(lease="1h"):
            assert await run.result() == "approve"


async def test_what_a_dead_worker_held_is_free_without_any_other(
    world: World, clock: FakeClock
) -> None:
    @workflow(name="stuck")
    async def stuck(ctx: Any, input: Any) -> Any:
        await ctx.step("wait", asyncio.Event().wait)

    async with world([stuck]) as sw, world([stuck]) as other:
        run = await sw.start("stuck", 1)
        async with sw.worker(lease="20s") as worker:
            await until(sw, run.id, "running")
            vanish(worker)
            async with other.housekeeping(), flowing(clock, "0.5s"):
                while (await other.explain(run.id)).code != "no_worker":
                    await asyncio.sleep(0.001)

"""Firings that are committed together: none is lost if they have to be committed apart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import workflow
from stepwell.errors import Overtaken, QueueFull, StepwellError
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import flowing


@workflow
async def heard(ctx: Any, input: Any) -> Any:
    return input


async def test_who_is_overtaken_with_a_run_that_stands_apart_starts_it_after_all(
    world: World, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world([heard]) as sw:
        await sw.triggers.create("heard", "event", {"event": "news"}, name="t")
        await sw.emit("news", {"n": 1})
        fire = sw.store.triggers.fire
        faults: list[StepwellError] = [QueueFull("There is no room."), Overtaken("Look again.")]

        async def failing(workspace_id: str, firings: Any, starts: Any, *more: Any) -> Any:
            if starts and faults:
                raise faults.pop(0)
            return await fire(workspace_id, firings, starts, *more)

        monkeypatch.setattr(sw.store.triggers, "fire", failing)
        async with sw.housekeeping(), flowing(clock):
            while await sw.store.triggers.pending_events("default", 1):
                await asyncio.sleep(0.001)
        assert [run.input for run in (await sw.list_runs(definition="heard")).items] == [{"n": 1}]
        assert await sw.triggers.refusals("heard/t") == []

"""Definitions that were disabled: what their triggers missed is not made up for, whoever was up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import Stepwell
from stepwell.engine.outbox import Outbox
from stepwell.engine.ticker import Ticker
from stepwell.kernel.clock import SECOND
from stepwell.testing.clock import FakeClock
from tests.conftest import World

GRAPH: dict[str, Any] = {
    "name": "report",
    "triggers": [
        {"id": "often", "type": "schedule", "every": "60s", "misfire": "all", "limit": 100},
        {"id": "heard", "type": "event", "event": "news"},
    ],
    "nodes": [{"id": "a", "type": "transform", "config": {"value": 1}}],
}
OTHER = GRAPH | {"nodes": [{"id": "a", "type": "transform", "config": {"value": 2}}]}

Enable = Callable[[Stepwell], Awaitable[Any]]


async def by_hand(sw: Stepwell) -> None:
    await sw.definitions.set_enabled("report", True)


async def by_publishing(sw: Stepwell) -> None:
    await sw.definitions.publish(OTHER, enabled=True)


async def by_publishing_the_same(sw: Stepwell) -> None:
    await sw.definitions.publish(GRAPH, enabled=True)


async def by_a_draft(sw: Stepwell) -> None:
    await sw.definitions.save_draft("report", OTHER)
    await sw.definitions.publish_draft("report", enabled=True)


async def keep_house(sw: Stepwell) -> None:
    firing = (sw.store, sw._workspace, sw._firer, sw._telemetry)
    await Ticker(*firing).run_once()
    await Outbox(*firing).run_once()


async def started(sw: Stepwell) -> list[str]:
    return sorted(run.trigger["name"] for run in (await sw.list_runs(limit=1000)).items)


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("enable", [by_hand, by_publishing, by_publishing_the_same, by_a_draft])
async def test_what_was_missed_is_not_made_up_for(
    world: World, clock: FakeClock, enable: Enable, watched: bool
) -> None:
    async with world([]) as sw:
        await sw.definitions.publish(GRAPH)
        await sw.triggers.create("report", "schedule", {"every": "60s", "misfire": "all"}, name="h")
        await sw.definitions.set_enabled("report", False)
        for _ in range(30):
            clock.advance("60s")
            await sw.emit("news", {})
            if watched:
                await keep_house(sw)
        await enable(sw)
        await keep_house(sw)
        assert await started(sw) == []
        for each in await sw.triggers.list("report"):
            assert (each.failures, each.last_error) == (0, None)
        clock.advance("60s")
        await sw.emit("news", {})
        await keep_house(sw)
        assert await started(sw) == ["h", "heard", "often"]


async def test_a_trigger_that_is_disabled_or_paused_itself_stays_so(
    world: World, clock: FakeClock
) -> None:
    async with world([]) as sw:
        await sw.definitions.publish(GRAPH)
        disabled = await sw.triggers.disable("report/heard")
        paused = replace(
            await sw.triggers.get("report/often"), serial=2, paused="It fails.", next_at=None
        )
        await sw.store.triggers.put("default", paused)
        await sw.definitions.set_enabled("report", False)
        await sw.definitions.set_enabled("report", True)
        found = {each.name: each for each in await sw.triggers.list("report")}
        assert found["heard"].serial == disabled.serial
        assert (found["often"].paused, found["often"].next_at) == ("It fails.", None)


async def test_a_schedule_that_this_process_cannot_read_goes_on_from_now(
    world: World, clock: FakeClock
) -> None:
    async with world([]) as sw:
        await sw.definitions.publish(GRAPH)
        made = await sw.triggers.get("report/often")
        await sw.store.triggers.put("default", replace(made, serial=2, type="tide"))
        await sw.definitions.set_enabled("report", False)
        clock.advance("1h")
        await sw.definitions.set_enabled("report", True)
        assert (await sw.triggers.get("report/often")).next_at == made.since + 3600 * SECOND

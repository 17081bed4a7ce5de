"""Schedules: every tick starts one run, whoever ticks and whenever somebody dies."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import Stepwell, workflow
from stepwell.catalog import store_for
from stepwell.engine import ticker
from stepwell.engine.ticker import MOST_FAILURES
from stepwell.kernel.clock import SECOND, moment
from stepwell.kernel.plans import Plan
from stepwell.kernel.run import Run
from stepwell.settings import Settings
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import flowing, sizes_of_firings

GRAPH = {
    "name": "report",
    "timezone": "Europe/Berlin",
    "inputs": {"type": "object", "properties": {"suite": {"type": "string", "default": "all"}}},
    "nodes": [{"id": "a", "type": "transform", "config": {"value": "@input.suite"}}],
}


@workflow
async def tick(ctx: Any, input: Any) -> Any:
    return input


async def runs(sw: Stepwell, definition: str = "tick") -> AsyncIterator[Run]:
    cursor = None
    while True:
        page = await sw.list_runs(definition=definition, limit=1000, cursor=cursor)
        for run in page.items:
            yield run
        cursor = page.next_cursor
        if cursor is None:
            return


async def ticks(sw: Stepwell, definition: str = "tick") -> list[str]:
    """When the runs of a definition were scheduled, in order."""
    return sorted([run.trigger["scheduled_at"] async for run in runs(sw, definition)])


async def test_a_schedule_starts_a_run_at_each_of_its_times(world: World, clock: FakeClock) -> None:
    async with world([tick]) as sw, sw.worker(lease="1h"):
        begin = moment(clock.now())
        made = await sw.triggers.create("tick", "schedule", {"every": "10s"}, name="often")
        async with flowing(clock, "0.2s"):
            while len(await ticks(sw)) < 5:
                await asyncio.sleep(0.001)
        expected = [(begin + timedelta(seconds=10 * n)).isoformat() for n in range(1, 6)]
        assert (await ticks(sw))[:5] == expected
        found = await sw.triggers.get("tick/often")
        assert found.last_fired_at is not None
        run = await sw.get_run(found.last_run_id)
        assert run.trigger["id"] == made.id
        assert run.input == {"scheduled_at": run.trigger["scheduled_at"]}


async def test_a_schedule_in_a_document_follows_it(world: World, clock: FakeClock) -> None:
    nightly = {"id": "nightly", "type": "schedule", "cron": "0 2 * * *", "map": {"suite": "fast"}}
    async with world([]) as sw, sw.worker(lease="1h"):
        await sw.definitions.publish(GRAPH | {"triggers": [nightly]})
        first = await sw.triggers.get("report/nightly")
        assert (first.origin, first.timezone) == ("document", "Europe/Berlin")
        assert first.next_at is not None
        assert moment(first.next_at).hour == 1, "two o'clock in Berlin, in winter"
        await sw.triggers.disable("report/nightly")
        await sw.definitions.publish(GRAPH | {"title": "x", "triggers": [nightly]})
        assert not (await sw.triggers.get(first.id)).enabled, "publishing leaves that as it is"
        changed = {**nightly, "cron": "0 3 * * *", "enabled": True}
        await sw.definitions.publish(GRAPH | {"triggers": [changed]})
        second = await sw.triggers.get(first.id)
        assert second.enabled
        clock.advance(timedelta(microseconds=second.next_at - clock.now() + SECOND))
        while not await ticks(sw, "report"):
            await asyncio.sleep(0.001)
        (run,) = (await sw.list_runs(definition="report")).items
        assert run.input == {"suite": "fast"}
        await sw.definitions.publish(GRAPH)
        assert await sw.triggers.list() == []


async def test_what_was_missed_is_skipped_or_made_up_for_and_said_so(
    world: World, clock: FakeClock
) -> None:
    async with world([tick]) as sw:
        await sw.triggers.create("tick", "schedule", {"cron": "* * * * *"}, name="skips")
        await sw.triggers.create(
            "tick", "schedule", {"cron": "* * * * *", "misfire": "latest"}, name="latest"
        )
        await sw.triggers.create(
            "tick", "schedule", {"cron": "* * * * *", "misfire": "all", "limit": 3}, name="all"
        )
        clock.advance("4h")
        clock.advance("30s")
        async with sw.worker(lease="1h"):
            while len(await ticks(sw)) < 1 + 1 + 4:
                await asyncio.sleep(0.001)
        counted = Counter(
            run.trigger["name"] for run in (await sw.list_runs(definition="tick")).items
        )
        missed = {
            name: [(each.code, each.count) for each in await sw.triggers.refusals(f"tick/{name}")]
            for name in counted
        }
        found = await sw.triggers.get("tick/skips")
    # The last tick is half a minute old and so not late.
    assert counted == {"skips": 1, "latest": 1, "all": 4}
    assert missed == {
        "skips": [("times_missed", 239)],
        "latest": [("times_missed", 239)],
        "all": [("times_missed", 236)],
    }
    assert (found.last_error, found.failures) == (None, 0), "that is nothing to be mended"


async def test_no_commit_is_so_long_that_others_wait_for_it(
    world: World, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticker, "MOST_STARTS", 7)
    async with world([tick]) as sw:
        config = {"cron": "* * * * *", "misfire": "all", "limit": 20}
        for n in range(5):
            await sw.triggers.create("tick", "schedule", config, name=f"t{n}")
        clock.advance("1h")
        sizes = sizes_of_firings(sw, monkeypatch)
        async with sw.housekeeping():
            await caught_up(sw)
        found = Counter([run.trigger["scheduled_at"] async for run in runs(sw)])
    assert len(found) == 20 + 2, "the last two are on time"
    assert set(found.values()) == {5}
    assert max(sizes) == 7


async def test_what_is_left_of_a_quota_is_used_for_the_first_ticks(
    world: World, clock: FakeClock
) -> None:
    settings = Settings(plan=Plan("small", runs_per_month=5))
    async with world([tick], settings=settings) as sw:
        config = {"cron": "* * * * *", "misfire": "all", "limit": 8}
        await sw.triggers.create("tick", "schedule", config, name="t")
        clock.advance("10m")
        begin = moment(clock.now())
        async with sw.housekeeping():
            await caught_up(sw)
        found = await ticks(sw)
        (refusal,) = await sw.triggers.refusals("tick/t")
        record = await sw.triggers.get("tick/t")
    assert found == [(begin - timedelta(minutes=9 - n)).isoformat() for n in range(5)]
    assert (refusal.code, refusal.count) == ("quota_exceeded", 5)
    assert (record.paused, record.failures) == (None, 0)
    assert record.last_run_id is not None


async def test_a_schedule_that_this_process_cannot_read_is_left_to_others(
    world: World, clock: FakeClock
) -> None:
    async with world([tick]) as sw:
        made = await sw.triggers.create("tick", "schedule", {"every": "1m"}, name="newer")
        await sw.triggers.create("tick", "schedule", {"every": "1m"}, name="known")
        newer = replace(made, config={**made.config, "invented": "later"}, serial=2)
        await sw.store.triggers.put("default", newer)
        clock.advance("61s")
        async with sw.housekeeping():
            while len(await ticks(sw)) < 1:
                await asyncio.sleep(0.001)
            clock.advance("60s")
            while len(await ticks(sw)) < 2:
                await asyncio.sleep(0.001)
        found = await sw.triggers.get("tick/newer")
        assert (found.next_at, found.paused) == (made.next_at, None)
        (refusal,) = await sw.triggers.refusals("tick/newer")
        assert (refusal.code, refusal.count) == ("trigger_invalid", 1)
        assert "invented" in refusal.message
        assert {run.trigger["name"] async for run in runs(sw)} == {"known"}
        shown = await sw.triggers.shown(*await sw.triggers.list())
        assert "invented" in next(each for each in shown if each["name"] == "newer")["description"]


async def test_a_change_beside_the_schedule_loses_no_tick(world: World, clock: FakeClock) -> None:
    async with world([]) as sw:
        trigger = {"id": "t", "type": "schedule", "every": "10m", "grace": "1h"}
        await sw.definitions.publish(GRAPH | {"triggers": [trigger]})
        begin = moment(clock.now())
        clock.advance("11m")  # and nobody was there
        await sw.definitions.publish(GRAPH | {"triggers": [trigger | {"map": {"suite": "x"}}]})
        clock.advance("8m")
        await sw.definitions.publish(GRAPH | {"timezone": "Asia/Tokyo", "triggers": [trigger]})
        clock.advance("2m")
        async with sw.housekeeping():
            await caught_up(sw)
        assert await ticks(sw, "report") == [
            (begin + timedelta(minutes=minutes)).isoformat() for minutes in (20,)
        ], "another zone is another schedule, but its steps are counted from the same moment"
        await sw.definitions.publish(
            GRAPH | {"timezone": "Asia/Tokyo", "triggers": [trigger | {"map": {"suite": "x"}}]}
        )
        clock.advance("9m")
        await sw.definitions.publish(
            GRAPH | {"timezone": "Asia/Tokyo", "triggers": [trigger | {"map": {"suite": "y"}}]}
        )
        async with sw.housekeeping():
            await caught_up(sw)
        assert len(await ticks(sw, "report")) == 2, "the tick that was overdue"


@pytest.mark.parametrize("change", [{"misfire": "latest"}, {"grace": "10m"}, {"limit": 3}])
async def test_what_is_to_become_of_missed_times_can_be_changed_when_one_is_due(
    world: World, clock: FakeClock, change: dict[str, Any]
) -> None:
    async with world([tick]) as sw:
        made = await sw.triggers.create("tick", "schedule", {"cron": "* * * * *"}, name="t")
        clock.advance("61s")
        await sw.triggers.update("tick/t", {"cron": "* * * * *", **change})
        async with sw.housekeeping():
            await caught_up(sw)
        assert made.next_at is not None
        assert moment(made.next_at).isoformat() in await ticks(sw)


async def test_what_was_published_before_there_were_triggers_is_armed_when_published_again(
    world: World,
) -> None:
    document = GRAPH | {"triggers": [{"id": "t", "type": "schedule", "every": "10m"}]}
    async with world([]) as sw:
        await sw.definitions.publish(document)
        before = await sw.triggers.get("report/t")
        await sw.store.triggers.delete("default", before.id)
        await sw.definitions.publish(document)
        assert (await sw.triggers.get("report/t")).next_at == before.next_at


async def test_a_schedule_that_fails_three_times_is_paused_and_says_why(
    world: World, clock: FakeClock
) -> None:
    wrong = {"id": "t", "type": "schedule", "every": "10s", "map": {"suite": 5}}
    async with world([]) as sw, sw.worker(lease="1h"):
        await sw.definitions.publish(GRAPH | {"triggers": [wrong]})
        async with flowing(clock, "0.5s"):
            while (found := await sw.triggers.get("report/t")).paused is None:
                await asyncio.sleep(0.001)
        assert (found.failures, found.next_at) == (MOST_FAILURES, None)
        assert "suite" in found.paused
        refusals = await sw.triggers.refusals("report/t")
        assert [each.code for each in refusals] == ["input_invalid"] * MOST_FAILURES
        assert await ticks(sw, "report") == []
        enabled = await sw.triggers.enable("report/t")
        assert (enabled.paused, enabled.failures) == (None, 0)
        assert enabled.next_at == clock.now() + 10 * SECOND


async def test_a_disabled_definition_refuses_and_is_not_paused(
    world: World, clock: FakeClock
) -> None:
    often = {"id": "t", "type": "schedule", "every": "10s"}
    async with world([]) as sw, sw.worker(lease="1h"):
        await sw.definitions.publish(GRAPH | {"triggers": [often]}, enabled=False)
        async with flowing(clock, "0.5s"):
            while len(refusals := await sw.triggers.refusals("report/t")) < 5:
                await asyncio.sleep(0.001)
        assert {each.code for each in refusals} == {"definition_disabled"}
        found = await sw.triggers.get("report/t")
        assert (found.failures, found.paused) == (0, None)


async def test_one_that_is_to_fire_once_does_so_once(world: World, clock: FakeClock) -> None:
    at = datetime.fromtimestamp(clock.now() / SECOND + 100, UTC).isoformat()
    async with world([tick]) as sw, sw.worker(lease="1h"):
        await sw.triggers.create("tick", "schedule", {"at": at}, name="once")
        async with flowing(clock, "1s"):
            while not await ticks(sw):
                await asyncio.sleep(0.001)
        assert (await sw.triggers.get("tick/once")).next_at is None
        assert len(await ticks(sw)) == 1


async def test_every_tick_of_a_day_fires_once_whoever_dies(
    store_url: str, clock: FakeClock
) -> None:
    """Three processes that tick; every few minutes one of them is gone, or all are for a while."""

    async def process() -> AsyncExitStack:
        stack = AsyncExitStack()
        sw = await stack.enter_async_context(
            Stepwell(workflows=[tick], store=store_for(store_url, clock))
        )
        await stack.enter_async_context(sw.housekeeping())
        return stack

    chance = random.Random(1)
    begin, lives = clock.now(), 0
    async with Stepwell(workflows=[tick], store=store_for(store_url, clock)) as sw:
        await sw.triggers.create("tick", "schedule", {"cron": "* * * * *"}, name="minutely")
        await sw.triggers.create("tick", "schedule", {"every": "7m"}, name="seven")
        living = [await process() for _ in range(3)]
        while clock.now() < begin + 86_400 * SECOND:
            for _ in range(400 + 41 * (lives % 7)):
                clock.advance("1s")
                if (clock.now() - begin) % (60 * SECOND) == 0:
                    await caught_up(sw)
            lives += 1
            # They die while they tick, or just before, or just after.
            clock.advance(
                timedelta(microseconds=60 * SECOND - (clock.now() - begin) % (60 * SECOND))
            )
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
            for each in living if lives % 10 == 0 else [living.pop(0)]:
                await each.aclose()
            if lives % 10 == 0:
                clock.advance("50s")
                living = []
            living += [await process() for _ in range(3 - len(living))]
        await caught_up(sw)
        for each in living:
            await each.aclose()
        found = [run.trigger async for run in runs(sw)]
    assert lives > 100
    expected = {
        (name, at.isoformat())
        for name, step in (("minutely", 60), ("seven", 420))
        for seconds in range(0, (clock.now() - begin) // SECOND + 1, step)
        if (at := moment(begin + seconds * SECOND)) > moment(begin)
    }
    assert begin % (60 * SECOND) == 0
    fired = Counter((trigger["name"], trigger["scheduled_at"]) for trigger in found)
    assert fired == Counter(expected)


async def caught_up(sw: Stepwell) -> None:
    """Return once nothing is due any more."""
    while await sw.store.triggers.due("default", sw.store.clock.now(), 1):
        await asyncio.sleep(0.001)

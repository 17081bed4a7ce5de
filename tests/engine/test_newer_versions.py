"""Events for triggers that only some processes can read: they get them, and none waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import Stepwell, workflow
from stepwell.catalog import trigger_types
from stepwell.engine.outbox import PATIENCE_SECONDS
from stepwell.errors import InvalidInput
from stepwell.kernel.clock import SECOND
from stepwell.kernel.records import TriggerRecord
from stepwell.stores.statements import Statement
from stepwell.testing.clock import FakeClock
from stepwell.triggers.event import Config, Event
from tests.conftest import World
from tests.engine.paced import graph
from tests.engine.support import flowing


@workflow
async def heard(ctx: Any, input: Any) -> Any:
    return input


class NewerConfig(Config):
    invented: str = ""


class NewerEvent(Event):
    config = NewerConfig


def upgraded(sw: Stepwell) -> Stepwell:
    """As if it were a process of the next version."""
    sw._firer._types = lambda: {**trigger_types(), "event": NewerEvent()}
    return sw


async def written(sw: Stepwell, name: str, **fields: Any) -> TriggerRecord:
    """A trigger for events of its name, with fields that this version may not know."""
    made = await sw.triggers.create("heard", "event", {"event": name}, name=name)
    newer = replace(made, config={**made.config, **fields}, serial=2, place=0)
    await sw.store.triggers.put("default", newer)
    return newer


async def passed(clock: FakeClock, seconds: int) -> None:
    begin = clock.now()
    async with flowing(clock, "1s"):
        while clock.now() < begin + seconds * SECOND:
            await asyncio.sleep(0.001)


async def pending(sw: Stepwell) -> list[str]:
    return [event.type for _, event in await sw.store.triggers.pending_events("default", 100)]


async def delivered(sw: Stepwell, clock: FakeClock) -> None:
    async with flowing(clock, "1s"):
        while await pending(sw):
            await asyncio.sleep(0.001)


async def runs_of(sw: Stepwell) -> list[Any]:
    page = await sw.list_runs(definition="heard", limit=100)
    return [run.input["n"] for run in reversed(page.items)]


async def test_an_event_that_had_to_wait_is_not_refused_before_others_could_take_it(
    world: World, clock: FakeClock
) -> None:
    async with world([heard]) as sw, world([heard]) as other:
        await written(sw, "strange", nobody="knows")
        await written(sw, "news", invented="later")
        await sw.emit("strange", {"n": 1})
        await sw.emit("news", {"n": 2})
        async with sw.housekeeping():
            async with flowing(clock, "1s"):
                while "strange" in await pending(sw):
                    await asyncio.sleep(0.001)
            assert await pending(sw) == ["news"], "old by now, but nobody could come to it"
            async with upgraded(other).housekeeping():
                await delivered(sw, clock)
        assert await runs_of(sw) == [2]
        assert await sw.triggers.refusals("heard/news") == []
        assert len(await sw.triggers.refusals("heard/strange")) == 1


async def test_an_event_from_a_time_without_processes_is_left_to_others_for_a_moment(
    world: World, clock: FakeClock
) -> None:
    async with world([heard]) as sw:
        await written(sw, "news", invented="later")
        await sw.emit("news", {"n": 1})
        clock.advance(f"{2 * PATIENCE_SECONDS}s")
        async with sw.housekeeping():
            await passed(clock, 30)
            assert await pending(sw) == ["news"]
            await delivered(sw, clock)
        assert len(await sw.triggers.refusals("heard/news")) == 1


async def test_what_was_refused_once_is_left_to_others_again_when_one_can_read_it(
    world: World, clock: FakeClock
) -> None:
    async with world([heard]) as sw, world([heard]) as other:
        await written(sw, "news", invented="later")
        await sw.emit("news", {"n": 1})
        async with sw.housekeeping():
            await delivered(sw, clock)
        assert (await sw.triggers.get("heard/news")).last_error is not None
        async with upgraded(other).housekeeping():
            while (await sw.triggers.get("heard/news")).last_error is not None:
                await asyncio.sleep(0.001)
        await sw.emit("news", {"n": 2})
        async with sw.housekeeping():
            await passed(clock, 60)
            assert await pending(sw) == ["news"]
            async with other.housekeeping():
                await delivered(sw, clock)
        assert await runs_of(sw) == [2]


async def test_a_type_that_fails_in_its_own_way_does_not_stop_other_events(
    world: World, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd(Event):
        def valid(self, config: Any, zone: str) -> Any:
            if "odd" in config:
                raise InvalidInput("It is odd.")
            return super().valid(config, zone)

    async with world([heard]) as sw:
        monkeypatch.setattr(sw._firer, "_types", lambda: {**trigger_types(), "event": Odd()})
        await written(sw, "strange", odd=1)
        await written(sw, "news")
        await sw.emit("strange", {"n": 1})
        await sw.emit("news", {"n": 2})
        async with sw.housekeeping():
            await delivered(sw, clock)
            await sw.emit("strange", {"n": 3})
            await sw.emit("news", {"n": 4})
            begin = clock.now()
            await delivered(sw, clock)
            assert clock.now() < begin + 60 * SECOND
        assert await runs_of(sw) == [2, 4]
        first, second = await sw.triggers.refusals("heard/strange")
        assert (first.message, second.message) == ("It is odd.", "It is odd.")


async def test_a_document_that_only_newer_versions_can_read_is_left_to_them(
    world: World, clock: FakeClock
) -> None:
    triggers = [
        {"id": "event", "type": "event", "event": "news"},
        {"id": "often", "type": "schedule", "every": "1m"},
    ]
    async with world([]) as sw:
        await sw.definitions.publish(graph("g", triggers=triggers))
        hash = (await sw.definitions.get("g")).hash
        text = await sw.store.records.document("default", hash)
        newer = text.removesuffix("}") + ', "invented": "later"}'
        rewrite = "UPDATE documents SET document = $1 WHERE hash = $2"
        await sw.store.records._amend([Statement(rewrite, (newer, hash))])
    async with world([]) as sw:
        await sw.emit("news", {"n": 1})
        async with sw.housekeeping():
            await passed(clock, 300)
            assert await pending(sw) == ["news"]
            assert (await sw.triggers.get("g/often")).paused is None
            (refusal,) = await sw.triggers.refusals("g/often")
            await delivered(sw, clock)
        (other,) = await sw.triggers.refusals("g/event")
        assert refusal.code == other.code == "invalid_definition"

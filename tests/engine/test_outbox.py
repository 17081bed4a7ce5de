"""Events that start runs: one for each trigger and event, in order, whoever delivers them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import Stepwell, workflow
from stepwell.catalog import store_for
from stepwell.engine import outbox, volley
from stepwell.errors import (
    InvalidInput,
    StepwellError,
    StoreUnavailable,
    TriggerDisabled,
    TriggerExists,
)
from stepwell.kernel.clock import SECOND
from stepwell.kernel.plans import Plan
from stepwell.kernel.records import EventRecord
from stepwell.operations.triggers import Fired
from stepwell.settings import Settings
from stepwell.testing.clock import FakeClock
from stepwell.triggers.event import Event
from tests.conftest import World
from tests.engine.support import flowing, sizes_of_firings, until


@workflow
async def heard(ctx: Any, input: Any) -> Any:
    return input


@workflow
async def speaks(ctx: Any, input: Any) -> Any:
    await ctx.emit("spoken", {"n": input})
    return input


async def delivered(sw: Stepwell) -> None:
    """Return once no event waits for anybody."""
    while await sw.store.triggers.pending_events("default", 1):
        await asyncio.sleep(0.001)


async def inputs(sw: Stepwell, definition: str = "heard") -> list[Any]:
    """The inputs of a definition's runs, in the order in which they were started."""
    page = await sw.list_runs(definition=definition, limit=1000)
    return [run.input for run in reversed(page.items)]


async def test_an_event_starts_a_run_of_each_trigger_that_wants_it(world: World) -> None:
    async with world([heard]) as sw, sw.worker(lease="1h"):
        await sw.triggers.create("heard", "event", {"event": "news"}, name="all")
        await sw.triggers.create(
            "heard", "event", {"event": "news", "filter": {"env": "prod"}}, name="equal"
        )
        await sw.triggers.create(
            "heard", "event", {"event": "news", "filter": "payload.n > 1", "map": {"m": "$.n"}},
            name="cel",
        )  # fmt: skip
        await sw.emit("news", {"n": 1, "env": "prod"}, key="k")
        await sw.emit("news", {"n": 2, "env": "test"})
        await sw.emit("olds", {"n": 3, "env": "prod"})
        await delivered(sw)
        found = (await sw.list_runs(definition="heard")).items
        assert sorted((run.trigger["name"], *run.input.values()) for run in found) == [
            ("all", 1, "prod"), ("all", 2, "test"), ("cel", 2), ("equal", 1, "prod"),
        ]  # fmt: skip
        first = min(found, key=lambda run: run.id)
        assert first.trigger["event"] == {
            "id": first.trigger["event"]["id"], "type": "news", "key": "k",
        }  # fmt: skip


async def test_events_that_a_run_emits_start_runs_too(world: World) -> None:
    async with world([heard, speaks]) as sw, sw.worker(lease="1h"):
        await sw.triggers.create("heard", "event", {"event": "spoken"})
        runs = [await sw.start("speaks", n) for n in range(5)]
        for run in runs:
            await run.result()
        await delivered(sw)
        assert sorted(each["n"] for each in await inputs(sw)) == [0, 1, 2, 3, 4]


async def test_events_are_kept_for_triggers_while_nobody_delivers(world: World) -> None:
    async with world([heard]) as sw:
        await sw.triggers.create("heard", "event", {"event": "news"})
        for n in range(250):
            await sw.emit("news", {"n": n})
        assert await inputs(sw) == []
        async with sw.housekeeping():
            await delivered(sw)
        assert [each["n"] for each in await inputs(sw)] == list(range(250)), "in order"


async def test_an_event_from_before_a_trigger_is_not_for_it(world: World) -> None:
    """At the same moment by the clock, all of it."""
    async with world([heard]) as sw:
        made = await sw.triggers.create("heard", "event", {"event": "news"}, name="old")
        await sw.emit("news", {"n": 1})
        await sw.triggers.disable(made.id)
        await sw.triggers.create("heard", "event", {"event": "news"}, name="new")
        await sw.emit("news", {"n": 2})
        async with sw.housekeeping():
            await delivered(sw)
        assert [each["n"] for each in await inputs(sw)] == [2]
        (refusal,) = await sw.triggers.refusals("heard/old")
        assert (refusal.code, refusal.count) == ("trigger_disabled", 2)
        await sw.emit("news", {"n": 3})
        await sw.triggers.enable(made.id)
        await sw.emit("news", {"n": 4})
        async with sw.housekeeping():
            await delivered(sw)
        found = (await sw.list_runs(definition="heard")).items
        assert sorted((run.trigger["name"], run.input["n"]) for run in found) == [
            ("new", 2), ("new", 3), ("new", 4), ("old", 4),
        ]  # fmt: skip


async def test_events_that_wait_for_a_trigger_are_not_lost_when_it_is_changed(
    world: World, clock: FakeClock
) -> None:
    async with world([heard]) as sw:
        made = await sw.triggers.create("heard", "event", {"event": "news"})
        for n in range(3):
            await sw.emit("news", {"n": n})
        clock.advance("1s")
        await sw.triggers.update(made.id, {"event": "news", "filter": "payload.n > 0"})
        async with sw.housekeeping():
            await delivered(sw)
        assert [each["n"] for each in await inputs(sw)] == [1, 2]
        await sw.emit("news", {"n": 3})
        await sw.triggers.update(made.id, {"event": "olds"})
        await sw.triggers.update(made.id, {"event": "news"})
        await sw.emit("news", {"n": 4})
        async with sw.housekeeping():
            await delivered(sw)
        assert [each["n"] for each in await inputs(sw)] == [1, 2, 4], "another one did not want it"


async def test_a_trigger_names_the_run_that_there_is(world: World) -> None:
    calm = {
        "name": "calm", "policy": {"debounce": {"wait": "1m"}},
        "nodes": [{"id": "a", "type": "transform", "config": {"value": 1}}],
        "triggers": [{"id": "t", "type": "event", "event": "news"}],
    }  # fmt: skip
    async with world([]) as sw:
        await sw.definitions.publish(calm)
        async with sw.housekeeping():
            for _ in range(3):
                await sw.emit("news", {})
                await delivered(sw)
        (run,) = (await sw.list_runs(definition="calm")).items
        assert (await sw.triggers.get("calm/t")).last_run_id == run.id


async def test_a_start_that_fails_unforeseen_does_not_hold_up_what_comes_after(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world([heard]) as sw:
        await sw.triggers.create("heard", "event", {"event": "news"})
        for n in range(3):
            await sw.emit("news", {"n": n})
        prepare = sw._starter.prepare

        async def prepared(definition: str, input: Any, **more: Any) -> Any:
            if input["n"] == 1:
                raise KeyError("unforeseen")
            return await prepare(definition, input, **more)

        monkeypatch.setattr(sw._starter, "prepare", prepared)
        async with sw.housekeeping():
            await delivered(sw)
        assert [each["n"] for each in await inputs(sw)] == [0, 2]
        (refusal,) = await sw.triggers.refusals("heard/event")
        assert refusal.message.startswith("The event trigger has failed with KeyError")


async def test_what_one_event_cannot_start_does_not_hold_up_the_next(world: World) -> None:
    strict = {
        "name": "strict",
        "inputs": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "triggers": [{"id": "t", "type": "event", "event": "news", "filter": "payload.n != 3"}],
        "nodes": [{"id": "a", "type": "transform", "config": {"value": "@input.n"}}],
    }
    async with world([]) as sw, sw.housekeeping():
        await sw.definitions.publish(strict)
        for payload in ({"n": 1, "more": True}, {"n": "two"}, {"no": 1}, {"n": 3}, {"n": 4}):
            await sw.emit("news", payload)
        await delivered(sw)
        assert await inputs(sw, "strict") == [{"n": 1}, {"n": 4}]
        refusals = await sw.triggers.refusals("strict/t")
        assert [each.code for each in refusals] == ["condition_failed", "input_invalid"]
        found = await sw.triggers.get("strict/t")
        assert (found.failures, found.last_error) == (0, None), "the last one went well"


async def test_a_type_that_fails_does_not_hold_up_what_comes_after(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wants(_: Any, config: Any, event: EventRecord) -> bool:
        return bool(event.payload["n"] > 0)

    monkeypatch.setattr(Event, "wants", wants)
    async with world([heard]) as sw:
        await sw.triggers.create("heard", "event", {"event": "news"})
        await sw.emit("news", {"nobody": "has thought of that"})
        await sw.emit("news", {"n": 1})
        async with sw.housekeeping():
            await delivered(sw)
        assert await inputs(sw) == [{"n": 1}]
        (refusal,) = await sw.triggers.refusals("heard/event")
        assert refusal.code == "trigger_invalid"
        assert refusal.message.startswith("The event trigger has failed with KeyError")


async def test_what_is_left_of_a_quota_is_used_and_only_who_wanted_more_is_refused(
    world: World,
) -> None:
    settings = Settings(plan=Plan("small", runs_per_month=4))
    async with world([heard], settings=settings) as sw:
        for name in ("a", "b"):
            await sw.triggers.create("heard", "event", {"event": "news"}, name=name)
        only = {"event": "news", "filter": {"n": 9}}
        await sw.triggers.create("heard", "event", only, name="other")
        await sw.triggers.create("heard", "event", {"event": "news"}, name="off", enabled=False)
        await sw.start("heard", {"n": 0})
        for n in range(1, 4):
            await sw.emit("news", {"n": n})
        async with sw.housekeeping():
            await delivered(sw)
        assert [each["n"] for each in await inputs(sw)] == [0, 1, 1, 2]
        found = [(await sw.triggers.refusals(f"heard/{name}")) for name in ("a", "b")]
        assert [len(each) for each in found] == [1, 2]
        assert {each.code for refusals in found for each in refusals} == {"quota_exceeded"}
        assert await sw.triggers.refusals("heard/other") == []
        off = await sw.triggers.refusals("heard/off")
        assert {each.code for each in off} == {"trigger_disabled"}
        assert sum(each.count for each in off) == 3


async def test_several_that_deliver_start_no_run_twice(store_url: str, clock: FakeClock) -> None:
    async with AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(
                Stepwell(workflows=[heard], store=store_for(store_url, clock))
            )
            for _ in range(4)
        ]
        await processes[0].triggers.create("heard", "event", {"event": "news"})
        for sw in processes[:3]:
            await stack.enter_async_context(sw.housekeeping())
        await asyncio.gather(
            *(processes[n % 4].emit("news", {"n": n}) for n in range(200)),
        )
        await delivered(processes[0])
        assert sorted(each["n"] for each in await inputs(processes[0])) == list(range(200))


async def test_no_commit_is_so_long_that_others_wait_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MOST_STARTS", 5)
    async with world([heard]) as sw:
        for n in range(3):
            await sw.triggers.create("heard", "event", {"event": "news"}, name=f"t{n}")
        for n in range(10):
            await sw.emit("news", {"n": n})
        sizes = sizes_of_firings(sw, monkeypatch)
        async with sw.housekeeping():
            await delivered(sw)
        assert [each["n"] for each in await inputs(sw)] == [n for n in range(10) for _ in range(3)]
    assert sizes == [6] * 5, "an event is delivered whole"


async def test_an_event_whose_runs_are_too_large_for_one_commit_starts_them_in_several(
    world: World, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volley, "MOST_BYTES", 2500)
    async with world([heard]) as sw:
        for n in range(7):
            await sw.triggers.create("heard", "event", {"event": "news"}, name=f"t{n}")
        for n in range(2):
            await sw.emit("news", {"n": n, "much": "x" * 1000})
        fire, sizes = sw.store.triggers.fire, []

        async def failing(workspace_id: str, firings: Any, starts: Any, *more: Any) -> Any:
            sizes.append(len(starts))
            if len(sizes) == 3:
                raise StoreUnavailable("It is away for a moment.")
            return await fire(workspace_id, firings, starts, *more)

        monkeypatch.setattr(sw.store.triggers, "fire", failing)
        async with sw.housekeeping(), flowing(clock):
            await delivered(sw)
        assert sizes == [3, 3, 1, 3, 3, 1, 3, 3, 1]
        found = (await sw.list_runs(definition="heard", limit=100)).items
        assert [run.input["n"] for run in reversed(found)] == [0] * 7 + [1] * 7
        for trigger in await sw.triggers.list("heard"):
            assert (await sw.get_run(trigger.last_run_id)).trigger["id"] == trigger.id


async def test_a_trigger_can_be_fired_by_hand(world: World) -> None:
    async with world([heard]) as sw, sw.worker(lease="1h"):
        await sw.triggers.create("heard", "manual", {"map": {"who": "$.name"}})
        fired = await sw.triggers.fire("heard/manual", {"name": "ann"}, key="once")
        assert fired.created
        assert (await until(sw, fired.run_id, "completed")).output == {"who": "ann"}
        again = await sw.triggers.fire("heard/manual", {"name": "bob"}, key="once")
        assert again == Fired(fired.run_id, created=False)
        named = await sw.triggers.fire("heard/manual", {"name": "ann"}, user="ada")
        assert (await sw.get_run(named.run_id)).trigger["by"] == "ada"


async def test_what_is_fired_by_hand_and_refused_is_listed(world: World) -> None:
    strict = {
        "name": "strict",
        "inputs": {"type": "object", "properties": {"suite": {"type": "string"}}},
        "triggers": [{"id": "t", "type": "manual"}],
        "nodes": [{"id": "a", "type": "transform", "config": {"value": 1}}],
    }
    async with world([]) as sw:
        await sw.definitions.publish(strict)
        with pytest.raises(InvalidInput, match="did you mean 'suite'"):
            await sw.triggers.fire("strict/t", {"suit": "x"})
        await sw.definitions.set_enabled("strict", enabled=False)
        with pytest.raises(StepwellError):
            await sw.triggers.fire("strict/t", {})
        await sw.triggers.disable("strict/t")
        with pytest.raises(TriggerDisabled):
            await sw.triggers.fire("strict/t", {})
        refusals = await sw.triggers.refusals("strict/t")
        assert [each.code for each in refusals] == [
            "trigger_disabled", "definition_disabled", "input_invalid",
        ]  # fmt: skip
        found = await sw.triggers.get("strict/t")
        assert (found.failures, found.last_error) == (0, None), "that was somebody's mistake"


async def test_a_document_cannot_take_over_what_was_made_by_hand(world: World) -> None:
    document = {
        "name": "g", "nodes": [{"id": "a", "type": "transform", "config": {"value": 1}}],
    }  # fmt: skip
    async with world([]) as sw:
        await sw.definitions.publish(document)
        made = await sw.triggers.create("g", "event", {"event": "one"}, name="mine")
        other = {"id": "mine", "type": "event", "event": "two"}
        with pytest.raises(TriggerExists, match="made by hand"):
            await sw.definitions.publish(document | {"triggers": [other]})
        await sw.definitions.publish(document | {"triggers": [other | {"id": "theirs"}]})
        await sw.definitions.publish(document)
        assert await sw.triggers.list() == [await sw.triggers.get(made.id)]


async def test_an_event_for_a_newer_version_is_left_to_it_and_not_for_ever(
    world: World, clock: FakeClock
) -> None:
    async with world([heard]) as sw:
        made = await sw.triggers.create("heard", "event", {"event": "news"}, name="newer")
        await sw.triggers.create("heard", "event", {"event": "other"}, name="known")
        newer = replace(made, config={**made.config, "invented": "later"}, serial=2, place=0)
        await sw.store.triggers.put("default", newer)
        await sw.emit("other", {"n": 1})
        await sw.emit("news", {"n": 2})
        await sw.emit("other", {"n": 3})
        async with sw.housekeeping():
            while not await inputs(sw):
                await asyncio.sleep(0.001)
            async with flowing(clock, "1s"):
                begin = clock.now()
                while clock.now() < begin + 60 * SECOND:
                    await asyncio.sleep(0.001)
                assert [each["n"] for each in await inputs(sw)] == [1], "in order"
                assert await sw.triggers.refusals("heard/newer") == []
                await delivered(sw)
        assert [each["n"] for each in await inputs(sw)] == [1, 3]
        (refusal,) = await sw.triggers.refusals("heard/newer")
        assert refusal.code == "trigger_invalid"
        await sw.emit("news", {"n": 4})
        await sw.emit("other", {"n": 5})
        async with sw.housekeeping():
            await delivered(sw)  # at once: nobody saw to the last one either
        assert [each["n"] for each in await inputs(sw)] == [1, 3, 5]

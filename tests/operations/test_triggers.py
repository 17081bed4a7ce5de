"""Triggers and their paths: none is had by two, and one may go from one to another."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell.errors import (
    InvalidDefinition,
    QuotaExceeded,
    TriggerDisabled,
    TriggerExists,
    TriggerInvalid,
    TriggerNotFound,
)
from stepwell.kernel.clock import moment
from stepwell.kernel.plans import Plan
from stepwell.settings import Settings
from stepwell.testing.clock import FakeClock
from tests.conftest import World


def hooks(**paths: str) -> dict[str, Any]:
    """A definition with webhooks, by their ids."""
    return {
        "name": "hooked",
        "triggers": [{"id": id, "type": "webhook", "path": path} for id, path in paths.items()],
        "nodes": [{"id": "a", "type": "transform", "config": {"value": 1}}],
    }


async def test_a_path_may_go_from_one_trigger_of_a_document_to_another(world: World) -> None:
    async with world([]) as sw:
        await sw.definitions.publish(hooks(a="x"))
        await sw.definitions.publish(hooks(b="x", c="y"))
        await sw.definitions.publish(hooks(b="y", c="x"))
        found = {each.name: each.path for each in await sw.triggers.list("hooked")}
        assert found == {"b": "y", "c": "x"}


async def test_two_triggers_of_a_document_cannot_have_one_path(world: World) -> None:
    async with world([]) as sw:
        with pytest.raises(InvalidDefinition, match="The trigger 'a' has the path 'x' already"):
            await sw.definitions.publish(hooks(a="x", b="x"))
        await sw.definitions.publish(hooks(a="x"))
        await sw.triggers.create("hooked", "webhook", {"path": "y"}, name="hand")
        with pytest.raises(TriggerExists, match="hooked/hand has the path 'y' already"):
            await sw.definitions.publish(hooks(a="x", b="y"))


async def test_of_those_who_want_a_path_at_the_same_time_one_gets_it(world: World) -> None:
    async with world([]) as sw:
        await sw.definitions.publish(hooks())
        made = [await sw.triggers.create("hooked", "webhook", {}, name=f"w{n}") for n in range(4)]
        found = await asyncio.gather(
            *(sw.triggers.update(each.id, {"path": "x"}) for each in made),
            *(sw.triggers.create("hooked", "webhook", {"path": "x"}, name=n) for n in "abcd"),
            return_exceptions=True,
        )
        refused = [each for each in found if isinstance(each, TriggerExists)]
        assert len(refused) == 7, found
        assert all("has the path 'x' already" in str(each) for each in refused)


@pytest.mark.parametrize("path", ["x\0", "\ud800", "../x", "x/", "", "X"])
async def test_a_path_that_no_webhook_has_is_not_found(world: World, path: str) -> None:
    async with world([]) as sw:
        await sw.definitions.publish(hooks(a="x"))
        with pytest.raises(TriggerNotFound):
            await sw.receive(path, body=b"{}")


@pytest.mark.parametrize("name", ["x\0", "hooked/\0", "\ud800/a", "hooked/A", "", "a"])
async def test_a_trigger_that_is_not_there_is_not_found(world: World, name: str) -> None:
    async with world([]) as sw:
        await sw.definitions.publish(hooks(a="x"))
        with pytest.raises(TriggerNotFound):
            await sw.triggers.get(name)


async def test_what_a_smaller_plan_no_longer_allows_can_be_disabled(world: World) -> None:
    async with world([]) as sw:
        await sw.definitions.publish(hooks())
        await sw.triggers.create("hooked", "schedule", {"every": "1m"}, name="often")
    smaller = Settings(plan=Plan("smaller", schedule_seconds=3600))
    async with world([], settings=smaller) as sw:
        found = await sw.triggers.disable("hooked/often")
        assert (found.enabled, found.next_at) == (False, None)
        with pytest.raises(QuotaExceeded):
            await sw.triggers.enable("hooked/often")


async def test_a_trigger_that_this_process_cannot_read_can_be_disabled(world: World) -> None:
    async with world([]) as sw:
        await sw.definitions.publish(hooks())
        made = await sw.triggers.create("hooked", "event", {"event": "news"}, name="newer")
        newer = replace(made, config={**made.config, "invented": "later"}, serial=2)
        await sw.store.triggers.put("default", newer)
        await sw.triggers.disable("hooked/newer")
        found = await sw.triggers.get("hooked/newer")
        assert (found.enabled, found.event, found.config) == (False, "news", newer.config)


async def test_firing_a_disabled_trigger_is_refused_with_the_way_out(world: World) -> None:
    async with world([]) as sw:
        await sw.definitions.publish(hooks(a="x"))
        await sw.triggers.disable("hooked/a")
        with pytest.raises(TriggerDisabled) as refused:
            await sw.triggers.fire("hooked/a")
        assert refused.value.message.endswith(
            "It is disabled. It fires again after: stepwell triggers enable hooked/a"
        )
        (kept,) = await sw.triggers.refusals("hooked/a")
        assert kept.code == "trigger_disabled"


async def test_a_path_that_begins_with_a_slash_is_refused_for_that(world: World) -> None:
    async with world([]) as sw:
        await sw.definitions.publish(hooks())
        with pytest.raises(TriggerInvalid, match="does not begin or end with one"):
            await sw.triggers.create("hooked", "webhook", {"path": "/x"})


async def test_publishing_leaves_enabled_as_it_is_unless_the_document_says(world: World) -> None:
    async def enabled_after(document: dict[str, Any]) -> bool:
        await sw.definitions.publish(document)
        return (await sw.triggers.get("hooked/a")).enabled

    silent, off = hooks(a="x"), hooks(a="x")
    off["triggers"][0]["enabled"] = False
    async with world([]) as sw:
        assert await enabled_after(silent)
        await sw.triggers.disable("hooked/a")
        assert not await enabled_after({**silent, "description": "again"})
        await sw.triggers.enable("hooked/a")
        assert not await enabled_after(off)
        await sw.triggers.enable("hooked/a")
        assert not await enabled_after({**off, "description": "again"})


async def test_a_time_that_has_passed_is_doubted_and_published(
    world: World, clock: FakeClock
) -> None:
    once = hooks() | {"triggers": [{"id": "a", "type": "schedule", "at": "1999-12-31T12:00"}]}
    async with world([]) as sw:
        [problem] = (await sw.definitions.validate(once)).problems
        assert (problem.path, problem.code, problem.severity) == (
            "triggers[0].at", "in_the_past", "warning",
        )  # fmt: skip
        await sw.definitions.publish(once)
        (shown,) = await sw.triggers.shown(await sw.triggers.get("hooked/a"))
        assert shown["status"] == "over"
        later = moment(clock.now()) + timedelta(hours=1)
        once["triggers"][0]["at"] = later.isoformat()
        assert (await sw.definitions.validate(once)).problems == []


def suites(**properties: Any) -> dict[str, Any]:
    """A definition whose inputs are these, all of them required."""
    inputs = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": "suites", "inputs": inputs, "nodes": hooks()["nodes"]}


async def test_a_map_with_a_name_that_is_no_input_is_refused_by_hand_too(world: World) -> None:
    async with world([]) as sw:
        await sw.definitions.publish(suites(suite={"type": "string"}))
        wrong = {"every": "1h", "map": {"siute": "x"}}
        with pytest.raises(TriggerInvalid, match="Did you mean 'suite'") as found:
            await sw.triggers.create("suites", "schedule", wrong)
        (problem,) = found.value.details["problems"]
        assert (problem["path"], problem["code"]) == ("map.siute", "unknown_input")
        made = await sw.triggers.create(
            "suites", "schedule", {"every": "1h", "map": {"suite": "x"}}
        )
        with pytest.raises(TriggerInvalid, match="Did you mean 'suite'"):
            await sw.triggers.update(made.id, wrong)
        assert [each.id for each in await sw.triggers.list()] == [made.id]
        assert await sw.triggers.doubts_of(made.id) == []
        await sw.definitions.publish(suites(suites={"type": "string"}))
        (doubt,) = await sw.triggers.doubts_of(made.id)
        assert (doubt.path, doubt.code) == ("map.suite", "unknown_input")
        assert (await sw.triggers.disable(made.id)).enabled is False, "it can still be changed"


@pytest.mark.parametrize("given", [{}, {"map": {}}, {"map": {"suite": "$.suite"}}])
async def test_a_schedule_by_hand_that_can_start_no_run_is_doubted(
    world: World, given: dict[str, Any]
) -> None:
    async with world([]) as sw:
        await sw.definitions.publish(suites(suite={"type": "string"}))
        made = await sw.triggers.create("suites", "schedule", {"every": "1h", **given})
        (doubt,) = await sw.triggers.doubts_of(made.id)
        assert (doubt.code, doubt.severity) == ("input_invalid", "warning")
        assert doubt.message.startswith("It can start no run.")
        hook = await sw.triggers.create("suites", "webhook", {})
        assert await sw.triggers.doubts_of(hook.id) == [], "it may be told anything"

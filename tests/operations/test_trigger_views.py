"""Triggers as they are made, changed and shown."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stepwell import Stepwell, workflow
from stepwell.catalog import node_types, trigger_types
from stepwell.errors import Conflict, InvalidInput, TriggerInvalid, UnknownDefinition
from stepwell.graph.documents import checked
from stepwell.kernel.clock import moment
from stepwell.testing.clock import FakeClock
from tests.conftest import World

NODES = [{"id": "a", "type": "transform", "config": {"value": 1}}]


@workflow
async def work(ctx: Any, input: Any) -> Any:
    return input


async def shown(sw: Stepwell, trigger: str) -> dict[str, Any]:
    (found,) = await sw.triggers.shown(await sw.triggers.get(trigger))
    return found


async def test_a_trigger_says_what_it_waits_for_and_why_it_does_not_fire(
    world: World, clock: FakeClock
) -> None:
    triggers = [
        {"id": "nightly", "type": "schedule", "cron": "0 2 * * *"},
        {"id": "told", "type": "event", "event": "news", "filter": {"env": "prod"}},
        {"id": "judged", "type": "trigger_event", "event": "news", "filter": "payload.n > 3"},
        {"id": "hand", "type": "manual"},
    ]
    async with world([]) as sw:
        await sw.definitions.publish({"name": "g", "nodes": NODES, "triggers": triggers})
        found = {each["name"]: each for each in await sw.triggers.shown(*await sw.triggers.list())}
        assert {name: each["description"] for name, each in found.items()} == {
            "nightly": "At 02:00, every day, in UTC.",
            "told": 'For each event \'news\' that has {"env":"prod"}.',
            "judged": "For each event 'news' with payload.n > 3.",
            "hand": "When somebody fires it.",
        }
        assert {(each["status"], each["why"]) for each in found.values()} == {("enabled", None)}
        assert found["judged"]["type"] == "event"
        assert len(found["nightly"]["next"]) == 5
        await sw.definitions.set_enabled("g", False)
        off = await shown(sw, "g/nightly")
        assert (off["status"], off["next"]) == ("disabled", [])
        assert "stepwell definitions enable g" in off["why"]
        await sw.triggers.disable("g/told")
        assert "stepwell triggers enable g/told" in (await shown(sw, "g/told"))["why"]


async def test_a_time_that_has_passed_is_refused_by_hand_and_said_of_a_document(
    world: World, clock: FakeClock
) -> None:
    past = (moment(clock.now()) - timedelta(days=1)).isoformat()
    soon = (moment(clock.now()) + timedelta(days=1)).isoformat()
    async with world([work]) as sw:
        with pytest.raises(TriggerInvalid, match="has passed already"):
            await sw.triggers.create("work", "schedule", {"at": past})
        made = await sw.triggers.create("work", "schedule", {"at": soon})
        with pytest.raises(TriggerInvalid, match="has passed already"):
            await sw.triggers.update(made.id, {"at": past})
        over = {"id": "t", "type": "schedule", "at": past}
        await sw.definitions.publish({"name": "g", "nodes": NODES, "triggers": [over]})
        found = await shown(sw, "g/t")
        assert (found["status"], found["why"]) == ("over", "Its time has passed.")


async def test_nobody_undoes_a_change_that_they_have_not_seen(world: World) -> None:
    async with world([work]) as sw:
        made = await sw.triggers.create("work", "schedule", {"every": "1h"})
        await sw.triggers.update(made.id, {"every": "2h"}, serial=made.serial)
        with pytest.raises(Conflict, match="was changed meanwhile"):
            await sw.triggers.update(made.id, {"every": "3h"}, serial=made.serial)
        assert (await sw.triggers.get(made.id)).config["every"] == "2h"


@pytest.mark.parametrize("name", ["misfire", "limit", "grace"])
async def test_nothing_is_no_value_of_a_field(world: World, name: str) -> None:
    config = {"every": "15m", name: None}
    async with world([work]) as sw:
        with pytest.raises(TriggerInvalid, match=name):
            await sw.triggers.create("work", "schedule", config)
    trigger = {"id": "t", "type": "schedule", **config}
    document = {"name": "g", "nodes": NODES, "triggers": [trigger]}
    (found,) = checked(document, node_types()).problems
    assert found.path == f"triggers[0].{name}"


async def test_messages_name_the_field_once_and_say_what_is_meant(world: World) -> None:
    async with world([work]) as sw:
        for config, message in (
            (
                {"cron": "@hourley"},
                "cron: There is no cron name '@hourley'. Did you mean '@hourly'?",
            ),
            ({"every": "soon"}, "every: 'soon'"),
            ({"corn": "@daily"}, "corn: A schedule trigger has no 'corn'. Did you mean 'cron'?"),
            ({"at": "tomorrow"}, "at: 'tomorrow' is no time: it is not in ISO 8601. Write it like"),
        ):
            with pytest.raises(TriggerInvalid) as refused:
                await sw.triggers.create("work", "schedule", config)
            assert message in refused.value.message
        with pytest.raises(TriggerInvalid, match="Did you mean 'schedule'"):
            await sw.triggers.create("work", "shedule", {})
        with pytest.raises(UnknownDefinition, match="Publish it first"):
            await sw.triggers.list("nobody")
        with pytest.raises(InvalidInput, match="at most 1,000"):
            await sw.triggers.preview((await sw.triggers.create("work", "manual")).id, count=5000)


def test_what_no_run_could_be_started_with_is_said_when_it_is_checked() -> None:
    inputs = {"type": "object", "properties": {"suite": {"type": "string"}}}
    triggers = [
        {"id": "a", "type": "webhook", "path": "here", "map": {"zuite": "$.x"}},
        {"id": "b", "type": "webhook", "path": "here", "map": {"suite": "$.x"}},
        {"id": "c", "type": "schedule", "every": "1h", "map": {}},
    ]
    document = {
        "name": "g", "timezone": "Mars/Base", "nodes": NODES, "inputs": inputs,
        "triggers": triggers,
    }  # fmt: skip
    found = checked(document, node_types()).problems
    assert {(each.path, each.code, each.hint) for each in found} == {
        ("triggers[0].map.zuite", "unknown_input", "Did you mean 'suite'?"),
        ("triggers[1].path", "duplicate_path", ""),
        ("timezone", "unknown_timezone", 'Write it like "Europe/Berlin".'),
    }


async def test_publishing_warns_of_secrets_that_are_still_to_be_stored(world: World) -> None:
    hook = {"id": "t", "type": "webhook", "verify": "github", "secret": "mine"}
    async with world([]) as sw:
        (found,) = (
            await sw.definitions.publish({"name": "g", "nodes": NODES, "triggers": [hook]})
        ).problems
    assert (found.path, found.code) == ("triggers[0].secret", "unknown_secret")
    assert found.hint == "Store it: `stepwell secrets set mine`."


async def test_a_request_is_taken_as_it_is_at_hand(world: World) -> None:
    async with world([work]) as sw:
        await sw.triggers.create("work", "webhook", {"path": "here", "headers": {"X-A": "b"}})
        first = await sw.receive("/here", headers={"x-a": "b"}, body=b'{"n": 1}')
        second = await sw.receive("here", headers=[(b"X-A", b"b")], body=bytearray(b'{"n": 2}'))
        assert first.created
        assert second.created
        with pytest.raises(InvalidInput, match="body is bytes"):
            await sw.receive("here", body='{"n": 1}')  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="query is what stands behind"):
            await sw.receive("here", query={"a": 1})  # type: ignore[arg-type]


def test_other_packages_may_bring_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same door as those of nodes."""

    class Entry:
        value = "theirs"

        @staticmethod
        def load() -> Any:
            return type("module", (), {"moon": MOON})

    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda *, group: [Entry] if group == "stepwell.triggers" else [],
    )
    trigger_types.cache_clear()
    try:
        assert trigger_types()["moon"] is MOON
        assert "schedule" in trigger_types()
    finally:
        trigger_types.cache_clear()


class Moon(type(trigger_types()["manual"])):  # type: ignore[misc]
    """Fires when the moon is full, and somebody says so."""

    name, title = "moon", "Moon"


MOON = Moon()

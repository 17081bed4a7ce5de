"""Every operation is a tool, for those who may; it answers what the operation returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from mcp.shared.exceptions import MCPError

from stepwell import Stepwell
from stepwell.catalog import operations
from stepwell.kernel.sealing import new_key
from stepwell.mcp.offers import WITHHELD
from stepwell.operation import PERMISSIONS, Operation, Permission, allows
from stepwell.settings import Settings
from tests.conftest import World
from tests.operations.support import definition, node, open_gate
from tests.surfaces.agents import GATED, NEW, TASKS, agent, done, generations, publish, seat, tools

LEVELS: list[Permission] = ["read", "run", "build"]


def named(operation: str) -> str:
    return operation.replace(".", "_")


def offered() -> list[Operation]:
    """All operations but those about who may do what."""
    return [each for each in operations().values() if each.noun not in WITHHELD]


@generations
@pytest.mark.parametrize("level", LEVELS)
async def test_a_level_offers_what_needs_no_more(
    world: World, generation: str, level: Permission
) -> None:
    async with world() as sw, agent(seat(sw, level), generation) as client:
        found = await tools(client)
        extra = {"gt_mol_current"} | ({"gt_mol_advance"} if level != "read" else set())
        expected = {named(each.name) for each in offered() if allows(level, each.needs)}
        assert found.keys() == expected | extra
        for each in offered():
            if not allows(level, each.needs):
                with pytest.raises(MCPError, match=f"permission to {each.needs}") as refusal:
                    await client.call_tool(named(each.name), dict(each.example))
                told = {"code": "permission_denied", "details": {"needs": each.needs}}
                assert refusal.value.error.data == told


async def test_nobody_is_offered_what_they_may_not_do_themselves(world: World) -> None:
    async with world() as sw:
        for held in PERMISSIONS:
            async with agent(seat(sw, "build", permission=held)) as client:
                assert ("runs_start" in await tools(client)) == allows(held, "run")
                assert ("drafts_save" in await tools(client)) == allows(held, "build")
        async with agent(seat(sw, "build", permission="own")) as client:
            assert "secrets_rotate" not in await tools(client)
            with pytest.raises(MCPError, match="not offered"):
                await client.call_tool("secrets_rotate")


async def test_tools_say_what_they_do_to_whom(world: World) -> None:
    async with world() as sw, agent(seat(sw)) as client:
        found = await tools(client)
    for each in offered():
        if each.needs == "own":
            continue
        tool = found[named(each.name)]
        assert tool.description == each.description
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is not each.changes
        assert tool.annotations.destructive_hint is each.destructive
        schema = tool.input_schema
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert schema["properties"].keys() == each.parameters.keys()
        assert "$ref" not in str(schema)
    destructive = {name for name, tool in found.items() if tool.annotations.destructive_hint}
    for name in ("definitions_publish", "drafts_publish", "definitions_delete",
                 "definitions_rollback", "definitions_sync", "definitions_sync_all"):  # fmt: skip
        assert name in destructive
    assert not destructive & {"drafts_save", "definitions_create", "runs_start"}


class Recorder:
    """A place that keeps what its operations were given last and have returned."""

    def __init__(self, place: Stepwell) -> None:
        self._place = place
        self.calls: dict[str, tuple[dict[str, Any], Any]] = {}

    def noun(self, name: str) -> Any:
        return Recorded(self._place.noun(name), self.calls)


class Recorded:
    """A noun of such a place."""

    def __init__(self, noun: Any, calls: dict[str, tuple[dict[str, Any], Any]]) -> None:
        self._noun = noun
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._noun, name)

        async def call(**given: Any) -> Any:
            value = await method(**given)
            self._calls[f"{self._noun.noun}.{name}"] = given, value
            return value

        return call


@generations
async def test_every_operation_answers_what_it_returns(world: World, generation: str) -> None:
    called: set[str] = set()
    async with world(settings=Settings(secret_key=new_key())) as sw, sw.worker():
        place = Recorder(sw)
        async with agent(seat(place), generation) as client:

            async def do(operation: str, /, **arguments: Any) -> Any:
                found = await done(client, named(operation), **arguments)
                declared = operations()[operation]
                given, value = place.calls.pop(f"{declared.noun}.{declared.function.__name__}")
                shown = declared.shown(value)
                assert found == msgspec.json.decode(msgspec.json.encode(shown))
                assert arguments.items() <= given.items()
                for name, what in declared.caller.items():
                    assert given[name] == getattr(seat(sw).caller, what)
                called.add(operation)
                return found

            await walk(sw, do)
    assert called == {each.name for each in offered() if each.needs != "own"}


async def walk(sw: Stepwell, do: Callable[..., Awaitable[Any]]) -> None:
    """Call every operation once, at least, with something that there is."""
    await definitions(do)
    await triggers(do)
    await publish(sw, GATED, TASKS)
    started = await do("runs.start", ref="ship", input={"tag": "v1"}, idempotency_key="once")
    gate = await open_gate(sw, started["id"])
    assert (await do("gates.list", run_id=started["id"]))["items"][0]["id"] == gate.id
    await do("gates.get", gate_id=gate.id)
    await do("gates.token", gate_id=gate.id)
    await do("gates.decide", gate_id=gate.id, decision="approve", seen_hash=gate.subject_hash)
    ended = await do("runs.start", ref="ship", input={"tag": "v1"}, idempotency_key="once", wait=60)
    assert (ended["created"], ended["status"]) == (False, "completed")
    await do("runs.get", run_id=started["id"])
    await do("runs.explain", run_id=started["id"])
    await do("steps.list", run_id=started["id"])
    await do("runs.fork", run_id=started["id"], from_step="ok", input={"tag": "v2"})
    await tasks(sw, do)
    await do("events.emit", type="paid", payload={"by": "card"})
    assert (await do("events.list", type="paid"))["items"][0]["payload"] == {"by": "card"}
    await do("secrets.set", name="hook", value="correct horse battery")
    assert [each["name"] for each in (await do("secrets.list"))["items"]] == ["hook"]
    await do("secrets.delete", name="hook")
    assert (await do("workers.list"))["items"][0]["alive"] is True


async def definitions(do: Callable[..., Awaitable[Any]]) -> None:
    free = {"proposals": True, "self_review": True}
    first = definition(node("a", "delay", duration=1), name="tidy-up", policy=free)
    second = definition(node("b", "delay", duration=1), name="tidy-up", policy=free)
    await do("definitions.create", name="tidy-up")
    draft = await do("drafts.save", name="tidy-up", document=first)
    assert (await do("drafts.get", name="tidy-up"))["etag"] == draft["etag"]
    await do("drafts.publish", name="tidy-up", if_match=draft["etag"], enabled=True)
    await do("drafts.save", name="tidy-up", document=second)
    assert await do("drafts.discard", name="tidy-up") == {"discarded": True}
    await do("definitions.publish", document=second)
    await do("definitions.rollback", name="tidy-up", ref=1)
    await do("definitions.sync", document=second)
    await do("definitions.sync_all", documents=[first], apply=False)
    await do("definitions.get", name="tidy-up")
    await do("definitions.list")
    assert (await do("definitions.document", name="tidy-up"))["document"]["name"] == "tidy-up"
    await do("definitions.revision", name="tidy-up", ref="1")
    await do("definitions.history", name="tidy-up")
    await do("definitions.diff", name="tidy-up", a=1, b=2)
    assert (await do("definitions.validate", document={"name": "?"}))["ok"] is False
    await do("definitions.set_enabled", name="tidy-up", enabled=True)
    await do("definitions.set_layout", name="tidy-up", layout={"b": [1, 2]})
    assert (await do("definitions.layout", name="tidy-up"))["layout"] == {"b": [1, 2]}
    edits = [{"op": "update_node", "id": "b", "set": {"config.duration": 2}}]
    proposal = await do("proposals.propose", name="tidy-up", operations=edits)
    await do("proposals.get", proposal_id=proposal["id"])
    await do("proposals.list", name="tidy-up")
    await do("proposals.review", proposal_id=proposal["id"], approve=True)
    await do("proposals.apply", proposal_id=proposal["id"])
    await do("definitions.publish", document={**first, "name": "gone"})
    assert await do("definitions.delete", name="gone") is None


async def triggers(do: Callable[..., Awaitable[Any]]) -> None:
    daily = {"cron": "0 9 * * *"}
    made = await do("triggers.create", definition="tidy-up", type="schedule", config=daily)
    of_it = {"trigger": made["id"]}
    await do("triggers.list", definition="tidy-up")
    await do("triggers.get", **of_it)
    await do("triggers.preview", **of_it)
    await do("triggers.update", **of_it, config={"cron": "0 10 * * *"})
    await do("triggers.disable", **of_it)
    await do("triggers.enable", **of_it)
    await do("triggers.fire", **of_it)
    await do("triggers.refusals", **of_it)
    await do("triggers.delete", **of_it)


async def tasks(sw: Stepwell, do: Callable[..., Awaitable[Any]]) -> None:
    started = await do("runs.start_document", document=TASKS)
    of_it = {"run_id": started["id"]}
    while not (await sw.tasks(started["id"])):
        pass
    assert (await do("steps.tasks", **of_it))["items"][0]["title"] == "Build it"
    assert await do("steps.advance", **of_it, step="build", summary="Built.") is None
    await do("runs.signal", **of_it, event="hello")
    await do("runs.list", status=["pending", "running", "waiting"], definition="chores", limit=5)
    await do("runs.counts")
    assert await do("runs.cancel", **of_it) == {"cancelled": True}
    await do("runs.retry", **of_it)


@generations
async def test_errors_have_the_code_message_and_details_of_elsewhere(
    world: World, generation: str
) -> None:
    async with world() as sw, agent(seat(sw), generation) as client:
        result = await client.call_tool("runs_get", {"run_id": "nosuchrun"})
        assert result.is_error
        error = result.structured_content["error"]
        assert (error["code"], error["details"]) == ("run_not_found", {"run_id": "nosuchrun"})
        result = await client.call_tool("definitions_publish", {"document": {"name": "x y"}})
        error = result.structured_content["error"]
        assert error["code"] == "invalid_definition"
        assert error["details"]["problems"]


async def test_the_server_introduces_itself(world: World) -> None:
    async with world() as sw, agent(seat(sw), NEW) as client:
        assert client.server_info.name == "stepwell"
        assert "runs_explain" in (client.instructions or "")

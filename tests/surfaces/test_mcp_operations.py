"""Every operation is a tool, for those who may; it answers what the operation returns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from mcp.shared.exceptions import MCPError

from stepwell.catalog import operations
from stepwell.kernel.sealing import new_key
from stepwell.mcp.offers import WITHHELD
from stepwell.operation import PERMISSIONS, Operation, Permission, allows
from stepwell.settings import Settings
from tests.conftest import World
from tests.surfaces.agents import HELLO, NEW, agent, done, generations, publish, seat, tools
from tests.surfaces.scenario import Recorder, walk

LEVELS: list[Permission] = ["read", "run", "build"]


def named(operation: str) -> str:
    return operation.replace(".", "_")


def offered() -> list[Operation]:
    """All operations but those about who may do what."""
    return [each for each in operations().values() if not WITHHELD & {each.noun, each.name}]


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
        untold = {"token"} if each.name == "gates.decide" else set()
        assert schema["properties"].keys() == each.parameters.keys() - untold
        assert "$ref" not in str(schema)
    destructive = {name for name, tool in found.items() if tool.annotations.destructive_hint}
    for name in ("definitions_publish", "drafts_publish", "definitions_delete",
                 "definitions_rollback", "definitions_sync", "definitions_sync_all",
                 "gates_decide"):  # fmt: skip
        assert name in destructive
    assert not found.keys() & {"gates_token", "gates_answer"}
    assert not destructive & {"drafts_save", "definitions_create", "runs_start"}


@generations
async def test_every_operation_answers_what_it_returns(world: World, generation: str) -> None:
    called: set[str] = set()
    async with world(settings=Settings(secret_key=new_key())) as sw, sw.worker():
        place = Recorder(sw)
        async with agent(seat(place), generation) as client:

            async def do(operation: str, /, **arguments: Any) -> Any:
                declared = operations()[operation]
                if operation in WITHHELD:  # what somebody does who is no agent
                    return declared.shown(await declared.call(sw, seat(sw).caller, arguments))
                found = await done(client, named(operation), **arguments)
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
        await publish(sw, HELLO)
        result = await client.call_tool("runs_start", {"ref": "say-hello", "input": {"name": ""}})
        error = result.structured_content["error"]
        assert (error["code"], error["details"].keys()) == ("input_invalid", {"problems"})


async def test_the_server_introduces_itself(world: World) -> None:
    async with world() as sw, agent(seat(sw), NEW) as client:
        assert client.server_info.name == "stepwell"
        assert "runs_explain" in (client.instructions or "")

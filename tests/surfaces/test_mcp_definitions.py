"""Every enabled definition is a tool of its own: what it is called, takes and answers."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp.client.subscriptions import ToolsListChanged
from mcp.shared.exceptions import MCPError

from stepwell.mcp.definitions import MAX_NAME, PAGE, tool_name
from stepwell.mcp.seat import Manner
from tests.conftest import World
from tests.engine.support import until
from tests.operations.support import definition, document, node
from tests.surfaces.agents import (
    ENDLESS,
    HELLO,
    NEW,
    OLD,
    TASKS,
    agent,
    done,
    generations,
    publish,
    refused,
    seat,
    tools,
)


@generations
async def test_a_definition_is_a_tool_with_its_own_schema(world: World, generation: str) -> None:
    async with world() as sw, sw.worker():
        await publish(sw, HELLO, {**HELLO, "name": "long" * 25})
        async with agent(seat(sw, "run"), generation) as client:
            tool = (await tools(client))["run_say_hello"]
            assert tool.title == "Say hello"
            assert (tool.description or "").startswith("Greets somebody by name.")
            assert tool.input_schema == HELLO["inputs"]
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is False
            answer = await done(client, "run_say_hello", name="Ada")
            assert (answer["status"], answer["output"]) == ("completed", {"hello": "Ada"})
            assert (await done(client, tool_name("long" * 25), name="Bo"))["output"] == {
                "hello": "Bo"
            }
            run = await sw.get_run(answer["run_id"])
            assert (run.definition, run.input) == ("say-hello", {"name": "Ada"})


@generations
async def test_arguments_that_do_not_fit_start_nothing(world: World, generation: str) -> None:
    async with world() as sw:
        await publish(sw, HELLO)
        async with agent(seat(sw, "run"), generation) as client:
            for arguments in ({}, {"name": ""}, {"name": 7}, {"name": "Ada", "nam": "x"}):
                error = await refused(client, "run_say_hello", **arguments)
                assert error["code"] == "input_invalid"
                assert error["details"]["problems"]
        assert (await sw.list_runs()).items == []


async def test_only_enabled_and_published_definitions_are_tools_of_those_who_may_run(
    world: World,
) -> None:
    async with world() as sw:
        await publish(sw, HELLO)
        await sw.definitions.publish(document("off"), enabled=False)
        await sw.definitions.create("drafted", enabled=True)
        async with agent(seat(sw, "run")) as client:
            found = [each for each in await tools(client) if each.startswith("run_")]
            assert found == ["run_say_hello"]
            for name in ("run_off", "run_drafted", "run_nothing", "run_", "run_say-hello"):
                with pytest.raises(MCPError, match="There is no tool"):
                    await client.call_tool(name)
        async with agent(seat(sw, "read")) as client:
            assert "run_say_hello" not in await tools(client)
            with pytest.raises(MCPError, match="There is no tool"):
                await client.call_tool("run_say_hello", {"name": "Ada"})


def test_names_of_tools_are_short_and_never_the_same() -> None:
    assert tool_name("nightly-checks") == "run_nightly_checks"
    slugs = ["a" * length for length in range(50, 101)] + ["a" * 99 + "b", "a" * 98 + "-b"]
    names = {tool_name(slug) for slug in slugs}
    assert len(names) == len(slugs)
    assert all(len(name) <= MAX_NAME for name in names)


@pytest.mark.parametrize(
    ("inputs", "arguments", "input"),
    [
        (None, {"anything": [1]}, {"anything": [1]}),
        (None, {}, {}),
        ({"properties": {"n": {"default": 3}}}, {}, {"n": 3}),
        ({"type": ["object", "null"]}, {"a": 1}, {"a": 1}),
        ({"type": "string"}, {"input": "text"}, "text"),
        ({"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "number"}}},
         {"input": [1, 2]}, [1, 2]),
    ],
)  # fmt: skip
async def test_whatever_a_definition_takes_can_be_given(
    world: World, inputs: Any, arguments: Any, input: Any
) -> None:
    echo = definition(node("a", "transform", value="@input"), name="echo")
    async with world() as sw, sw.worker():
        await publish(sw, echo if inputs is None else {**echo, "inputs": inputs})
        async with agent(seat(sw)) as client:
            schema = (await tools(client))["run_echo"].input_schema
            assert schema["type"] == "object"
            assert (await done(client, "run_echo", **arguments))["output"] == input
            if "input" in arguments:
                assert (await refused(client, "run_echo"))["code"] == "invalid_input"
                assert (await refused(client, "run_echo", input=None))["code"] == "input_invalid"


async def test_hundreds_of_definitions_come_in_pages(world: World) -> None:
    async with world() as sw:
        for number in range(PAGE + 3):
            await publish(sw, document(f"d-{number:03}"))
        async with agent(seat(sw)) as client:
            first = await client.list_tools()
            assert sum(each.name.startswith("run_d_") for each in first.tools) == PAGE
            assert first.next_cursor is not None
            await sw.definitions.delete(first.next_cursor)
            second = await client.list_tools(cursor=first.next_cursor)
            assert [each.name for each in second.tools] == ["run_d_100", "run_d_101", "run_d_102"]
            assert second.next_cursor is None
            with pytest.raises(MCPError, match="There is no page"):
                await client.list_tools(cursor="../etc")


@generations
async def test_a_long_run_is_answered_with_a_handle(world: World, generation: str) -> None:
    manner = Manner(wait_seconds=0.05, url="https://stepwell.test/")
    async with world() as sw, sw.worker():
        await publish(sw, ENDLESS)
        async with agent(seat(sw, "run"), generation, manner) as client:
            answer = await done(client, "run_endless")
            assert answer["status"] in ("pending", "running", "waiting")
            assert answer["link"] == f"https://stepwell.test/runs/{answer['run_id']}"
            assert "runs_get" in answer["next"]
            assert answer["why"]
            run = await done(client, "runs_get", run_id=answer["run_id"])
            assert run["definition"] == "endless"


async def test_a_run_that_nobody_executes_says_so(world: World) -> None:
    async with world() as sw:
        await publish(sw, HELLO)
        async with agent(seat(sw), NEW, Manner(wait_seconds=0)) as client:
            answer = await done(client, "run_say_hello", name="Ada")
            assert answer["status"] == "pending"
            assert "worker" in answer["why"]


@generations
async def test_a_run_that_fails_is_an_error_with_its_id(world: World, generation: str) -> None:
    broken = definition(node("a", "transform", value="{{input.no.such}}"), name="broken")
    async with world() as sw, sw.worker():
        await publish(sw, broken)
        async with agent(seat(sw), generation) as client:
            error = await refused(client, "run_broken")
            assert error["code"] == "run_failed"
            assert (await sw.get_run(error["details"]["run_id"])).status == "failed"
            assert error["details"]["error"]["step"] == "a"


@generations
async def test_a_call_that_is_cancelled_leaves_its_run_alone(world: World, generation: str) -> None:
    async with world() as sw, sw.worker():
        await publish(sw, ENDLESS)
        async with agent(seat(sw), generation) as client:
            async with anyio.create_task_group() as calls:
                calls.start_soon(client.call_tool, "run_endless")
                while not (await sw.list_runs()).items:
                    await anyio.lowlevel.checkpoint()
                calls.cancel_scope.cancel()
            [run] = (await sw.list_runs()).items
            await until(sw, run.id, "waiting")
            assert (await done(client, "runs_cancel", run_id=run.id)) == {"cancelled": True}


@generations
async def test_agents_of_the_molecule_protocol_do_the_tasks_of_runs(
    world: World, generation: str
) -> None:
    async with world() as sw, sw.worker():
        await publish(sw, TASKS)
        async with agent(seat(sw, "run"), generation) as client:
            assert await done(client, "gt_mol_current") == {"items": []}
            answer = await done(client, "run_chores")
            assert answer["tasks"][0]["title"] == "Build it"
            assert "gt_mol_advance" in answer["next"]
            run_id = answer["run_id"]
            [task] = (await done(client, "gt_mol_current"))["items"]
            assert task == {
                "run_id": run_id, "definition": "chores", "step": "build", "title": "Build it",
                "instructions": "With care.", "acceptance": "It runs.",
                "assignee": None,
            }  # fmt: skip
            assert (await done(client, "gt_mol_current", run_id=run_id))["items"] == [task]
            advanced = await done(client, "gt_mol_advance", run_id=run_id, output={"size": 12})
            assert [each["step"] for each in advanced["items"]] == ["ship"]
            error = await refused(client, "gt_mol_advance", run_id=run_id, step="build")
            assert error["code"] == "step_not_found"
            ended = await done(
                client, "gt_mol_advance", run_id=run_id, step="ship", summary="Gone."
            )
            assert (ended["status"], ended["items"]) == ("completed", [])
            run = await sw.get_run(run_id)
            assert run.output == {"built": {"size": 12}, "shipped": "Gone."}
            error = await refused(client, "gt_mol_advance", run_id=run_id)
            assert error["code"] == "step_not_found"


async def test_whoever_listens_hears_of_new_tools(world: World) -> None:
    async with world() as sw, agent(seat(sw)) as client:
        async with client.listen(tools_list_changed=True) as heard:
            await publish(sw, HELLO)
            assert await anext(aiter(heard)) == ToolsListChanged()
            assert "run_say_hello" in await tools(client)


async def test_nobody_listens_without_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepwell.mcp.server.MOST_LISTENERS", 1)
    async with world() as sw, agent(seat(sw)) as client:

        async def can_listen() -> bool:
            try:
                async with client.listen(tools_list_changed=True):
                    return True
            except MCPError as error:
                return "stop one of them" not in str(error)

        async with client.listen(tools_list_changed=True):
            assert not await can_listen()
        while not await can_listen():
            await anyio.lowlevel.checkpoint()


async def test_only_the_newest_protocol_promises_news_where_nothing_can_be_pushed(
    world: World,
) -> None:
    async with world() as sw:
        async with agent(seat(sw), NEW) as client:
            assert client.server_capabilities.tools is not None
            assert client.server_capabilities.tools.list_changed is True
        async with agent(seat(sw), OLD) as client:
            assert client.server_capabilities.tools is not None
            assert client.server_capabilities.tools.list_changed is False

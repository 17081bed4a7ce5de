"""Whatever clients send: they are told what is wrong, and nothing breaks."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.conftest import World
from tests.surfaces.agents import HELLO, OLD, agent, done, generations, publish, refused, seat


def nested(depth: int) -> Any:
    found: Any = 0
    for _ in range(depth):
        found = [found]
    return found


@generations
async def test_a_tool_that_there_is_not_is_refused_by_name(world: World, generation: str) -> None:
    async with world() as sw, agent(seat(sw), generation) as client:
        names = ("", "runs.start", "runs_explode", "run_", "__class__", "x" * 100_000, "\0")
        for name in names:
            with pytest.raises(MCPError, match="There is no tool") as error:
                await client.call_tool(name)
            assert error.value.error.data == {"code": "unknown_tool"}
            assert len(str(error.value)) < 1000


@generations
@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("runs_get", {}, "run_id"),
        ("runs_get", {"run_id": None}, "run_id"),
        ("runs_get", {"run_id": {"$ne": 1}}, "run_id"),
        ("runs_get", {"run_id": "x", "id": "y"}, "id"),
        ("runs_list", {"limit": 0}, "limit"),
        ("runs_list", {"limit": 10**30}, "limit"),
        ("runs_list", {"status": "waiting"}, "status"),
        ("runs_list", {"since": "yesterday"}, "since"),
        ("gates_decide", {"gate_id": "x", "decision": "maybe"}, "decision"),
        ("gates_decide", {"gate_id": "x", "decision": "approve", "by": "root"}, "by"),
        ("gates_decide", {"gate_id": "x", "decision": "approve", "token": "x.y"}, "token"),
        ("runs_start", {"ref": "say-hello", "user": "root"}, "user"),
        ("gt_mol_advance", {"run_id": ["x"]}, "run_id"),
        ("gt_mol_current", {"runid": "x"}, "runid"),
    ],
)
async def test_arguments_of_other_kinds_are_refused_by_name(
    world: World, generation: str, tool: str, arguments: Any, said: str
) -> None:
    async with world() as sw, agent(seat(sw), generation) as client:
        error = await refused(client, tool, **arguments)
        assert error["code"] == "invalid_input"
        assert f"`{said}`" in error["message"] or f"$.{said}" in error["message"]
        assert " There are: " in error["message"]


@generations
@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("gates_decide", {"gate_id": "x", "decision": "deny", "note": "\0"}, "note"),
        ("events_emit", {"type": "paid", "key": "\0"}, "key"),
        ("gates_get", {"gate_id": "a\0b"}, "gate_id"),
        ("gates_decide", {"gate_id": "a\0b", "decision": "deny"}, "gate_id"),
        ("gates_list", {"run_id": "a\0b"}, "run_id"),
        ("triggers_list", {"definition": "a\0b"}, "definition"),
        ("secrets_delete", {"name": "a\0b"}, "name"),
    ],
)
async def test_a_text_with_a_nul_is_refused_by_name(
    world: World, generation: str, tool: str, arguments: Any, said: str
) -> None:
    async with world() as sw, agent(seat(sw), generation) as client:
        error = await refused(client, tool, **arguments)
        assert (error["code"], error["details"]) == ("invalid_input", {"path": said})
        assert "NUL" in error["message"]


@generations
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("x" * 2_000_000, "input_too_large"),
        (nested(240), "not_serialisable"),
        (7, "input_invalid"),
    ],
    ids=["huge", "deep", "number"],
)
async def test_inputs_that_are_too_much_start_nothing(
    world: World, generation: str, name: Any, code: str
) -> None:
    anything = {key: value for key, value in HELLO.items() if key != "inputs"}
    async with world() as sw:
        await publish(sw, anything if code != "input_invalid" else HELLO)
        async with agent(seat(sw), generation) as client:
            for tool, arguments in (
                ("run_say_hello", {"name": name}),
                ("runs_start", {"ref": "say-hello", "input": {"name": name}}),
            ):
                error = await refused(client, tool, **arguments)
                assert error["code"] == code
                assert len(str(error)) < 10_000
        assert (await sw.list_runs()).items == []


@generations
async def test_what_breaks_inside_says_no_more_than_that(
    world: World, generation: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def noun(self, name: str) -> Any:
            raise ZeroDivisionError("/etc/secret is in the way")

    async with agent(seat(Broken()), generation) as client:
        with pytest.raises(MCPError) as listing:
            await client.list_tools()
        assert "secret" not in str(listing.value)
    async with world() as sw:

        class Half:
            def noun(self, name: str) -> Any:
                return sw.noun(name) if name == "definitions" else Broken().noun(name)

        async with agent(seat(Half()), generation) as client:
            error = await refused(client, "runs_get", run_id="x")
            assert error["code"] == "internal_error"
            assert "secret" not in str(error)
            assert "/etc/secret is in the way" in caplog.text
            assert "items" in await done(client, "definitions_list")


async def test_a_store_that_is_closed_is_an_answer_too(world: World) -> None:
    async with world() as sw:
        pass
    async with world() as open_one:
        await publish(open_one, HELLO)
        async with agent(seat(open_one), OLD) as client:
            assert await done(client, "runs_list")
    async with agent(seat(sw)) as client:
        result = await client.call_tool("runs_list")
        assert result.is_error
        assert "Traceback" not in str(result)

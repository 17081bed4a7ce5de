"""Agents: the official client, of both generations of the protocol, connected to our server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import msgspec
import pytest
from mcp import Client

from stepwell import Stepwell
from stepwell.mcp.seat import Manner, Seat
from stepwell.mcp.server import server_of
from stepwell.operation import Caller, Permission
from tests.operations.support import definition, node

# What the client calls them: a handshake first; or the newest there is, without one.
OLD, NEW = "legacy", "auto"
VERSIONS = {OLD: "2025-11-25", NEW: "2026-07-28"}
generations = pytest.mark.parametrize("generation", [OLD, NEW])

HELLO = definition(
    node("greet", "transform", value={"hello": "{{input.name}}"}),
    name="say-hello",
    title="Say hello",
    description="Greets somebody by name.",
    inputs={
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 1}},
        "required": ["name"],
    },
)
GATED = definition(
    node("ok", "approval", prompt="Ship {{input.tag}}?", subject={"tag": "@input.tag"}),
    node("after", "transform", value={"by": "@ok.by", "note": "@ok.note"}),
    name="ship",
)
TASKS = definition(
    node("build", "task", title="Build it", instructions="With care.", acceptance="It runs."),
    node("ship", "task", title="Ship it"),
    name="chores",
    output={"built": "@build.output", "shipped": "@ship.summary"},
)
ENDLESS = definition(node("wait", "wait_event", event="never"), name="endless")


def seat(place: Any, level: Permission = "build", **caller: Any) -> Seat:
    """Where ada sits, with these permissions."""
    return Seat(place, Caller(**{"name": "ada", "permission": level, **caller}), level)


@asynccontextmanager
async def agent(
    where: Seat, generation: str = NEW, manner: Manner | None = None, **options: Any
) -> AsyncIterator[Client]:
    """A client whose server is in this process."""
    server = server_of(lambda _: where, manner or Manner(wait_seconds=60))
    async with Client(server, mode=generation, cache=None, **options) as client:
        assert client.protocol_version == VERSIONS[generation]
        yield client


async def publish(sw: Stepwell, *documents: dict[str, Any]) -> None:
    for each in documents:
        await sw.definitions.publish(each, enabled=True)


async def done(client: Client, tool: str, /, **arguments: Any) -> Any:
    """What a tool answers that does as it is told; as text it says the same."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    [text] = result.content
    assert isinstance(text, types.TextContent)
    if result.structured_content is None:
        assert text.text == "Done."
    else:
        assert msgspec.json.decode(text.text) == result.structured_content
    return result.structured_content


async def refused(client: Client, tool: str, /, **arguments: Any) -> Any:
    """The error that a tool answers with."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    [text] = result.content
    assert isinstance(text, types.TextContent)
    assert "Traceback" not in text.text
    assert msgspec.json.decode(text.text) == result.structured_content
    error = result.structured_content["error"]
    assert set(error) <= {"code", "message", "details"}
    assert error["message"]
    return error


async def tools(client: Client) -> dict[str, types.Tool]:
    """All tools, from all pages."""
    found: list[types.Tool] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            assert len({each.name for each in found}) == len(found)
            return {each.name: each for each in found}


class Person:
    """Somebody whose client asks them, and who answers the same to all."""

    def __init__(self, action: Any = "accept", **content: Any) -> None:
        self.asked: list[str] = []
        self.called = asyncio.Event()
        self._answer = types.ElicitResult(action=action, content=content or None)

    async def __call__(self, _: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        self.called.set()
        return self._answer

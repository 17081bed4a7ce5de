"""The tools over HTTP: a real server, real clients, and whatever else may come over the wire."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types as types
import pytest
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Scope

from stepwell import Stepwell
from stepwell.mcp import Manner, mcp_app
from stepwell.operation import Caller, Place
from tests.conftest import World
from tests.engine.support import eventually, until
from tests.surfaces.agents import (
    ENDLESS,
    GATED,
    HELLO,
    NEW,
    OLD,
    VERSIONS,
    Person,
    done,
    generations,
    publish,
    tools,
)

QUICK = Manner(wait_seconds=60, url="https://stepwell.test")
JSON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@asynccontextmanager
async def serving(manner: Manner = QUICK, **places: Stepwell) -> AsyncIterator[str]:
    """The address of a server; the token of a workspace is its name, perhaps with a level."""

    async def resolve(scope: Scope) -> tuple[Place, Caller, None, None] | None:
        given = dict(scope["headers"]).get(b"authorization", b"").decode()
        name, _, level = given.removeprefix("Bearer ").partition(":")
        if name not in places:
            return None
        permission: Any = level or "build"
        return places[name], Caller(f"{name}'s agent", permission), None, None

    app = Starlette(routes=[Route("/mcp", mcp_app(resolve, manner=manner))])
    config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    # Said to be TCP: of others asyncio does not know that small packets must not be held back.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        served = asyncio.create_task(server.serve([listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            await served


@asynccontextmanager
async def connected(
    url: str, generation: str, token: str = "one", **options: Any
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=generation, cache=None, **options) as client:
            assert client.protocol_version == VERSIONS[generation]
            yield client


@generations
async def test_tools_are_listed_and_called(world: World, generation: str) -> None:
    async with world() as sw, sw.worker(), serving(one=sw) as url:
        await publish(sw, HELLO)
        async with connected(url, generation) as client:
            assert {"run_say_hello", "drafts_save"} <= (await tools(client)).keys()
            answer = await done(client, "run_say_hello", name="Ada")
            assert answer["output"] == {"hello": "Ada"}
            shown = await done(client, "runs_get", run_id=answer["run_id"])
            assert shown["input"] == {"name": "Ada"}


@generations
async def test_a_token_is_offered_what_it_may_do(world: World, generation: str) -> None:
    async with world() as sw, serving(one=sw) as url:
        await publish(sw, HELLO)
        async with connected(url, generation, "one:read") as client:
            found = await tools(client)
            assert "runs_get" in found
            assert not {"run_say_hello", "runs_start", "drafts_save"} & found.keys()
            with pytest.raises(MCPError, match="not offered"):
                await client.call_tool("runs_start", {"ref": "say-hello"})
        async with connected(url, generation, "one:own") as client:
            assert "secrets_rotate" not in await tools(client)


@generations
async def test_callers_at_the_same_time_reach_their_own_workspace_only(
    world: World, generation: str
) -> None:
    async with world(workspace="a") as one, world(workspace="b") as two:
        await publish(one, HELLO)
        async with serving(one=one, two=two) as url:
            async with (
                connected(url, generation, "one") as first,
                connected(url, generation, "two") as second,
            ):
                started = await done(first, "runs_start", ref="say-hello", input={"name": "Ada"})
                assert "run_say_hello" not in await tools(second)
                result = await second.call_tool("runs_get", {"run_id": started["id"]})
                assert result.structured_content["error"]["code"] == "run_not_found"
                assert (await done(second, "runs_list"))["items"] == []
                assert len((await done(first, "runs_list"))["items"]) == 1


def request(method: str, params: Any = None, generation: str = OLD) -> dict[str, Any]:
    """A call as it goes over the wire."""
    given = dict(params or {})
    if generation == NEW:
        prefix = "io.modelcontextprotocol/"
        given["_meta"] = {
            f"{prefix}protocolVersion": VERSIONS[NEW],
            f"{prefix}clientInfo": {"name": "test", "version": "1"},
            f"{prefix}clientCapabilities": {},
        }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": given}


def headers(generation: str, method: str = "tools/list", name: str = "") -> dict[str, str]:
    named = {"Mcp-Name": name} if name and generation == NEW else {}
    routed = {"Mcp-Method": method} if generation == NEW else {}
    return {
        **JSON, **named, **routed, "MCP-Protocol-Version": VERSIONS[generation],
        "Authorization": "Bearer one",
    }  # fmt: skip


@generations
async def test_every_request_has_to_say_who_sends_it(world: World, generation: str) -> None:
    async with world() as sw, serving(one=sw) as url, httpx2.AsyncClient() as http:
        listing = request("tools/list", generation=generation)
        known = headers(generation)
        answer = await http.post(url, json=listing, headers=known)
        assert answer.status_code == 200
        assert "mcp-session-id" not in answer.headers
        for token in ({}, {"Authorization": "Bearer nobody"}, {"Authorization": "Basic b25l"}):
            unknown = {key: value for key, value in known.items() if key != "Authorization"}
            for session in ({}, {"Mcp-Session-Id": "1" * 32}):
                sent = {**unknown, **token, **session}
                for method in ("POST", "GET", "DELETE"):
                    answer = await http.request(method, url, json=listing, headers=sent)
                    assert answer.status_code == 401
                    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
                    assert answer.json()["code"] == "unauthenticated"


async def test_there_are_no_sessions_to_be_joined(world: World) -> None:
    async with world() as sw, serving(one=sw) as url, httpx2.AsyncClient() as http:
        for generation in (OLD, NEW):
            for method in ("GET", "DELETE", "PUT"):
                answer = await http.request(method, url, headers=headers(generation))
                assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@generations
async def test_a_client_is_asked_in_answers_and_told_where_it_cannot_be(
    world: World, generation: str
) -> None:
    ada = Person(decision="approve")
    async with world() as sw, sw.worker(), serving(one=sw) as url:
        await publish(sw, GATED)
        async with connected(url, generation, elicitation_callback=ada) as client:
            answer = await done(client, "run_ship", tag="v1")
        if generation == NEW:
            assert answer["output"]["by"] == ["one's agent"]
            assert len(ada.asked) == 1
        else:
            # Without a session there is no way back for what somebody says.
            assert ada.asked == []
            [gate] = answer["gates"]
            assert gate["link"] == f"https://stepwell.test/gates/{gate['id']}"


async def test_any_process_can_go_on_with_what_another_has_asked(world: World) -> None:
    async with world() as sw, sw.worker(), world() as other:
        await publish(sw, GATED)
        async with serving(one=sw) as first, serving(one=other) as second:
            async with connected(first, NEW, elicitation_callback=Person()) as client:
                asked = await client.session.call_tool(
                    "run_ship", {"tag": "v1"}, allow_input_required=True
                )
                assert isinstance(asked, types.InputRequiredResult)
            [gate_id] = asked.input_requests or {}
            said = {gate_id: types.ElicitResult(action="accept", content={"decision": "approve"})}
            async with connected(second, NEW) as client:
                result = await client.call_tool(
                    "run_ship", {"tag": "v1"}, input_responses=said,
                    request_state=asked.request_state,
                )  # fmt: skip
                assert result.structured_content["status"] == "completed"


@generations
async def test_a_client_that_hangs_up_leaves_its_run_alone(world: World, generation: str) -> None:
    async with world() as sw, sw.worker(), serving(one=sw) as url:
        await publish(sw, ENDLESS)
        body = request("tools/call", {"name": "run_endless", "arguments": {}}, generation)
        sent = headers(generation, "tools/call", "run_endless")
        async with httpx2.AsyncClient(timeout=60) as http:
            call = asyncio.create_task(http.post(url, json=body, headers=sent))
            while not (runs := (await sw.list_runs()).items):
                await asyncio.sleep(0.001)
            call.cancel()
        await until(sw, runs[0].id, "waiting")
        await eventually(lambda: not answering())
        assert await sw.cancel(runs[0].id)


def answering() -> list[str]:
    """The tasks in which the server still answers requests."""
    found = [str(getattr(each.get_coro(), "__qualname__", "")) for each in asyncio.all_tasks()]
    return [each for each in found if each.endswith("run_asgi")]


@generations
async def test_whoever_listens_over_http_hears_of_new_tools(world: World, generation: str) -> None:
    async with world() as sw, serving(one=sw) as url, connected(url, generation) as client:
        if generation == OLD:
            assert client.server_capabilities.tools is not None
            assert client.server_capabilities.tools.list_changed is False
            return
        async with client.listen(tools_list_changed=True) as heard:
            await publish(sw, HELLO)
            await anext(aiter(heard))
            assert "run_say_hello" in await tools(client)


NO_REQUESTS = (
    (b"", 400),
    (b"{", 400),
    (b"[]", 400),
    (b"\xff\xfe", 400),
    (b'{"jsonrpc": "2.0"}', 400),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": [1]}', 400),
    (b"[" * 200_000, 400),
    (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400),
    (b'{"x": "' + b"x" * 5_000_000 + b'"}', 413),
)


@generations
async def test_bodies_that_are_no_requests_are_refused(world: World, generation: str) -> None:
    async with world() as sw, serving(one=sw) as url, httpx2.AsyncClient() as http:
        for body, status in NO_REQUESTS:
            answer = await http.post(url, content=body, headers=headers(generation))
            assert answer.status_code == status, answer.text
            assert "Traceback" not in answer.text
        listing = request("tools/list", generation=generation)
        assert (await http.post(url, json=listing, headers=headers(generation))).status_code == 200


@generations
async def test_texts_that_are_none_are_answered_all_the_same(world: World, generation: str) -> None:
    async with world() as sw, serving(one=sw) as url, httpx2.AsyncClient() as http:
        for name, arguments in (("\ud800", {}), ("runs_get", {"run_id": "\ud800"})):
            body = request("tools/call", {"name": name, "arguments": arguments}, generation)
            sent = headers(generation, "tools/call", "runs_get")
            answer = await http.post(url, content=json.dumps(body).encode(), headers=sent)
            assert answer.status_code < 500, answer.text
            assert "Traceback" not in answer.text

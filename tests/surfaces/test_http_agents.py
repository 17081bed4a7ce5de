"""Agents at `/mcp` of a real server: who they are, what they may, and that it is written down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from stepwell.operation import TIDY_UP
from tests.surfaces.agents import NEW, OLD
from tests.surfaces.serving import Served, served

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def agent(server: Served, role: str, generation: str = NEW) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {server.tokens[role]}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport: Any = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with Client(transport, mode=generation) as client:
            yield client


async def test_an_agent_runs_definitions_with_the_permission_of_its_token(store_url: str) -> None:
    async with served(store_url) as server:
        async with agent(server, "admin") as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"run_hello", "drafts_save", "runs_list"} <= names
            assert "tokens_create" not in names
            said = await client.call_tool("run_hello", {"name": "Ada"})
            assert "Hello, Ada!" in str(said.structured_content)
            await client.call_tool("definitions_publish", {"document": TIDY_UP})
        async with agent(server, "viewer") as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert "runs_list" in names
            assert not names & {"run_hello", "runs_start", "drafts_save"}
        access = server.host.first.store.access
        found = await access.audit(server.host.first_id, None, 10)
        assert [(each.operation, each.actor) for each in found] == [
            ("definitions.publish", "admin-1")
        ]


async def test_without_a_token_agents_are_refused(store_url: str) -> None:
    async with served(store_url, worker=False) as server:
        answer = await server.http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        problem = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["type"] == "urn:stepwell:error:unauthenticated"
        assert problem["request_id"] == answer.headers["x-request-id"]


async def test_pages_of_other_sites_are_refused_whoever_they_come_as(store_url: str) -> None:
    async with served(store_url, worker=False) as server:
        server.tokens["guess"] = "guess"
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        for role in ("admin", "guess", None):
            for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
                headers = {"origin": origin}
                answer = await server.ask("POST", "/mcp", ping, role=role, headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (403, "origin_refused")
        own = {"origin": server.url, "accept": "application/json, text/event-stream"}
        answer = await server.ask("POST", "/mcp", ping, role="admin", headers=own)
        assert answer.status_code == 200


async def test_a_request_that_is_no_call_is_refused_like_everywhere(store_url: str) -> None:
    async with served(store_url, worker=False) as server:
        answer = await server.ask("GET", "/mcp")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert answer.json()["type"] == "urn:stepwell:error:method_not_allowed"
        assert answer.json()["request_id"] == answer.headers["x-request-id"]


async def test_calls_are_counted_and_none_is_logged(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with served(store_url) as server:
        for generation in (OLD, NEW):
            async with agent(server, "admin", generation) as client:
                await client.call_tool("run_hello", {"name": "Ada"})
        await server.http.post("/mcp", json={})
        shown = (await server.ask("GET", "/metrics")).text
        requests = dict(re.findall(r'http_requests_total\{(.*operation="mcp".*)\} (.*)', shown))
        counted = {name: float(value) for name, value in requests.items()}
        assert counted.pop('method="POST",operation="mcp",status="4xx"') == 1
        [(labels, number)] = counted.items()
        assert 'status="2xx"' in labels
        assert number >= 2
    assert [each for each in caplog.messages if "session" in each.lower()] == []


async def test_an_agent_that_listens_does_not_hold_up_a_server_that_stops(store_url: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with served(store_url, grace_seconds=60) as server:
            client = await stack.enter_async_context(agent(server, "viewer"))
            heard = await stack.enter_async_context(client.listen(tools_list_changed=True))
            ended = asyncio.create_task(_all(heard))
        async with asyncio.timeout(30):
            await ended


async def test_an_agent_listens_no_longer_than_its_token_lasts(store_url: str) -> None:
    async with served(store_url) as server:
        wanted = {"name": "short", "permission": "read"}
        made = (await server.ask("POST", "/api/tokens", wanted)).json()
        server.tokens["short"] = made["text"]
        async with agent(server, "short") as client:
            async with client.listen(tools_list_changed=True) as heard:
                await server.ask("DELETE", f"/api/tokens/{made['id']}")
                async with asyncio.timeout(30):
                    assert await _all(heard) == []


async def _all(heard: Any) -> list[Any]:
    return [each async for each in heard]

"""Connections that are no good: heads without end, halves of requests, what is no HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepwell import workflow
from stepwell.api import connection as connections_module
from stepwell.api import server as server_module
from stepwell.api.connection import OWING_SECONDS, Connection, end_owing
from tests.engine.support import eventually
from tests.surfaces.serving import Served, served

pytestmark = pytest.mark.anyio

LATER = OWING_SECONDS + 1
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /api/definitions HTTP/1.1\r\nHost: localhost\r\n"


@workflow(name="patient")
async def patient(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("word", "word")


@pytest.fixture
async def server(store_url: str) -> AsyncIterator[Served]:
    async with served(store_url, [patient]) as found:
        yield found


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """Those that were made, in order."""
    found: list[Connection] = []
    made = Connection.connection_made

    def recorded(self: Connection, transport: Any) -> None:
        found.append(self)
        made(self, transport)

    monkeypatch.setattr(Connection, "connection_made", recorded)
    return found


class Caller:
    """Somebody who sends bytes as they like."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    @contextlib.asynccontextmanager
    async def sending_on(self, data: bytes) -> AsyncIterator[None]:
        """Send that without end meanwhile."""

        async def send() -> None:
            while True:
                await self.send(data)
                await asyncio.sleep(0)

        sending = asyncio.create_task(send())
        try:
            yield
        finally:
            sending.cancel()

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """One answer: its status, its headers and its JSON."""
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return int(first.split()[1]), headers, json.loads(body) if body else None

    async def rest(self) -> bytes:
        """What comes until the connection ends."""
        found = b""
        with contextlib.suppress(ConnectionError):
            while piece := await self._reader.read(65536):
                found += piece
        return found

    def close(self) -> None:
        self._writer.close()


@contextlib.asynccontextmanager
async def calling(server: Served, data: bytes = b"") -> AsyncIterator[Caller]:
    host, _, port = server.url.removeprefix("http://").partition(":")
    caller = Caller(*await asyncio.open_connection(host, int(port)))
    try:
        await caller.send(data)
        yield caller
    finally:
        caller.close()


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (HEAD + b"X: ", b"a" * 1000),
        (HEAD, b"X: y\r\n" * 200),
        (b"GET /", b"a" * 1000),
        (b"", b"\r\n" * 500),
    ],
    ids=["one header", "many headers", "path", "empty lines"],
)  # fmt: skip
async def test_what_never_ends_is_refused_before_it_is_kept(
    server: Served, begin: bytes, more: bytes
) -> None:
    async with calling(server, begin) as caller, caller.sending_on(more):
        status, headers, problem = await caller.answer()
        assert (status, problem["code"]) == (431, "headers_too_large")
        assert headers["content-type"] == "application/problem+json"
        assert headers["connection"] == "close"
        assert headers["x-request-id"] == problem["request_id"]
        assert await caller.rest() == b""


async def test_what_comes_after_a_body_ends_too(server: Served) -> None:
    body = b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: "
    async with calling(server, POST + body) as caller, caller.sending_on(b"a" * 1000):
        assert (await caller.answer())[0] == 401
        assert await caller.rest() == b""


async def test_a_large_head_in_pieces_is_answered_and_so_is_the_next(server: Served) -> None:
    large = HEAD + b"".join(b"X-%d: %b\r\n" % (each, b"y" * 990) for each in range(30))
    async with calling(server) as caller:
        for _ in range(3):
            for start in range(0, len(large), 5000):
                await caller.send(large[start : start + 5000])
                await asyncio.sleep(0)
            await caller.send(b"\r\n")
            assert (await caller.answer())[0] == 200


async def test_a_body_may_be_larger_than_a_head(server: Served) -> None:
    token = server.tokens["owner"].encode()
    body = b'{"name": "' + b"x" * 100_000 + b'"}'
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in (body[:9], body[9:]))
    asks = POST + b"Authorization: Bearer " + token + b"\r\nContent-Type: application/json\r\n"
    async with calling(server) as caller:
        await caller.send(asks + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        assert (await caller.answer())[0] == 422
        await caller.send(asks + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert (await caller.answer())[0] == 422


@pytest.mark.parametrize(
    "sent",
    [
        b"NONSENSE / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["method", "path", "two lengths", "length and chunks", "chunk"],
)
async def test_what_is_no_http_is_a_problem(server: Served, sent: bytes) -> None:
    async with calling(server, sent) as caller:
        status, headers, problem = await caller.answer()
        assert (status, problem["status"], problem["code"]) == (400, 400, "request_invalid")
        assert headers["content-type"] == "application/problem+json"
        assert headers["x-request-id"] == problem["request_id"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["connection"] == "close"
        assert await caller.rest() == b""


async def test_a_refusal_is_never_taken_for_an_answer_to_something_else(server: Served) -> None:
    run = await server.host.first.start("patient")
    token = server.tokens["owner"].encode()
    path = f"/api/runs/{run.id}/events".encode()
    asks = b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token
    async with calling(server, asks + b"\r\n\r\n") as caller:
        assert (await caller.answer())[0] == 200
        await caller.send(b"NONSENSE / HTTP/1.1\r\n\r\n")
        assert b"HTTP/1.1" not in await caller.rest()


@pytest.mark.parametrize(
    "sent",
    [b"", HEAD, POST + b"Authorization: Bearer %b\r\nContent-Length: 9\r\n\r\n{}"],
    ids=["nothing", "half a head", "half a body"],
)
async def test_a_server_ends_what_is_not_gone_on_with(
    store_url: str, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(server_module, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(connections_module, "OWING_SECONDS", 0.001)
    async with served(store_url) as server:
        sent = sent.replace(b"%b", server.tokens["owner"].encode())
        async with calling(server, sent) as caller:
            assert await caller.rest() == b""


async def test_a_head_has_its_time_from_its_beginning(
    server: Served, connections: list[Connection]
) -> None:
    async with calling(server, HEAD) as caller:
        await eventually(lambda: connections and connections[0].scope)
        end_owing(connections, 0)
        await caller.send(b"X: y\r\nX")
        await eventually(lambda: connections[0].headers)
        end_owing(connections, OWING_SECONDS)
        assert not connections[0].transport.is_closing()
        end_owing(connections, LATER)
        assert await caller.rest() == b""


async def test_a_body_has_its_time_from_its_last_bytes(
    server: Served, connections: list[Connection]
) -> None:
    token = server.tokens["owner"].encode()
    head = POST + b"Authorization: Bearer " + token + b"\r\nContent-Length: 9\r\n\r\n"
    async with calling(server, head + b"{") as caller:
        await eventually(lambda: connections and connections[0].cycle is not None)
        end_owing(connections, 0)
        assert connections[0].owing_since == 0
        await caller.send(b" ")
        await eventually(lambda: connections[0].owing_since is None)
        end_owing(connections, LATER)
        assert not connections[0].transport.is_closing()
        end_owing(connections, 2 * LATER)
        assert await caller.rest() == b""


async def test_whoever_waits_for_an_answer_owes_nothing(
    server: Served, connections: list[Connection]
) -> None:
    token = server.tokens["owner"].encode()
    body = b'{"input": 1}'
    asks = (
        b"POST /api/definitions/patient/runs HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=60\r\n"
        b"Content-Type: application/json\r\nAuthorization: Bearer " + token + b"\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body) + body
    )
    # The empty line is what some send after a body; it begins nothing.
    async with calling(server, asks + b"\r\n") as caller:
        await eventually(lambda: connections and connections[0].cycle is not None)
        end_owing(connections, 0)
        end_owing(connections, LATER)
        runs: list[Any] = []
        while not runs:
            runs = (await server.ask("GET", "/api/runs?status=waiting")).json()["items"]
        await server.ask("POST", f"/api/runs/{runs[0]['id']}/signals/word", {"payload": "go"})
        status, _, run = await caller.answer()
        assert (status, run["output"]) == (201, "go")


async def test_empty_lines_between_requests_do_not_keep_a_connection(
    server: Served, connections: list[Connection]
) -> None:
    async with calling(server, HEAD + b"\r\n") as caller:
        assert (await caller.answer())[0] == 200
        end_owing(connections, 0)
        assert connections[0].owing_since is None  # uvicorn's own timer runs
        await caller.send(b"\r\n")
        await eventually(lambda: connections[0].timeout_keep_alive_task is None)
        end_owing(connections, 0)
        end_owing(connections, LATER)
        assert await caller.rest() == b""


async def test_a_header_that_decides_who_asks_or_whom_is_there_once(server: Served) -> None:
    token = server.tokens["owner"].encode()
    bearer = b"Authorization: Bearer " + token + b"\r\n"
    asks = b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\n" + bearer
    for more, status, code in (
        (b"Host: localhost\r\n", 400, "host_unknown"),
        (bearer, 401, "unauthenticated"),
        (b"Accept: a/b\r\nAccept: c/d\r\n", 200, None),
    ):
        async with calling(server, asks + more + b"\r\n") as caller:
            found, _, said = await caller.answer()
            assert (found, said.get("code")) == (status, code)


async def test_what_follows_a_body_is_no_header(server: Served) -> None:
    token = server.tokens["owner"].encode()
    body = b"2\r\n{}\r\n0\r\nAuthorization: Bearer " + token + b"\r\n\r\n"
    async with calling(server, POST + b"Transfer-Encoding: chunked\r\n\r\n" + body) as caller:
        assert (await caller.answer())[0] == 401

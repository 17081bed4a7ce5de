"""Live events of runs: to the end, from where a reader left off, and readers that do not read."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from stepwell import workflow
from stepwell.api import live
from stepwell.api.connection import Connection
from stepwell.api.exchange import Message, Request, Stream
from stepwell.api.server import listen
from tests.surfaces import serving
from tests.surfaces.serving import Served, served

pytestmark = pytest.mark.anyio


@workflow(name="steps")
async def steps(ctx: Any, input: Any) -> Any:
    for number in range(input["steps"]):
        await ctx.step(f"step-{number}", lambda number=number: number)
    return "done"


@workflow(name="wordy")
async def wordy(ctx: Any, input: Any) -> None:
    for number in range(input["steps"]):
        await ctx.step(f"step-{number}", lambda: "x" * 900)


@workflow(name="patient")
async def patient(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("word", "word")


@pytest.fixture
async def server(store_url: str) -> AsyncIterator[Served]:
    async with served(store_url, [steps, patient]) as found:
        yield found


async def events_of(
    server: Served, run_id: str, after: str | None = None
) -> list[tuple[str, str, dict[str, Any]]]:
    """All events of a run: id, type and data."""
    headers = {"authorization": f"Bearer {server.tokens['viewer']}"}
    if after is not None:
        headers["last-event-id"] = after
    found = []
    async with server.http.stream("GET", f"/api/runs/{run_id}/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        fields: dict[str, str] = {}
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
            elif "data" in fields:
                found.append((fields["id"], fields["event"], json.loads(fields["data"])))
                fields = {}
    return found


async def test_a_stream_tells_of_a_run_to_its_end(server: Served) -> None:
    run = await server.host.first.start("steps", {"steps": 3})
    found = await events_of(server, run.id)
    types = [type for _, type, _ in found]
    assert types[0] == "run.started"
    assert types[-1] == "run.finished"
    assert types.count("step.completed") == 3
    assert all(data["run_id"] == run.id for _, _, data in found)


async def test_a_stream_goes_on_after_each_of_its_events(server: Served) -> None:
    run = await server.host.first.start("steps", {"steps": 3})
    whole = await events_of(server, run.id)
    for number, (event_id, _, _) in enumerate(whole[:-1]):
        assert await events_of(server, run.id, event_id) == whole[number + 1 :]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_whoever_has_seen_the_end_is_told_not_to_come_back(
    server: Served, method: str
) -> None:
    run = await server.host.first.start("steps", {"steps": 1})
    last = (await events_of(server, run.id))[-1][0]
    path, headers = f"/api/runs/{run.id}/events", {"Last-Event-ID": last}
    answer = await server.ask(method, path, headers=headers)
    assert (answer.status_code, answer.content) == (204, b"")


async def test_a_stream_of_a_run_that_goes_on_ends_when_that_does(server: Served) -> None:
    run = await server.host.first.start("patient")
    listening = asyncio.create_task(events_of(server, run.id))
    await server.host.first.signal(run.id, "word", "go")
    assert (await listening)[-1][1] == "run.finished"


async def test_streams_are_for_those_who_may_look(server: Served) -> None:
    run = await server.host.first.start("steps", {"steps": 1})
    path = f"/api/runs/{run.id}/events"
    assert (await server.ask("GET", path, role=None)).status_code == 401
    assert (await server.ask("GET", path, role="stranger")).status_code == 404
    assert (await server.ask("GET", "/api/runs/none/events")).status_code == 404
    odd = await server.ask("GET", path, headers={"Last-Event-ID": "odd"})
    assert (odd.status_code, odd.json()["code"]) == (422, "invalid_cursor")


async def test_streams_end_when_the_server_stops(store_url: str) -> None:
    async with served(store_url, [patient]) as server:
        run = await server.host.first.start("patient")
        listening = asyncio.create_task(events_of(server, run.id))
        while not server.host.first._feed.listeners:
            await asyncio.sleep(0)
    assert "run.finished" not in [type for _, type, _ in await listening]


async def test_a_stream_ends_with_the_access_of_whoever_reads_it(server: Served) -> None:
    place = server.host.first
    made = await server.ask("POST", "/api/tokens", {"name": "short", "permission": "read"})
    server.tokens["viewer"] = made.json()["text"]
    run = await place.start("patient")
    listening = asyncio.create_task(events_of(server, run.id))
    while not place._feed.listeners:
        await asyncio.sleep(0)
    gone = await server.ask("DELETE", f"/api/tokens/{made.json()['id']}")
    assert gone.status_code == 204
    await place.signal(run.id, "word", "go")
    await place.result(run.id, timeout=30)
    assert "run.finished" not in [type for _, type, _ in await listening]


async def test_a_stream_ends_with_its_token_while_its_address_is_limited(server: Served) -> None:
    place = server.host.first
    made = await server.ask("POST", "/api/tokens", {"name": "short", "permission": "read"})
    server.tokens["viewer"] = made.json()["text"]
    run = await place.start("patient")
    listening = asyncio.create_task(events_of(server, run.id))
    while not place._feed.listeners:
        await asyncio.sleep(0)
    assert (await server.ask("DELETE", f"/api/tokens/{made.json()['id']}")).status_code == 204
    server.tokens["guess"], guessed = "guess", 401
    while guessed != 429:
        guessed = (await server.ask("GET", "/api/runs", role="guess")).status_code
    await place.signal(run.id, "word", "go")
    await place.result(run.id, timeout=30)
    assert "run.finished" not in [type for _, type, _ in await listening]


async def test_a_stream_ends_when_its_token_does(server: Served) -> None:
    wanted = {"name": "short", "permission": "read", "expires_in": 1}
    made = await server.ask("POST", "/api/tokens", wanted)
    server.tokens["viewer"] = made.json()["text"]
    run = await server.host.first.start("patient")
    async with asyncio.timeout(10):  # before anything else would end it
        found = await events_of(server, run.id)
    assert "run.finished" not in [type for _, type, _ in found]


async def test_five_hundred_listeners_see_their_runs_end(server: Served) -> None:
    place = server.host.first
    runs = await place.start_many(
        [{"definition": "patient"} if n < 500 else {"definition": "steps", "input": {"steps": 2}}
         for n in range(1_000)]
    )  # fmt: skip
    listening = [asyncio.create_task(events_of(server, run.id)) for run in runs[:500]]
    for run in runs[:500]:
        await place.signal(run.id, "word", "go")
    for found in await asyncio.gather(*listening):
        assert found[-1][1] == "run.finished"
    for run in runs[500:]:
        assert await run.result(timeout=60) == "done"


async def test_a_listener_that_stops_reading_costs_little_and_is_dropped(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(serving, "listen", _with_small_buffers)
    transports: list[asyncio.WriteTransport] = []
    made = Connection.connection_made

    def recorded(self: Connection, transport: Any) -> None:
        transports.append(transport)
        made(self, transport)

    monkeypatch.setattr(Connection, "connection_made", recorded)
    async with served(store_url, [wordy]) as server:
        place = server.host.first
        run = await place.start("wordy", {"steps": 400})
        await run.result()
        reader, writer = await _silent_listener(server, f"/api/runs/{run.id}/events")
        await reader.readuntil(b"run.started")
        [transport] = transports[-1:]
        most = 0
        async with asyncio.timeout(30):
            while place._feed.listeners or not transport.is_closing():
                most = max(most, transport.get_write_buffer_size())
                await asyncio.sleep(0)
            # Nothing waits for somebody who may never read again.
            while transport.get_write_buffer_size():
                await asyncio.sleep(0)
        whole = sum(len(json.dumps(data)) for _, _, data in await events_of(server, run.id))
        assert 0 < most < 100_000 < 400_000 < whole
        writer.close()


def _with_small_buffers(host: str, port: int) -> socket.socket:
    """Where the system itself keeps little for those who do not read."""
    listening = listen(host, port)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return listening


async def _silent_listener(
    server: Served, path: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that takes next to nothing of what it has asked for."""
    taking = socket.socket()
    taking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    taking.setblocking(False)
    host, _, port = server.url.removeprefix("http://").partition(":")
    await asyncio.get_running_loop().sock_connect(taking, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=taking, limit=4096)
    token = server.tokens["viewer"]
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
    return reader, writer


async def silent() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


def asked(id: str) -> Request:
    return Request({"method": "GET", "path": "/", "query_string": b"", "headers": []}, silent, id)


async def test_what_breaks_a_stream_off_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"data: one\n\n"
        raise ValueError("odd")

    async def send(message: Message) -> None:
        pass

    await Stream(pieces(), "text/event-stream", patience_seconds=5).send(send, asked("req-7"))
    [record] = caplog.records
    assert "req-7" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


async def test_a_listener_that_stops_reading_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"data: more\n\n"
        finally:
            closed.set()

    async def stuck(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()  # nobody reads on the other side

    stream = Stream(pieces(), "text/event-stream", patience_seconds=0.01)
    await stream.send(stuck, asked("1"))
    assert closed.is_set()
    assert not caplog.records


async def test_query_parameters_that_live_events_do_not_have_are_refused(server: Served) -> None:
    run = await server.host.first.start("patient")
    answer = await server.ask("GET", f"/api/runs/{run.id}/events?after=3")
    assert answer.status_code == 422
    assert "no query parameter 'after'" in answer.json()["detail"]

"""Live events of runs: to the end, from where a reader left off, and readers that do not read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from stepwell import workflow
from stepwell.api.exchange import Message, Request, Stream
from tests.surfaces.serving import Served, served

pytestmark = pytest.mark.anyio


@workflow(name="steps")
async def steps(ctx: Any, input: Any) -> Any:
    for number in range(input["steps"]):
        await ctx.step(f"step-{number}", lambda number=number: number)
    return "done"


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
    for number, (event_id, _, _) in enumerate(whole):
        assert await events_of(server, run.id, event_id) == whole[number + 1 :]


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


async def test_a_listener_that_stops_reading_is_given_up() -> None:
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

    async def silent() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    scope = {"method": "GET", "path": "/", "query_string": b"", "headers": []}
    stream = Stream(pieces(), "text/event-stream", patience_seconds=0.01)
    await stream.send(stuck, Request(scope, silent, "1"))
    assert closed.is_set()

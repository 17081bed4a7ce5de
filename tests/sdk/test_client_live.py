"""Waiting by live events: until they end, from where they broke off, or by looking instead."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from stepwell.errors import InvalidCursor, RunNotFound
from stepwell.kernel.feed import RunEvent
from stepwell.sdk.client import Client
from tests.sdk.flaky import LOSE_REQUEST, Flaky, flaky, said, streamed
from tests.sdk.serving import Server


async def listened(proxy: Flaky, times: int) -> list[str]:
    """The requests for live events, once there are so many."""
    async with asyncio.timeout(30):
        while (
            len(
                found := [
                    each
                    for each in proxy.requests
                    if "/events HTTP" in each and each.startswith("GET /api/runs")
                ]
            )
            < times
        ):
            await asyncio.sleep(0)
    return found


async def answered(client: Client, proxy: Flaky, times: int) -> list[str]:
    """Wait for a run that ends when live events were asked for so often; how it was asked."""
    run = await client.start("ask")
    waiting = asyncio.create_task(run.result("30s"))
    found = await listened(proxy, times)
    await client.signal(run.id, "answer", 42)
    assert await waiting == 42
    return found


async def test_live_events_go_on_where_they_broke_off(lite_server: Server) -> None:
    async with flaky(lite_server.url) as proxy, Client(proxy.url, lite_server.token) as client:
        proxy.live = [
            streamed("retry: 1\n\nid: 7\nevent: x\ndata: {}\n\n: still here\n\n"),
            said(503),
        ]
        first, second = await answered(client, proxy, 2)
        assert "Last-Event-ID" not in first
        assert "Last-Event-ID: 7\r\n" in second


async def test_without_live_events_a_run_is_looked_at(lite_server: Server) -> None:
    async with flaky(lite_server.url) as proxy, Client(proxy.url, lite_server.token) as client:
        for trouble in (said(503), said(404), LOSE_REQUEST):
            proxy.live = [trouble]
            proxy.requests.clear()
            assert len(await answered(client, proxy, 1)) == 1


def frame(event: RunEvent) -> str:
    data = msgspec.json.encode(event).decode()
    return f"id: {event.id}\nevent: {event.type}\ndata: {data}\n\n"


async def test_a_run_is_watched_to_its_end_and_from_each_of_its_events(client: Client) -> None:
    run = await client.start("ask")
    watching = client.watch(run.id)
    found = [await anext(watching)]
    while found[-1].type != "run.waiting":
        found.append(await anext(watching))
    await client.signal(run.id, "answer", 42)
    found += [event async for event in watching]
    assert (found[0].type, found[-1].type) == ("run.started", "run.finished")
    assert found[-1].data == {"status": "completed", "output": 42}
    told = [event async for event in client.watch(run.id)]
    for number, event in enumerate(told, 1):
        assert [each async for each in client.watch(run.id, event.id)] == told[number:]


async def test_watching_goes_on_where_a_stream_broke_off(lite_server: Server) -> None:
    async with flaky(lite_server.url) as proxy, Client(proxy.url, lite_server.token) as client:
        async with Client(lite_server.url, lite_server.token) as direct:
            run = await direct.start("greet", wait="30s")
            told = [event async for event in direct.watch(run.id)]
        first, *rest = told
        lines = "".join(map(frame, rest))
        # The one promises more than comes: the connection ends in the middle.
        broken = streamed(frame(first)).removesuffix("0\r\n\r\n") + "no length\r\n"
        proxy.live = [broken, streamed(lines)]
        assert [event async for event in client.watch(run.id)] == told
        _, second = await listened(proxy, 2)
        assert f"Last-Event-ID: {first.id}\r\n" in second


async def test_nothing_follows_the_last_event(lite: Client) -> None:
    run = await lite.start("greet", "Ada")
    last = [event async for event in lite.watch(run.id)][-1]
    live = lite.connection.events(f"/runs/{run.id}/events", last.id)
    assert [event async for event in live] == []


async def test_what_cannot_be_watched_is_refused(lite: Client) -> None:
    run = await lite.start("greet", wait="30s")
    with pytest.raises(InvalidCursor):
        await anext(lite.watch(run.id, "nonsense"))
    with pytest.raises(RunNotFound):
        await anext(lite.watch("06gu2b1q7k5vd3m9s0f8t4c6bg"))

"""Waiting by live events: until they end, from where they broke off, or by looking instead."""

from __future__ import annotations

import asyncio

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

"""The client in trouble: nothing is lost, nothing is doubled, and what is not known is said."""

from __future__ import annotations

import socket
import time

import pytest

from stepwell.errors import QuotaExceeded, ServerUnavailable, StoreUnavailable
from stepwell.sdk.client import Client
from tests.sdk.flaky import LOSE_ANSWER, LOSE_REQUEST, flaky, said
from tests.sdk.serving import Server

START = "POST /api/definitions/greet/runs"


async def count(client: Client) -> int:
    return len((await client.list_runs()).items)


async def test_a_start_whose_answer_was_lost_makes_one_run(server: Server) -> None:
    async with flaky(server.url, LOSE_ANSWER, LOSE_ANSWER, LOSE_REQUEST) as proxy:
        async with Client(proxy.url, server.token) as client:
            run = await client.start("greet", {"name": "Ada"})
            assert not run.created  # an attempt before has made it
            assert await run.result("30s") == {"hello": "Ada"}
            assert proxy.seen[:4] == [START] * 4
            assert await count(client) == 1


@pytest.mark.parametrize(
    "trouble",
    [
        said(502),
        said(503),
        said(504),
        said(503, "Retry-After: 0"),
        said(429, "Retry-After: 1"),
        said(503, body='{"code": "store_unavailable", "detail": "away"}'),
    ],
    ids=["502", "503", "504", "503 at once", "429", "store away"],
)
async def test_what_may_pass_is_waited_for(lite_server: Server, trouble: str) -> None:
    async with flaky(lite_server.url, trouble, trouble) as proxy:
        async with Client(proxy.url, lite_server.token) as client:
            assert (await client.start("greet")).created
            assert proxy.seen == [START] * 3


async def test_a_busy_server_says_how_long_to_wait(lite_server: Server) -> None:
    async with flaky(lite_server.url, said(429, "Retry-After: 1")) as proxy:
        async with Client(proxy.url, lite_server.token) as client:
            before = time.monotonic()
            await client.list_runs()
            assert time.monotonic() - before >= 1


async def test_an_event_whose_answer_was_lost_is_emitted_once(server: Server) -> None:
    async with flaky(server.url, LOSE_ANSWER, LOSE_ANSWER, LOSE_REQUEST) as proxy:
        async with Client(proxy.url, server.token) as client:
            assert await client.emit("paid")
            assert proxy.seen == ["POST /api/events"] * 4
            found = await client.connection.call("GET /events", {})
            assert [event["type"] for event in found["items"]].count("paid") == 1
            # Somebody else's event, and the same one of a caller that repeats by itself.
            assert await client.emit("paid", idempotency_key="7")
            assert not await client.emit("paid", idempotency_key="7")


async def test_a_signal_whose_answer_was_lost_is_sent_once(server: Server) -> None:
    async with flaky(server.url) as proxy:
        async with Client(proxy.url, server.token) as client:
            run = await client.start("ask-twice")
            proxy._plan = [LOSE_ANSWER, LOSE_ANSWER, LOSE_REQUEST]
            assert await client.signal(run.id, "answer", 1)
            assert proxy.seen[1:] == [f"POST /api/runs/{run.id}/signals/answer"] * 4
            assert await client.signal(run.id, "answer", 2)
            assert await run.result("30s") == [1, 2]


async def test_a_retry_and_a_fork_whose_answers_were_lost_make_one_run(server: Server) -> None:
    async with flaky(server.url) as proxy:
        async with Client(proxy.url, server.token) as client:
            first = await client.start("greet", {"name": "Ada"}, wait="30s")
            proxy._plan = [LOSE_ANSWER]
            await client.fork(first.id, "greet")
            failed = await client.start("break", wait="30s")
            proxy._plan = [LOSE_ANSWER]
            await client.retry(failed.id)
            assert await count(client) == 4


@pytest.mark.parametrize(
    "trouble",
    [said(502), said(504), said(503, body='{"code": "store_unavailable", "detail": ""}')],
    ids=["502", "504", "store away"],
)
async def test_what_may_have_been_done_is_not_repeated(lite_server: Server, trouble: str) -> None:
    async with flaky(lite_server.url, trouble) as proxy:
        async with Client(proxy.url, lite_server.token) as client:
            with pytest.raises((ServerUnavailable, StoreUnavailable)):
                await client.cancel("0198f0c0-0000-7000-8000-000000000000")
            assert len(proxy.seen) == 1


async def test_what_was_done_perhaps_is_said_to_be_not_known(lite_server: Server) -> None:
    async with flaky(lite_server.url, LOSE_ANSWER) as proxy:
        async with Client(proxy.url, lite_server.token) as client:
            with pytest.raises(ServerUnavailable, match="Whether it was done is not known"):
                await client.cancel("0198f0c0-0000-7000-8000-000000000000")


async def test_a_deletion_whose_answer_was_lost_is_done(lite_server: Server) -> None:
    async with flaky(lite_server.url) as proxy:
        async with Client(proxy.url, lite_server.token) as client:
            await client.definitions.create("gone")
            proxy._plan = [LOSE_ANSWER]
            await client.definitions.delete("gone")
            assert proxy.seen[1:] == ["DELETE /api/definitions/gone"] * 2


async def test_a_quota_is_not_waited_for(lite_server: Server) -> None:
    over = said(429, body='{"code": "quota_exceeded", "detail": "enough", "details": {"n": 1}}')
    async with flaky(lite_server.url, over) as proxy:
        async with Client(proxy.url, lite_server.token) as client:
            with pytest.raises(QuotaExceeded, match="enough") as raised:
                await client.start("greet")
            assert raised.value.details == {"n": 1}


async def test_nobody_there_is_said_once_patience_is_over() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}"
        async with Client(url, patience="0.2s") as client:
            before = time.monotonic()
            with pytest.raises(ServerUnavailable, match=url) as raised:
                await client.emit("paid")
            assert raised.value.code == "server_unavailable"
            assert time.monotonic() - before < 5


async def test_a_server_that_never_answers_is_given_up(lite_server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with Client(url, timeout="0.1s", patience="0.1s") as client:
            with pytest.raises(ServerUnavailable, match="ReadTimeout"):
                await client.list_runs()


async def test_a_page_of_something_else_is_no_server(lite_server: Server) -> None:
    for answer in (said(200, body="<html>"), said(404, body="<html>"), said(302, "Location: /x")):
        async with flaky(lite_server.url, answer) as proxy, Client(proxy.url) as client:
            with pytest.raises(ServerUnavailable, match="Is that the URL of a Stepwell server"):
                await client.list_runs()

"""The http node: what it sends, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from typing import Any

import pytest

from stepwell.errors import AddressRefused, ConfigInvalid, RequestFailed, RequestRefused
from stepwell.graph.problems import Problems
from stepwell.nodes.http import http
from tests.nodes.support import Host, executed
from tests.nodes.web import Asked, reply, serving

JSON = "application/json"


async def test_an_object_is_sent_as_json_and_an_answer_in_json_is_parsed() -> None:
    def answer(asked: Asked) -> bytes:
        return reply(201, {"got": json.loads(asked.body)}, Content_Type="application/problem+json")

    async with serving(answer) as web:
        output = await executed(
            http, {"url": f"{web.url}/things", "method": "post", "body": {"a": [1, None]}}
        )
    [asked] = web.asked
    assert (asked.method, asked.path) == ("POST", "/things")
    assert asked.headers["content-type"] == JSON
    assert output["status"] == 201
    assert output["body"] == {"got": {"a": [1, None]}}
    assert output["headers"]["content-type"] == "application/problem+json"
    assert output["url"] == f"{web.url}/things"
    assert "encoding" not in output


@pytest.mark.parametrize(
    ("content", "kind", "body"),
    [
        (b"hello", "text/plain", "hello"),
        (b"gr\xfc\xdfe", "text/plain; charset=latin-1", "grüße"),
        (b"gr\xfc\xdfe", "text/plain; charset=nobody-knows", "gr\ufffd\ufffde"),
        (b"gr\xfc\xdfe", "text/plain; charset=hex", "gr\ufffd\ufffde"),
        (b"\\ud800", "text/plain; charset=unicode-escape", "?"),
        (b'{"a": ', JSON, '{"a": '),
        (b"NaN", JSON, "NaN"),
        (b"[" * 100_000, JSON, "[" * 100_000),
        (b"\xef\xbb\xbf[1]", "Application/JSON; charset=utf-8", [1]),
        (b"", JSON, ""),
        (b"null", JSON, None),
        (b"a: 1", "application/yaml", "a: 1"),
        (b"<svg/>", "image/svg+xml", "<svg/>"),
    ],
)
async def test_the_type_of_an_answer_says_how_it_is_read(
    content: bytes, kind: str, body: Any
) -> None:
    async with serving(lambda _: reply(200, content, Content_Type=kind)) as web:
        output = await executed(http, {"url": web.url})
    assert output["body"] == body
    assert "encoding" not in output


@pytest.mark.parametrize("kind", ["image/png", "application/octet-stream"])
async def test_what_is_not_text_comes_as_base64(kind: str) -> None:
    async with serving(lambda _: reply(200, b"\x89PNG\0", Content_Type=kind)) as web:
        output = await executed(http, {"url": web.url})
    assert (output["body"], output["encoding"]) == ("iVBORwA=", "base64")


async def test_headers_that_come_twice_are_joined() -> None:
    twice = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\ncontent-length: 0\r\n\r\n"
    async with serving(lambda _: twice) as web:
        output = await executed(http, {"url": web.url})
    assert output["headers"]["x-a"] == "1, 2"


async def test_a_query_is_added_to_that_of_the_url() -> None:
    query = {"b": "x y&z", "c": [1, True], "d": None}
    async with serving(lambda _: reply()) as web:
        await executed(http, {"url": f"{web.url}/?a=1#top", "query": query})
        await executed(http, {"url": web.url, "query": {"é": 1.5}})
    assert [each.path for each in web.asked] == ["/?a=1&b=x+y%26z&c=1&c=true", "/?%C3%A9=1.5"]


async def test_text_and_forms_are_sent_as_they_are() -> None:
    async with serving(lambda _: reply()) as web:
        for config in ({"body_template": "Grüße"}, {"form": {"a": "1 2", "b": "&"}}):
            await executed(http, {"url": web.url, "method": "PUT", **config})
    text, form = web.asked
    assert text.body.decode() == "Grüße"
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert form.body == b"a=1+2&b=%26"
    assert form.headers["content-type"] == "application/x-www-form-urlencoded"


async def test_the_idempotency_key_goes_with_what_changes_something() -> None:
    async with serving(lambda _: reply()) as web:
        for method, headers in [
            ("GET", {}),
            ("POST", {}),
            ("DELETE", {"idempotency-KEY": "mine", "User-Agent": "me"}),
        ]:
            config = {"url": web.url, "method": method, "headers": headers}
            await executed(http, config, idempotency_key="run:step")
    assert [each.headers.get("idempotency-key") for each in web.asked] == [None, "run:step", "mine"]
    assert [each.headers["user-agent"] for each in web.asked] == ["stepwell", "stepwell", "me"]


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ({"type": "bearer", "token": "t"}, "authorization", "Bearer t"),
        ({"type": "basic", "username": "u", "password": "p:ß"}, "authorization", "Basic dTpwOsOf"),
        ({"type": "header", "name": "X-Api-Key", "value": "k"}, "x-api-key", "k"),
    ],
)
async def test_credentials_are_sent(auth: dict[str, str], header: str, value: str) -> None:
    async with serving(lambda _: reply()) as web:
        await executed(http, {"url": web.url, "auth": auth})
    assert web.asked[0].headers[header] == value


async def test_user_and_password_in_a_url_are_credentials_and_shown_nowhere() -> None:
    async with serving(lambda asked: reply(404 if "/no" in asked.path else 200)) as web:
        url = web.url.replace("://", "://us%40er:pass@")
        output = await executed(http, {"url": url})
        with pytest.raises(RequestRefused) as raised:
            await executed(http, {"url": f"{url}/no?token=t"})
    assert web.asked[0].headers["authorization"] == "Basic dXNAZXI6cGFzcw=="
    assert output["url"] == web.url
    assert str(raised.value) == f"GET {web.url}/no was answered with 404 Said."


@pytest.mark.parametrize(
    "config",
    [
        {"headers": {"X-A": "1\r\nX-B: 2"}},
        {"headers": {"X-A": "1\n2"}},
        {"headers": {"X-A": "nul\0"}},
        {"headers": {"X-A\r\nX-B": "1"}},
        {"headers": {"Host": "other.test"}},
        {"headers": {"Content-Length": 3}},
        {"auth": {"type": "bearer", "token": "t\r\nX-B: 2"}},
        {"auth": {"type": "header", "name": "Transfer-Encoding", "value": "chunked"}},
    ],
)
async def test_headers_that_would_change_the_request_are_not_sent(config: dict[str, Any]) -> None:
    async with serving(lambda _: reply()) as web:
        with pytest.raises(ConfigInvalid, match="header"):
            await executed(http, {"url": web.url, **config})
    assert web.asked == []


@pytest.mark.parametrize("status", [400, 404, 408, 422])
async def test_a_refusal_is_final_and_says_what_came(status: int) -> None:
    async with serving(lambda _: reply(status, b"no such thing " + b"x" * 9999)) as web:
        with pytest.raises(RequestRefused, match=f"{status} Said: no such thing x") as raised:
            await executed(http, {"url": web.url, "max_bytes": 5000})
    assert raised.value.details["status"] == status
    assert len(raised.value.message) < 700


DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry_After": "120"}, 120),
        ({"Retry_After": "9" * 5000}, 86_400),
        ({"Retry_After": "Wed, 21 Oct 2026 07:30:00 GMT", "Date": DATE}, 120),
        ({"Retry_After": "Wed, 21 Oct 2025 07:30:00 GMT"}, 0),
        ({"Retry_After": "Wed, 21 Oct 2999 07:30:00 GMT"}, 86_400),
        ({"Retry_After": "soon"}, None),
        ({"Retry_After": "-5"}, None),
        ({"Retry_After": "Wed, 21 Oct 2026 07:30:00 +99999999999999"}, None),
        ({"Retry_After": "Wed, 21 Oct 2026 07:30:00", "Date": DATE}, None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_a_failure_is_tried_again_when_the_other_side_says(
    status: int, headers: dict[str, str], seconds: float | None
) -> None:
    async with serving(lambda _: reply(status, b"busy", **headers)) as web:
        with pytest.raises(RequestFailed, match=f"{status} Said: busy") as raised:
            await executed(http, {"url": web.url})
    assert not isinstance(raised.value, RequestRefused)
    assert raised.value.retry_after_seconds == seconds


async def test_every_status_can_be_an_output() -> None:
    async with serving(lambda _: reply(503, b"busy")) as web:
        output = await executed(http, {"url": web.url, "raise_for_status": False})
    assert (output["status"], output["body"]) == (503, "busy")


async def test_an_answer_may_be_as_long_as_max_bytes_and_no_longer() -> None:
    async with serving(lambda _: reply(200, b"x" * 1000)) as web:
        output = await executed(http, {"url": web.url, "max_bytes": 1000})
        assert len(output["body"]) == 1000
        with pytest.raises(RequestRefused, match="more than 999 bytes"):
            await executed(http, {"url": web.url, "max_bytes": 999})


async def test_an_endless_answer_is_not_read_on() -> None:
    endless = b"HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\n" + b"x" * 2000
    async with serving(lambda _: endless) as web:
        with pytest.raises(RequestRefused, match="more than 1,000 bytes"):
            await executed(http, {"url": web.url, "max_bytes": 1000})


async def test_what_is_small_only_while_packed_is_not_unpacked() -> None:
    bomb = gzip.compress(gzip.compress(bytes(200_000_000), 1), 9)
    assert len(bomb) < 100_000
    tracemalloc.start()
    async with serving(lambda _: reply(200, bomb, Content_Encoding="gzip, gzip")) as web:
        with pytest.raises(RequestRefused, match="more than 1,048,576 bytes"):
            await executed(http, {"url": web.url})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 30_000_000


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n"])
async def test_a_broken_answer_is_tried_again(answer: bytes) -> None:
    async with serving(lambda _: answer) as web:
        with pytest.raises(RequestFailed, match=r"GET http://127.* got no answer: .+\.") as raised:
            await executed(http, {"url": web.url})
    assert not isinstance(raised.value, RequestRefused)


async def test_nobody_listening_is_tried_again() -> None:
    async with serving(lambda _: reply()) as web:
        pass
    with pytest.raises(RequestFailed, match="got no answer"):
        await executed(http, {"url": web.url})


async def test_cancelling_closes_the_connection() -> None:
    arrived = asyncio.Event()

    def never(asked: Asked) -> None:
        arrived.set()

    async with serving(never) as web:
        task = asyncio.ensure_future(executed(http, {"url": web.url}))
        await arrived.wait()
        task.cancel()
        await web.left.wait()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "0x7f.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0",
        "[::]", "u:p@127.0.0.1", "169.254.169.254", "1.1.1.1@127.0.0.1",
    ],
)  # fmt: skip
async def test_private_hosts_are_refused_unless_the_operator_allows_them(host: str) -> None:
    async with serving(lambda _: reply()) as web:
        url = f"http://{host}:{web.port}/"
        with pytest.raises(AddressRefused, match="STEPWELL_HTTP_ALLOW_PRIVATE=1"):
            await executed(http, {"url": url}, host=Host(allow_private=False))
    assert web.asked == []


async def test_only_allowed_domains_are_asked() -> None:
    async with serving(lambda _: reply()) as web:
        config = {"url": web.url, "allowed_domains": ["x.test", "*.y.test"]}
        with pytest.raises(AddressRefused, match=r"127\.0\.0\.1, which is not in allowed_domains"):
            await executed(http, config)
        await executed(http, {**config, "allowed_domains": ["127.0.0.1"]})
    assert len(web.asked) == 1


@pytest.mark.parametrize("url", ["file:///etc/passwd", "//x.test", "x", "http://x.test/\r\n", ""])
async def test_what_is_no_url_of_the_web_is_refused(url: str) -> None:
    with pytest.raises(ConfigInvalid, match="URL"):
        await executed(http, {"url": url})


@pytest.mark.parametrize("url", ["http://", "http://x.test:70000/", "http://x.test:0/"])
async def test_a_url_without_a_host_or_with_no_real_port_is_refused(url: str) -> None:
    with pytest.raises(AddressRefused):
        await executed(http, {"url": url})


async def test_an_unreadable_url_is_refused_without_repeating_what_it_holds() -> None:
    with pytest.raises(RequestRefused) as raised:
        await executed(http, {"url": "http://user:secret/x@x.test/"})
    assert "cannot be sent" in raised.value.message
    assert raised.value.__cause__ is None


def problems_of(config: dict[str, Any]) -> list[tuple[str, str]]:
    problems = Problems()
    http.check(config, "config", problems)
    return [(each.path, each.code) for each in problems.found]


def test_a_config_is_checked_field_by_field() -> None:
    assert problems_of({"url": "https://x.test", "method": "patch"}) == []
    assert problems_of({}) == [("config.url", "missing_field")]
    assert problems_of({"url": "x.test", "metod": "GET", "max_bytes": 10**9}) == [
        ("config.url", "bad_field"),
        ("config.max_bytes", "bad_field"),
        ("config.metod", "unknown_field"),
    ]
    for wrong in (
        {"method": "BREW"}, {"allowed_domains": []}, {"allowed_domains": ["x.test:80"]},
        {"headers": {"A b": "1"}}, {"query": {"a": {}}}, {"auth": {"type": "bearer"}},
        {"body": "a", "form": {}},
    ):  # fmt: skip
        assert problems_of({"url": "https://x.test", **wrong}), wrong


def test_what_references_stand_for_is_not_checked_yet() -> None:
    config = {
        "url": "{{input.url}}", "method": "@input.method", "headers": {"X-A": "{{input.a}}\n"},
        "query": "{{input.query}}", "max_bytes": "{{input.most}}", "auth": "{{input.auth}}",
    }  # fmt: skip
    assert problems_of(config) == []

"""Bodies of all kinds, from raw bytes to the input of a run, as docs/webhooks.md says."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest

from stepwell.errors import StepwellError
from tests.conftest import World
from tests.engine.test_receiver import hook, key, told

__all__ = ["key"]

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MIB = 1024 * 1024


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth > 1 else []


def bomb() -> bytes:
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    return b"".join([*(packer.compress(bytes(MIB)) for _ in range(50)), packer.flush()])


# Type, packing, body → what is refused.
REFUSED: list[tuple[str, str | None, str | None, bytes, str]] = [
    ("no JSON", JSON, None, b"hello", "body_invalid"),
    ("no JSON without a type", None, None, b"hello", "body_invalid"),
    ("cut off", JSON, None, b'{"a": 1', "body_invalid"),
    ("two values", JSON, None, b"{} {}", "body_invalid"),
    ("spaces only", JSON, None, b"  \n", "body_invalid"),
    ("NaN", JSON, None, b'{"a": NaN}', "body_invalid"),
    ("Infinity", JSON, None, b'{"a": -Infinity}', "body_invalid"),
    ("too large a number", JSON, None, b'{"a": 1e999}', "body_invalid"),
    ("a name twice", JSON, None, b'{"a": 1, "a": 2}', "body_invalid"),
    ("a name twice in disguise", JSON, None, b'{"a": 1, "\\u0061": 2}', "body_invalid"),
    ("too deep", JSON, None, b"[" * 101 + b"]" * 101, "body_invalid"),
    ("too many parts", JSON, None, b"[" + b"[]," * 200_000 + b"0]", "body_invalid"),
    ("a lone surrogate", JSON, None, b'{"a": "\\ud800"}', "body_invalid"),
    ("a bare NUL", JSON, None, b'{"a": "\x00"}', "body_invalid"),
    ("not UTF-8", JSON, None, b'{"a": "\xff"}', "body_invalid"),
    ("UTF-16", JSON, None, '{"a": 1}'.encode("utf-16"), "body_invalid"),
    ("JSON in another charset", f"{JSON}; charset=utf-16", None, b"{}", "body_unsupported"),
    ("text in another charset", "text/plain; charset=koi8-r", None, b"a", "body_unsupported"),
    ("text that is not in its charset", "text/plain; charset=ascii", None, b"\xe9", "body_invalid"),
    ("a form that is not UTF-8", FORM, None, b"a=%FF", "body_invalid"),
    ("a form of many fields", FORM, None, b"&".join([b"a=1"] * 1001), "body_invalid"),
    ("parts", "multipart/form-data; boundary=x", None, b"--x--", "body_unsupported"),
    ("bytes", "application/octet-stream", None, b"\x00", "body_unsupported"),
    ("an image", "image/png", None, b"\x89PNG", "body_unsupported"),
    ("no type at all", "json", None, b"{}", "body_invalid"),
    ("too large", JSON, None, b" " * MIB + b"1", "body_too_large"),
    ("too large once unpacked", JSON, "gzip", gzip.compress(b" " * MIB + b"1"), "body_too_large"),
    ("a bomb", JSON, "gzip", bomb(), "body_too_large"),
    ("not packed", JSON, "gzip", b"{}", "body_invalid"),
    ("packed and cut off", JSON, "gzip", gzip.compress(b"{}")[:-1], "body_invalid"),
    ("packed, and more behind it", JSON, "gzip", gzip.compress(b"{}") * 2, "body_invalid"),
    ("packed twice", JSON, "gzip, gzip", gzip.compress(gzip.compress(b"{}")), "body_unsupported"),
    ("packed in another way", JSON, "br", b"{}", "body_unsupported"),
]

# Type, packing, body → what the run is given, beside query and headers.
TAKEN: list[tuple[str, str | None, str | None, bytes, dict[str, Any]]] = [
    ("an object", JSON, None, b'{"a": 1}', {"a": 1}),
    ("a list", JSON, None, b"[1]", {"body": [1]}),
    ("null", JSON, None, b"null", {"body": None}),
    ("a mark before it", JSON, None, b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
    ("without a type", None, None, b'{"a": 1}', {"a": 1}),
    ("with its charset", f'{JSON}; charset="UTF-8"', None, b'{"a": "\xc3\xa9"}', {"a": "é"}),
    ("in a dialect", "application/vnd.a+json", None, b'{"a": 1}', {"a": 1}),
    ("nothing", JSON, None, b"", {}),
    ("nothing of any kind", "image/png", None, b"", {}),
    ("nothing, packed", JSON, "gzip", b"", {}),
    ("nothing once unpacked", JSON, "gzip", gzip.compress(b""), {}),
    ("an escaped NUL", JSON, None, b'{"a": "x\\u0000y"}', {"a": "x\0y"}),
    ("a pair of surrogates", JSON, None, b'{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
    ("a large number", JSON, None, b'{"a": 123456789012345678901}', {"a": 123456789012345678901}),
    ("as deep as may be", JSON, None, b'{"a": ' + b"[" * 99 + b"]" * 99 + b"}", {"a": nested(99)}),
    ("a form", FORM, None, b"a=1&b=x+y&a=2", {"a": ["1", "2"], "b": "x y"}),
    ("a form with a payload", FORM, None, b"payload=%7B%22a%22%3A1%7D", {"a": 1}),
    ("JSON that is said to be a form", FORM, None, b'{"a": 1}', {"a": 1}),
    ("a text", "text/plain", None, b'{"a": 1}', {"body": '{"a": 1}'}),
    ("a text with NUL", "text/plain", None, b"a\x00b", {"body": "a\0b"}),
    ("a text in its charset", "text/plain; charset=latin1", None, b"\xe9", {"body": "é"}),
    ("XML", "application/xml", None, b"<a/>", {"body": "<a/>"}),
    ("packed", JSON, "gzip", gzip.compress(b'{"a": 1}'), {"a": 1}),
    ("packed by zlib", JSON, "deflate", zlib.compress(b'{"a": 1}'), {"a": 1}),
    ("as it is", JSON, "identity", b'{"a": 1}', {"a": 1}),
]  # fmt: skip


def sent(kind: str | None, packing: str | None) -> list[tuple[str | bytes, str | bytes]]:
    pairs = [("content-type", kind), ("content-encoding", packing)]
    return [(name, value) for name, value in pairs if value is not None]


async def test_what_cannot_be_taken_is_refused_by_its_code_and_starts_nothing(world: World) -> None:
    async with world([told]) as sw:
        path = await hook(sw, becomes="both", event="ping")
        for name, kind, packing, body, code in REFUSED:
            with pytest.raises(StepwellError) as refused:
                await sw.receive(path, headers=sent(kind, packing), body=body)
            assert refused.value.code == code, name
        kept = await sw.triggers.refusals("told/hook", 1000)
        assert sum(each.count for each in kept) == len(REFUSED)
        assert await sw.count_runs() == {}
        assert (await sw.events.list()).items == []


async def test_what_can_be_taken_is_what_the_run_is_given(world: World) -> None:
    async with world([told]) as sw:
        path = await hook(sw, becomes="both", event="ping", dedupe=False)
        for name, kind, packing, body, wanted in TAKEN:
            found = await sw.receive(path, headers=sent(kind, packing), body=body)
            given = dict((await sw.get_run(str(found.run_id))).input)
            assert given.pop("query") == {}, name
            assert given.pop("headers") == dict(sent(kind, packing)), name
            assert given == wanted, name
            (event,) = (await sw.events.list("ping", limit=1)).items
            assert event.payload == (wanted.get("body", wanted) or None), name


async def test_a_body_may_be_larger_than_an_input_if_the_map_takes_less(world: World) -> None:
    body = b'{"n": 1, "text": "%b"}' % (b"x" * (MIB - 22))
    assert len(body) <= MIB
    async with world([told]) as sw:
        path = await hook(sw)
        with pytest.raises(StepwellError) as refused:
            await sw.receive(path, body=body)
        assert refused.value.code == "input_too_large"
        await sw.triggers.update("told/hook", {"map": {"n": "$.n"}})
        found = await sw.receive(path, body=body)
        assert (await sw.get_run(str(found.run_id))).input == {"n": 1}


async def test_odd_headers_and_queries_are_kept_or_refused(world: World) -> None:
    async with world([told]) as sw:
        path = await hook(sw)
        odd: list[tuple[str | bytes, str | bytes]] = [
            (b"X-Odd", b"\xff\x00"), ("idempotency-key", "k\0\x7f" * 200), ("", "x"),
        ]  # fmt: skip
        found = await sw.receive(path, headers=odd, query="a=%00")
        run = await sw.get_run(str(found.run_id))
        assert run.input["headers"]["x-odd"] == "ÿ\0"
        assert run.input["query"] == {"a": "\0"}
        assert not (await sw.receive(path, headers=odd, query="a=%00")).created
        with pytest.raises(StepwellError) as refused:
            await sw.receive(path, query=b"a=%FF")
        assert refused.value.code == "body_invalid"

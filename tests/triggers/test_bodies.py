"""Bodies: what becomes of each kind, what is refused, and what never gets into a payload."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from typing import Any
from urllib.parse import quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import BodyInvalid, BodyTooLarge, BodyUnsupported
from stepwell.kernel.jsonpath import NOTHING
from stepwell.triggers.inbound.bodies import MAX_BYTES, MAX_FIELDS, payload_of, read_data
from stepwell.triggers.inbound.headers import Headers
from stepwell.triggers.inbound.strict_json import MAX_DEPTH
from tests.triggers.signing import SECRET, signed

FORM = "application/x-www-form-urlencoded"


def read_body(
    headers: Headers, body: bytes, query: str | bytes = b"", hidden: Any = ()
) -> dict[str, Any]:
    return payload_of(read_data(headers, body), headers, query, hidden=hidden)


def data_of(body: bytes, kind: str | None = "application/json", **headers: str) -> Any:
    pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return read_data(Headers([*pairs, ("Content-Type", kind)] if kind is not None else pairs), body)


@pytest.mark.parametrize(
    ("kind", "body", "data"),
    [
        ("application/json", b'{"a": [1.5, null, "\xc3\xa9"]}', {"a": [1.5, None, "é"]}),
        ("application/json; charset=UTF-8", b"[1]", [1]),
        ('application/vnd.api+json;charset="utf-8"', b'"text"', "text"),
        ("text/json", b"null", None),
        (None, b"0", 0),
        ("", b"false", False),
        ("application/json", b'\xef\xbb\xbf{"bom": 1}', {"bom": 1}),
        ("application/json", b"123456789012345678901234567890", 123456789012345678901234567890),
        (FORM, b"a=1&b=x+y%26z&a=2&empty=", {"a": ["1", "2"], "b": "x y&z", "empty": ""}),
        (FORM, "ü=ß".encode(), {"ü": "ß"}),
        (FORM, b"payload=%7B%22action%22%3A+%22opened%22%7D", {"action": "opened"}),
        (FORM, b"payload=plain", {"payload": "plain"}),
        (FORM, b"payload=%7B%7D&other=1", {"payload": "{}", "other": "1"}),
        (FORM, b' {"sent": "by curl -d"}', {"sent": "by curl -d"}),
        ("text/plain", b'{"kept": "as text"}', '{"kept": "as text"}'),
        ("text/plain; charset=ISO-8859-1", b"\xe9", "é"),
        ("application/xml", b"<a/>", "<a/>"),
        ("application/atom+xml", b"<a/>", "<a/>"),
        ("application/json", b"", NOTHING),
        ("application/octet-stream", b"", NOTHING),
        (None, b"", NOTHING),
    ],
)  # fmt: skip
def test_a_body_is_read_by_its_type(kind: str | None, body: bytes, data: Any) -> None:
    assert data_of(body, kind) == data


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"not json", "is not JSON"),
        (b"{", "is not JSON"),
        (b"{} {}", "is not JSON"),
        (b"   ", "is not JSON"),
        (b"NaN", "is not JSON"),
        (b"1e999", "is not JSON"),
        (b"9" * 5000, "is not JSON"),
        (b'"\\ud800"', "is not JSON: .*half a character"),
        (b'"\xff"', "is not UTF-8"),
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', "the name 'b' twice"),
        (b'{"a": 1, "\\u0061": 2}', "the name 'a' twice"),
        (b"[" * 100_000, "levels deep"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "levels deep"),
        (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), "levels deep"),
    ],
)
def test_json_that_leaves_doubts_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(BodyInvalid, match=why):
        data_of(body)


def test_json_in_a_form_is_read_as_strictly() -> None:
    for body in (b"{", b'{"a": 1, "a": 2}', b'{"a":' * 101 + b"1" + b"}" * 101):
        with pytest.raises(BodyInvalid, match="The field payload"):
            data_of(b"payload=" + quote_plus(body).encode(), FORM)


def test_json_may_be_as_deep_as_is_accepted() -> None:
    assert data_of(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("multipart/form-data; boundary=x", "parts are not accepted"),
        ("application/octet-stream", "'application/octet-stream' are not accepted"),
        ("image/png", "'image/png' are not accepted"),
        ("application/json; charset=utf-16", "'utf-16' is not accepted"),
        ("text/plain; charset=koi8-r", "'koi8-r' is not accepted"),
    ],
)
def test_other_kinds_are_refused_by_name(kind: str, why: str) -> None:
    with pytest.raises(BodyUnsupported, match=why):
        data_of(b"{}", kind)


def test_a_type_that_is_none_is_refused() -> None:
    for kind in ("json", "a/b/c", "application/json, text/plain", "é/é"):
        with pytest.raises(BodyInvalid, match="cannot be read"):
            data_of(b"{}", kind)
    with pytest.raises(BodyInvalid, match="more than once"):
        read_data(Headers([("Content-Type", "text/plain"), ("content-type", "text/json")]), b"1")
    with pytest.raises(BodyInvalid, match="not us-ascii"):
        data_of(b"\xe9", "text/plain; charset=us-ascii")
    with pytest.raises(BodyInvalid, match="not utf-8"):
        data_of(b"a=\xff", FORM)
    with pytest.raises(BodyInvalid, match="form is not UTF-8"):
        data_of(b"a=%FF", FORM)
    with pytest.raises(BodyInvalid, match="fields"):
        data_of(b"&".join([b"a=1"] * (MAX_FIELDS + 1)), FORM)


# Packed bodies.


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("coding", "pack"),
    [
        ("gzip", gzip.compress),
        ("X-GZip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("identity", bytes),
        ("", bytes),
        ("identity, gzip", gzip.compress),
    ],
)
def test_a_packed_body_is_unpacked(coding: str, pack: Any) -> None:
    assert data_of(pack(b'{"a": 1}'), content_encoding=coding) == {"a": 1}


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, gzip", "rot13"])
def test_other_packings_are_refused_by_name(coding: str) -> None:
    with pytest.raises(BodyUnsupported, match=f"packed as '{coding}'"):
        data_of(b"{}", content_encoding=coding)
    pairs = [("Content-Encoding", "gzip"), ("Content-Encoding", coding)]
    with pytest.raises(BodyUnsupported, match=f"packed as 'gzip, {coding}'"):
        read_data(Headers(pairs), b"{}")


def test_what_cannot_be_unpacked_is_refused() -> None:
    packed = gzip.compress(b'{"a": 1}')
    flipped = packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]
    for body in (b"{}", packed[:-1], packed + b"x", packed + packed, flipped):
        with pytest.raises(BodyInvalid, match="cannot be unpacked"):
            data_of(body, content_encoding="gzip")
        with pytest.raises(BodyInvalid, match="cannot be unpacked"):
            data_of(body, content_encoding="deflate")


def test_a_bomb_is_refused_before_it_goes_off() -> None:
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    zeros = bytes(1024 * 1024)
    bomb = b"".join([*(packer.compress(zeros) for _ in range(200)), packer.flush()])
    assert len(bomb) < MAX_BYTES
    began = time.perf_counter()
    with pytest.raises(BodyTooLarge):
        data_of(bomb, content_encoding="gzip")
    assert time.perf_counter() - began < 0.5
    whole = gzip.compress(b" " * (MAX_BYTES - 1) + b"1")
    assert data_of(whole, content_encoding="gzip") == 1
    with pytest.raises(BodyTooLarge):
        data_of(gzip.compress(b" " * MAX_BYTES + b"1"), content_encoding="gzip")


def test_a_body_has_at_most_so_many_bytes() -> None:
    assert data_of(b" " * (MAX_BYTES - 1) + b"1") == 1
    with pytest.raises(BodyTooLarge, match="1,048,576 bytes"):
        data_of(b" " * MAX_BYTES + b"1")
    with pytest.raises(BodyTooLarge):
        read_data(Headers(), b"[1,2]", limit=4)


def test_hostile_json_costs_little_time() -> None:
    began = time.perf_counter()
    many = b"{" + b",".join(b'"%d":0' % i for i in range(80_000)) + b',"7":0}'
    with pytest.raises(BodyInvalid, match="'7' twice"):
        data_of(many)
    assert len(data_of(b"[" + b"0," * 500_000 + b"0]")) == 500_001
    assert time.perf_counter() - began < 2


# Payloads.


def test_a_payload_has_query_and_headers_beside_the_body() -> None:
    headers = Headers([("X-Event", "push"), ("Accept", "a"), ("accept", "b")])
    assert read_body(headers, b'{"a": 1}', b"x=1&y=%C3%A9&x=2&flag") == {
        "a": 1,
        "query": {"x": ["1", "2"], "y": "é", "flag": ""},
        "headers": {"x-event": "push", "accept": "a, b"},
    }


@pytest.mark.parametrize("data", [None, 0, "text", [1], False])
def test_what_is_no_object_is_under_body(data: Any) -> None:
    found = {"body": data, "query": {}, "headers": {}}
    assert read_body(Headers(), json.dumps(data).encode()) == found


def test_an_empty_body_adds_nothing() -> None:
    assert read_body(Headers(), b"", "a=1") == {"query": {"a": "1"}, "headers": {}}


def test_a_body_cannot_pretend_to_be_query_or_headers_and_loses_nothing() -> None:
    body = {"headers": {"x-tenant": "forged"}, "query": 1, "body": 2, "a": 3}
    payload = read_body(Headers([("X-Tenant", "real")]), json.dumps(body).encode(), b"q=0")
    assert payload == {"a": 3, "body": body, "query": {"q": "0"}, "headers": {"x-tenant": "real"}}
    assert read_body(Headers(), b'{"body": 2}') == {"body": 2, "query": {}, "headers": {}}


def test_a_query_that_cannot_be_read_is_refused() -> None:
    for query in (b"a=%FF", b"\xff", "&".join(["a"] * 1001)):
        with pytest.raises(BodyInvalid):
            read_body(Headers(), b"", query)


@pytest.mark.parametrize(
    "name",
    [
        "Authorization", "Proxy-Authorization", "Cookie", "X-Webhook-Secret", "X-Gitlab-Token",
        "Webhook-Signature", "X-Hub-Signature", "X-Hub-Signature-256", "Stripe-Signature",
        "X-Slack-Signature", "X-Shopify-Hmac-Sha256", "X-Api-Key", "ApiKey", "X-Auth",
        "X-Amz-Security-Token", "X-My-Sig", "X-Session-Id", "X-Client-Cert", "Access-Key",
    ],
)  # fmt: skip
def test_headers_with_secrets_never_enter_a_payload(name: str) -> None:
    for spelt in (name, name.lower(), name.upper()):
        headers = Headers([(spelt.encode(), SECRET.encode()), (b"X-Kept", b"1")])
        assert read_body(headers, b"")["headers"] == {"x-kept": "1"}


def test_headers_that_say_what_came_are_kept() -> None:
    names = ["content-type", "user-agent", "x-github-event", "x-github-delivery", "webhook-id",
             "idempotency-key", "x-author", "x-design", "ce-type", "x-forwarded-for"]  # fmt: skip
    headers = Headers([(name, "application/json") for name in names])
    assert list(payload_of(NOTHING, headers)["headers"]) == names


@pytest.mark.parametrize(
    "preset", ["standard-webhooks", "github", "stripe", "slack", "hmac", "header"]
)
def test_no_presets_signature_enters_a_payload(preset: str) -> None:
    pairs = signed(preset, b"{}").pairs
    shown = json.dumps(read_body(Headers(pairs), b"{}"))
    assert pairs[-1][1] not in shown


def test_a_trigger_hides_its_own_header_too() -> None:
    headers = Headers([("X-Magic-Word", SECRET), ("X-Kept", "1")])
    assert read_body(headers, b"", hidden=["X-MAGIC-word"])["headers"] == {"x-kept": "1"}


FIELDS = st.dictionaries(
    st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8"))
)


@given(FIELDS)
def test_whatever_a_form_was_made_of_comes_back(fields: dict[str, str]) -> None:
    payload = fields.get("payload", "")
    if not (len(fields) == 1 and payload.startswith("{")):
        body = urlencode(fields).encode()
        assert data_of(body, FORM) == (fields if body else NOTHING)
        assert read_body(Headers(), b"", body)["query"] == fields

"""Whatever comes over the wire: an answer or a named error, and soon."""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.errors import InvalidInput, SignatureInvalid
from stepwell.kernel.codec import encode
from stepwell.triggers.inbound.bodies import payload_of, read_data, signed_data
from stepwell.triggers.inbound.cloudevents import read_events
from stepwell.triggers.inbound.delivery import delivery_key, request_hash
from stepwell.triggers.inbound.github import github_events
from stepwell.triggers.inbound.headers import Headers
from stepwell.triggers.inbound.signatures import PRESETS, verify
from tests.triggers.signing import NOW, WHSEC

TYPES = [
    b"application/json", b"application/x-www-form-urlencoded", b"text/plain", b"", b"multipart/x",
    b"application/cloudevents+json", b"application/cloudevents-batch+json", b"text/plain;charset=x",
    b"\xff/\xff", b";;;", b"a/b;charset=\"",
]  # fmt: skip
NAMES = [
    b"Content-Encoding", b"ce-specversion", b"ce-id", b"ce-source", b"ce-type", b"ce-time",
    b"ce-\xff", b"X-GitHub-Event", b"X-GitHub-Delivery", b"Idempotency-Key", b"webhook-id", b"",
    *(each.header.encode() for each in PRESETS.values()),
]  # fmt: skip
VALUES = st.binary(max_size=20) | st.sampled_from(
    [
        b"gzip",
        b"deflate",
        b"1.0",
        b"/s",
        b"%",
        b'"',
        b"pull_request",
        b"issues",
        b"2018-04-05T03:56:24Z",
    ]
)
HEADERS = st.tuples(
    st.sampled_from(TYPES).map(lambda value: [(b"content-type", value)]) | st.just([]),
    st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=6),
).map(lambda both: both[0] + both[1])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "type", "source", "specversion", "data", "data_base64", "time",
                             "query", "action", "label", "issue", "pull_request"]), inner
        )
    ),
    max_leaves=10,
).map(lambda value: json.dumps(value).encode())  # fmt: skip
PLAIN = st.binary(max_size=60) | JSON
BODIES = PLAIN | PLAIN.map(gzip.compress) | PLAIN.map(zlib.compress)


@settings(max_examples=400, deadline=timedelta(seconds=1))
@given(HEADERS, BODIES, st.binary(max_size=20), st.sampled_from([*PRESETS, None]))
def test_whatever_comes_is_answered(
    pairs: list[tuple[bytes, bytes]], body: bytes, query: bytes, preset: str | None
) -> None:
    headers = Headers(pairs)
    assert request_hash("POST", query, body)
    with pytest.raises(SignatureInvalid):
        verify(preset or "", headers, body, [WHSEC], NOW)
    with contextlib.suppress(InvalidInput):
        for event in read_events(headers, body):
            assert event.id
            assert event.source
            assert event.type
    try:
        data = read_data(headers, body)
        payload = payload_of(data, headers, query)
    except InvalidInput:
        return
    assert delivery_key(preset, headers, data, "POST", query, body)
    assert delivery_key(preset, headers, signed_data(headers, body, data), "POST", query, body)
    assert {"query", "headers"} <= payload.keys()
    for let_in in (payload, *(each.payload for each in github_events(data))):
        encode(let_in, "It")  # can be stored

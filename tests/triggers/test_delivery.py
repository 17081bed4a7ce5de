"""Ids of deliveries: which one counts, what it looks like, and what stands in for it."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.kernel.jsonpath import NOTHING
from stepwell.kernel.names import check_text
from stepwell.triggers.inbound.cloudevents import read_events
from stepwell.triggers.inbound.delivery import delivery_key, event_id, request_hash
from stepwell.triggers.inbound.headers import Headers
from stepwell.triggers.inbound.signatures import PRESETS

EVERYTHING = Headers(
    [
        ("Webhook-Id", "msg_1"),
        ("X-GitHub-Delivery", "72d3162e"),
        ("Idempotency-Key", "key-1"),
        ("X-Request-Id", "req-1"),
    ]
)
DATA = {"id": "evt_1", "event_id": "Ev1", "source": "/mine"}


def delivery_id(preset: str | None, headers: Headers, data: Any, body: bytes = b"{}") -> str:
    return delivery_key(preset, headers, data, "POST", b"", body)


@pytest.mark.parametrize(
    ("preset", "found"),
    [
        ("standard-webhooks", "webhook:msg_1"),
        ("stripe", "stripe:evt_1"),
        ("slack", "slack:Ev1"),
    ],
)
def test_a_preset_that_signs_an_id_takes_that_and_no_other(preset: str, found: str) -> None:
    assert delivery_id(preset, EVERYTHING, DATA) == found
    assert delivery_id(preset, Headers([("Idempotency-Key", "key-1")]), {}).startswith("body:")


@pytest.mark.parametrize(
    ("preset", "known"), [("github", "github:72d3162e"), ("hmac", "webhook:msg_1")]
)
def test_where_no_id_is_signed_that_of_a_header_counts_and_else_the_body(
    preset: str, known: str
) -> None:
    assert delivery_id(preset, EVERYTHING, DATA) == known
    found = delivery_id(preset, Headers(), DATA)
    assert found == f"body:{hashlib.sha256(b'{}').hexdigest()}"
    assert delivery_key(preset, Headers(), DATA, "PUT", b"other", b"{}") == found
    assert delivery_id(preset, Headers(), DATA, b"{ }") != found


@pytest.mark.parametrize("preset", ["header", None])
def test_where_headers_are_believed_any_known_id_will_do(preset: str | None) -> None:
    assert delivery_id(preset, EVERYTHING, DATA) == "webhook:msg_1"
    assert delivery_id(preset, Headers([("X-GitHub-Delivery", "1")]), DATA) == "github:1"
    assert delivery_id(preset, Headers([("idempotency-KEY", "k")]), DATA) == "key:k"
    unknown = Headers([("X-Request-Id", "r")])
    assert delivery_id(preset, unknown, DATA) == request_hash("POST", b"", b"{}")


def test_an_event_is_known_by_its_source_and_its_id() -> None:
    binary = Headers(
        [("ce-specversion", "1.0"), ("ce-source", "/s"), ("ce-id", "1"), ("ce-type", "t")]
    )
    structured = Headers([("Content-Type", "application/cloudevents+json")])
    data = {"specversion": "1.0", "source": "/s", "id": "1", "type": "t"}
    found = 'cloudevent:["/s","1"]'
    assert delivery_id(None, binary, NOTHING) == delivery_id(None, structured, data) == found
    # What is signed is the body, and its type is not.
    assert delivery_id("hmac", structured, data) == delivery_id("hmac", Headers(), data) == found
    assert delivery_id("hmac", binary, NOTHING).startswith("body:")
    for headers in (binary, structured):
        [event] = read_events(headers, json.dumps(data).encode() if headers is structured else b"")
        assert event_id(event) == found
    assert delivery_id(None, structured, {"source": "/s"}).startswith("request:")
    batch = Headers([("Content-Type", "application/cloudevents-batch+json")])
    assert delivery_id(None, batch, [data]).startswith("request:")


@pytest.mark.parametrize("data", [None, [], "evt_1", {"id": 7}, {"id": None}, {"id": " "}, NOTHING])
def test_what_is_no_text_is_no_id(data: Any) -> None:
    assert delivery_id("stripe", Headers(), data).startswith("body:")


def test_a_header_that_came_twice_is_no_id() -> None:
    twice = Headers([("X-GitHub-Delivery", "1")] * 2)
    assert delivery_id(None, twice, {}).startswith("request:")


TEXTS = st.one_of(
    st.text(max_size=30), st.sampled_from(["x" * 190, "x" * 300, "sha256:" + "0" * 64, "é", "a b"])
)


@given(st.sampled_from([*PRESETS, None]), TEXTS, TEXTS)
def test_ids_are_short_and_clean_and_differ_where_texts_do(
    preset: str | None, one: str, other: str
) -> None:
    found = [
        delivery_id(preset, Headers([("Webhook-Id", text), ("X-GitHub-Delivery", text)]),
                    {"id": text, "event_id": text})
        for text in (one, other)
    ]  # fmt: skip
    for text, each in zip((one, other), found, strict=True):
        assert each.isascii()
        assert check_text(each, "A key") == each
        if text.strip():
            assert (found[0] == found[1]) == (one.strip() == other.strip())


def test_nobody_can_send_the_hash_of_another_id_as_an_id() -> None:
    hashed = delivery_id(None, Headers([("X-GitHub-Delivery", "x" * 300)]), {})
    imitated = Headers([("X-GitHub-Delivery", hashed.removeprefix("github:"))])
    assert delivery_id(None, imitated, {}) != hashed


def test_a_hash_tells_requests_apart_and_nothing_moves_between_its_parts() -> None:
    requests = list(itertools.product(["POST", "PUT"], [b"", b"a=1", b"a"], [b"", b"=1", b"a=1"]))
    hashes = {request_hash(*each) for each in requests}
    assert len(hashes) == len(requests)
    assert request_hash("post", "a=1", b"{}") == request_hash("POST", b"a=1", b"{}")
    assert check_text(request_hash("POST", b"", b""), "A key").startswith("request:")

"""Requests that were caught and sent again with other unsigned parts: they are what they were.

The attacker has one request that was signed rightly, and can change whatever the signature does
not cover: method, query, and all headers but those of the preset. Only the id of a delivery is
believed where it is not signed.
"""

from __future__ import annotations

import itertools
import json
from typing import Any
from urllib.parse import quote_plus

import pytest

from stepwell.errors import RequestUnfit, StepwellError
from stepwell.trigger import Delivery, Request
from stepwell.triggers.webhook import Config, webhook
from tests.triggers.signing import NOW, signed

EVENT = {"specversion": "1.0", "type": "paid", "source": "/shop", "id": "1", "data": {"n": 1}}
PULL = {"action": "opened", "pull_request": {"number": 1}, "repository": {"full_name": "a/b"}}
JSON = "application/json"
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
FORM = "application/x-www-form-urlencoded"
SIGNING = ["standard-webhooks", "github", "stripe", "slack", "hmac"]
IDS = {"github": ["X-GitHub-Delivery"], "hmac": ["Idempotency-Key"]}
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def receive(
    preset: str, body: bytes, *pairs: tuple[str, str], method: str = "POST", query: str = "",
    **config: Any,
) -> Delivery:  # fmt: skip
    sent = signed(preset, body)
    made = Config.model_validate(
        {"verify": preset, "secret": "s", "method": METHODS, "becomes": "both", **config}
    )
    request = Request(method, [*sent.pairs, *pairs], body, query)
    return webhook.receive(made, request, [sent.secret], NOW)


def changes() -> list[dict[str, Any]]:
    """Everything that an attacker might try, one by one and in pairs."""
    headers = [
        ("X-GitHub-Delivery", "other"), ("X-GitHub-Event", "issues"), ("Idempotency-Key", "other"),
        ("ce-id", "other"), ("ce-type", "other"), ("ce-source", "other"), ("Accept", "other"),
        ("ce-specversion", "1.0"), ("Content-Encoding", "identity"),
    ]  # fmt: skip
    kinds = [None, "", JSON, "text/plain", "text/plain;charset=latin1", "a/xml", FORM, STRUCTURED,
             BATCH, "application/octet-stream"]  # fmt: skip
    found: list[dict[str, Any]] = []
    for kind, other in itertools.product(kinds, [None, *headers]):
        pairs = [("Content-Type", kind)] if kind is not None else []
        found.append({"pairs": pairs + ([other] if other else [])})
    json_only = [("Content-Type", JSON)]
    found += [{"pairs": json_only, "method": each} for each in METHODS]
    return [*found, {"pairs": json_only, "query": "a=1"}]


BODIES = {
    "plain": (JSON, json.dumps({"n": 1}).encode()),
    "with ids": (JSON, json.dumps({"id": "evt_1", "event_id": "Ev1", "n": 1}).encode()),
    "github": (JSON, json.dumps(PULL).encode()),
    "form": (FORM, b"payload=" + quote_plus(json.dumps(PULL)).encode()),
    "event": (STRUCTURED, json.dumps(EVENT).encode()),
    "batch": (BATCH, json.dumps([EVENT, {**EVENT, "id": "2"}]).encode()),
    "text": ("text/plain", b"so it is"),
    "empty": (JSON, b""),
}


@pytest.mark.parametrize("preset", SIGNING)
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("event", ["other", None])
def test_a_request_that_was_caught_says_nothing_new(
    preset: str, name: str, event: str | None
) -> None:
    kind, body = BODIES[name]
    first = receive(preset, body, ("Content-Type", kind), event=event)
    known = {(each.type, each.key) for each in first.events}
    taken = 0
    for change in changes():
        pairs = change.pop("pairs")
        if any(name in IDS.get(preset, ()) for name, _ in pairs):
            continue
        try:
            again = receive(preset, body, *pairs, event=event, **change)
        except StepwellError:
            continue  # it starts nothing, and reports nothing
        taken += 1
        assert again.key == first.key, (pairs, change)
        assert {(each.type, each.key) for each in again.events} <= known, (pairs, change)
    assert taken > 5


@pytest.mark.parametrize("preset", SIGNING)
def test_another_body_is_another_delivery(preset: str) -> None:
    found = set()
    for n in range(3):
        body = json.dumps({"id": f"e{n}", "event_id": f"e{n}", "n": n}).encode()
        found.add(receive(preset, body, ("Content-Type", JSON)).key)
    # That one signs its id together with the body, and so it may say the same of both.
    assert len(found) == (1 if preset == "standard-webhooks" else 3)


@pytest.mark.parametrize("preset", SIGNING)
@pytest.mark.parametrize("becomes", ["run", "events", "both"])
def test_attributes_that_nobody_has_signed_make_no_event(preset: str, becomes: str) -> None:
    pairs = [("ce-specversion", "1.0"), ("ce-type", "t"), ("ce-source", "/s"), ("ce-id", "1")]
    with pytest.raises(RequestUnfit, match="structured mode") as refused:
        receive(preset, b"{}", ("Content-Type", JSON), *pairs, becomes=becomes)
    assert refused.value.details["reason"] == "unsigned"


def test_a_secret_that_comes_along_vouches_for_the_headers_too() -> None:
    pairs = [("ce-specversion", "1.0"), ("ce-type", "t"), ("ce-source", "/s"), ("ce-id", "1")]
    found = receive("header", b"{}", ("Content-Type", JSON), *pairs)
    assert [each.type for each in found.events] == ["t"]
    assert found.key == 'cloudevent:["/s","1"]'
    one, other = (receive("header", b"{}", ("Idempotency-Key", key)).key for key in "ab")
    assert one != other


@pytest.mark.parametrize("preset", SIGNING)
def test_what_is_no_event_is_emitted_as_what_the_webhook_says_or_refused(preset: str) -> None:
    body = b'{"id": "1", "event_id": "1"}'
    found = receive(preset, body, ("Content-Type", JSON), becomes="events", event="other")
    assert [(each.type, each.key) for each in found.events] == [("other", found.key)]
    if preset == "github":  # most deliveries report nothing
        assert receive(preset, body, ("Content-Type", JSON), becomes="events").events == []
        return
    with pytest.raises(RequestUnfit, match="neither a CloudEvent nor a delivery") as refused:
        receive(preset, body, ("Content-Type", JSON), becomes="events")
    assert refused.value.details["reason"] == "no_event"

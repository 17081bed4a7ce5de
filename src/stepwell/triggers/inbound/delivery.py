"""By what a delivery is known again: senders repeat themselves, and one of each is enough.

Where an id is part of what was signed, that one counts. GitHub, and whoever signs the body alone,
says the id in a header. It is believed all the same: two deliveries may have the same body, and to
take them for one would lose the second. Without any id the body is its own, or all of the request
where nothing is signed. `X-Request-Id` is no id; proxies make a new one for every attempt.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from stepwell.kernel.names import MAX_LENGTH
from stepwell.triggers.inbound.cloudevents import CloudEvent, looks_like_event, mode_of
from stepwell.triggers.inbound.headers import Headers
from stepwell.triggers.inbound.signatures import only_body_counts

_CLEAN = re.compile("[!-~]+")
_HASHED = "sha256:"

Finder = Callable[[Headers, Any], str | None]


def delivery_key(
    preset: str | None, headers: Headers, data: Any, method: str, query: str | bytes, body: bytes
) -> str:
    """By what a delivery is known, in printable ASCII and no longer than a key may be.

    `data` is the JSON in the body: for presets that sign, whatever the headers say it is.
    """
    for kind, find in FINDERS.get(preset or "", _OPEN):
        found = find(headers, data)
        if found and (text := found.strip()):
            return _bounded(kind, text)
    if only_body_counts(preset):
        return f"body:{hashlib.sha256(body).hexdigest()}"
    return request_hash(method, query, body)


def request_hash(method: str, query: str | bytes, body: bytes) -> str:
    """What stands in for an id where nothing is signed: the same request is the same delivery."""
    raw = query.encode("utf-8", "surrogatepass") if isinstance(query, str) else query
    digest = hashlib.sha256()
    for part in (method.upper().encode("utf-8", "replace"), raw, body):
        # With its length, so that nothing can move from one part to the next.
        digest.update(len(part).to_bytes(8, "big") + part)
    return f"request:{digest.hexdigest()}"


def event_id(event: CloudEvent) -> str:
    """The same for one event, of a batch say: its source and its id."""
    return _bounded(*_event_key(event.source, event.id))


def _bounded(kind: str, text: str) -> str:
    """The id with its kind before it; what is long or odd is replaced by its hash."""
    whole = f"{kind}:{text}"
    if len(whole) <= MAX_LENGTH and _CLEAN.fullmatch(text) and not text.startswith(_HASHED):
        return whole
    return f"{kind}:{_HASHED}{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


def _header(name: str) -> Finder:
    def find(headers: Headers, data: Any) -> str | None:
        values = headers.all(name)
        return values[0] if len(values) == 1 else None

    return find


def _field(name: str) -> Finder:
    def find(headers: Headers, data: Any) -> str | None:
        value = data.get(name) if isinstance(data, dict) else None
        return value if isinstance(value, str) else None

    return find


def _cloudevent(headers: Headers, data: Any) -> str | None:
    """Source and id together: either alone may be another event's as well."""
    mode = mode_of(headers)
    if mode == "binary":
        parts = [_header("ce-source")(headers, data), _header("ce-id")(headers, data)]
    elif mode == "structured":
        parts = [_field("source")(headers, data), _field("id")(headers, data)]
    else:
        return None
    source, key = parts
    return _event_key(source, key)[1] if source and key else None


def _event_key(source: str, key: str) -> tuple[str, str]:
    return "cloudevent", json.dumps([source, key], separators=(",", ":"))


def _cloudevent_inside(headers: Headers, data: Any) -> str | None:
    """The same for an event that is in the body, whatever the headers say."""
    if not looks_like_event(data):
        return None
    source, key = _field("source")(headers, data), _field("id")(headers, data)
    return _event_key(source, key)[1] if source and key else None


_OPEN: tuple[tuple[str, Finder], ...] = (
    ("cloudevent", _cloudevent),
    ("webhook", _header("webhook-id")),
    ("github", _header("x-github-delivery")),
    ("key", _header("idempotency-key")),
)
# Preset → where its ids are; presets that are not here sign nothing.
FINDERS: Mapping[str, tuple[tuple[str, Finder], ...]] = {
    "standard-webhooks": (("webhook", _header("webhook-id")),),
    "github": (("github", _header("x-github-delivery")),),
    "stripe": (("stripe", _field("id")),),
    "slack": (("slack", _field("event_id")),),
    "hmac": (
        ("cloudevent", _cloudevent_inside),
        ("webhook", _header("webhook-id")),
        ("key", _header("idempotency-key")),
    ),
}

"""CloudEvents 1.0 over HTTP: read in binary, structured and batched mode."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

import msgspec

from stepwell.errors import BodyInvalid, BodyUnsupported, EventInvalid, InvalidInput
from stepwell.kernel.clock import moment, to_micros
from stepwell.kernel.names import show
from stepwell.triggers.inbound.bodies import (
    MAX_BYTES,
    MediaType,
    media_type,
    read_as,
    read_media_type,
)
from stepwell.triggers.inbound.headers import Headers
from stepwell.triggers.inbound.packing import unpacked
from stepwell.triggers.inbound.strict_json import read_json

CONTENT_TYPE = "application/cloudevents+json"
MAX_BATCH = 1000
MAX_ATTRIBUTES = 100
MAX_VALUE = 2000
REQUIRED = ("id", "source", "type")
_OPTIONAL = ("subject", "datacontenttype", "dataschema")
_DATA = ("data", "data_base64")
_KNOWN = frozenset({"specversion", "time", *_DATA, *REQUIRED, *_OPTIONAL})
_NAME = re.compile("[a-z0-9]+")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_BAD_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)

Mode = Literal["binary", "structured", "batch"]


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event. Data that is neither JSON nor text is in `data_base64`; null is no data."""

    type: str
    source: str
    id: str
    # Microseconds since the epoch.
    time: int | None = None
    subject: str | None = None
    data: Any = None
    data_base64: str | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    extensions: dict[str, str | int | bool] = msgspec.field(default_factory=dict)


def mode_of(headers: Headers) -> Mode | None:
    """In which mode a request carries events; None if it carries none."""
    name = headers.get("content-type", "").partition(";")[0].strip().lower()
    if name.startswith("application/cloudevents-batch"):
        return "batch"
    if name.startswith("application/cloudevents"):
        return "structured"
    return "binary" if "ce-specversion" in headers else None


def read_events(headers: Headers, body: bytes, *, limit: int = MAX_BYTES) -> list[CloudEvent]:
    """The events of a request; EventInvalid if one is malformed, and then none is taken."""
    mode, kind = mode_of(headers), media_type(headers)
    if mode is None:
        raise EventInvalid(
            "This is no CloudEvent: there is neither a ce-specversion header nor a "
            f"content-type of {CONTENT_TYPE}."
        )
    if mode != "binary" and not kind.name.endswith("+json"):
        raise BodyUnsupported(f"Events in the format {show(kind.name)} are not accepted.")
    data = unpacked(headers, body, limit)
    if mode == "binary":
        return [_binary(headers, kind, data)]
    value = read_json(data)
    if mode == "structured":
        return [event_of(value)]
    return _batch(value)


def looks_like_event(data: Any) -> bool:
    """Whether data is an event in its JSON form, rightly or not."""
    return isinstance(data, dict) and "specversion" in data and not data.keys().isdisjoint(REQUIRED)


def events_inside(data: Any) -> list[CloudEvent]:
    """The events that data is, whatever its type is said to be; none if it is something else."""
    if looks_like_event(data):
        return [event_of(data)]
    if isinstance(data, list) and data and all(map(looks_like_event, data)):
        return _batch(data)
    return []


def event_of(value: Any, where: str = "") -> CloudEvent:
    """An event from its JSON form."""
    if not isinstance(value, dict):
        raise EventInvalid(f"{where}an event is an object, not {_kind(value)}.")
    attributes = {name: each for name, each in value.items() if name not in _DATA}
    packed, data = value.get("data_base64"), value.get("data")
    if packed is not None:
        if "data" in value:
            raise EventInvalid(f"{where}an event has data or data_base64, not both.")
        kind = read_media_type(str(value.get("datacontenttype") or ""))
        data, packed = _opened(_decoded(packed, where), kind)
        return _event(attributes, data, packed, where)
    return _event(attributes, data, None, where)


def attributes_of(event: CloudEvent) -> dict[str, Any]:
    """What an event says of itself, without its data."""
    found: dict[str, Any] = {name: getattr(event, name) for name in (*REQUIRED, *_OPTIONAL)}
    if event.time is not None:
        found["time"] = moment(event.time).isoformat().replace("+00:00", "Z")
    return {name: each for name, each in found.items() if each is not None} | event.extensions


def payload_of_event(event: CloudEvent) -> dict[str, Any]:
    """What an event says: its data, or `data` with what is no object; and of itself, `cloudevent`.

    That is always the event's own; data that has such a key itself is also kept whole.
    """
    is_object = isinstance(event.data, dict)
    payload = dict(event.data) if is_object else {}
    if event.data_base64 is not None:
        payload["data_base64"] = event.data_base64
    elif not is_object or "cloudevent" in payload:
        payload["data"] = event.data
    return {**payload, "cloudevent": attributes_of(event)}


def _batch(value: Any) -> list[CloudEvent]:
    if not isinstance(value, list) or len(value) > MAX_BATCH:
        raise EventInvalid(f"A batch is a list of at most {MAX_BATCH:,} events.")
    return [event_of(each, f"Event {i}: ") for i, each in enumerate(value)]


def _binary(headers: Headers, kind: MediaType, data: bytes) -> CloudEvent:
    attributes: dict[str, Any] = {}
    for header in headers:
        name = header.removeprefix("ce-")
        if name == header:
            continue
        if name in (*_DATA, "datacontenttype"):
            raise EventInvalid(f"In binary mode there is no header {header}.")
        if len(values := headers.all(header)) > 1:
            raise EventInvalid(f"The header {header} came more than once.")
        attributes[name] = _unquoted(values[0], header)
    if kind.name:
        attributes["datacontenttype"] = headers["content-type"]
    return _event(attributes, read_as(kind, data) if data else None, None, "")


def _opened(data: bytes, kind: MediaType) -> tuple[Any, str | None]:
    """Data of that kind, or what cannot be shown as base64."""
    try:
        if kind.is_json or kind.is_text:
            return read_as(kind, data), None
    except BodyInvalid:
        if kind.name:  # else nobody has said that it is JSON
            raise
    return None, base64.b64encode(data).decode()


def _decoded(packed: Any, where: str) -> bytes:
    try:
        return base64.b64decode(packed, validate=True)
    except (TypeError, ValueError):
        raise EventInvalid(f"{where}data_base64 is not base64.") from None


def _unquoted(text: str, header: str) -> str:
    """The value of a header: out of its quotes, then percent-decoded once."""
    if _QUOTED.fullmatch(text):
        text = re.sub(r"\\(.)", r"\1", text[1:-1])
    if not text.isascii() or _BAD_PERCENT.search(text):
        raise EventInvalid(f"The header {header} is not percent-encoded.")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise EventInvalid(f"The header {header} is not UTF-8.") from None


def _event(
    attributes: Mapping[str, Any], data: Any, data_base64: str | None, where: str
) -> CloudEvent:
    given = {name: value for name, value in attributes.items() if value is not None}
    if len(given) > MAX_ATTRIBUTES:
        raise EventInvalid(f"{where}an event has at most {MAX_ATTRIBUTES} attributes.")
    if given.get("specversion") != "1.0":
        raise EventInvalid(f"{where}specversion must be '1.0'.", attribute="specversion")
    for name, value in given.items():
        _check(name, value, where)
    for name in REQUIRED:
        if not given.get(name):
            raise EventInvalid(f"{where}the attribute {name} is missing or empty.", attribute=name)
    at = given.get("time")
    return CloudEvent(
        id=given["id"],
        source=given["source"],
        type=given["type"],
        subject=given.get("subject"),
        datacontenttype=given.get("datacontenttype"),
        dataschema=given.get("dataschema"),
        time=None if at is None else _micros(at, where),
        data=data,
        data_base64=data_base64,
        extensions={name: value for name, value in given.items() if name not in _KNOWN},
    )


def _kind(value: Any) -> str:
    """What a value is, without the value: messages are kept, and it may be secret."""
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return "null" if value is None else kinds.get(type(value), "this number")


def _check(name: str, value: Any, where: str) -> None:
    if not _NAME.fullmatch(name):
        raise EventInvalid(
            f"{where}the attribute {show(name)} has other characters than a-z and 0-9."
        )
    if isinstance(value, str):
        if len(value) > MAX_VALUE or _FORBIDDEN.search(value):
            raise EventInvalid(
                f"{where}the attribute {name} has more than {MAX_VALUE:,} characters, or control "
                "characters.",
                attribute=name,
            )
    elif name in _KNOWN or not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise EventInvalid(f"{where}the attribute {name} cannot be {_kind(value)}.", attribute=name)


def _micros(text: str, where: str) -> int:
    match = _TIME.fullmatch(text)
    try:
        if match:
            day, clock, fraction, zone = match.groups()
            written = f"{day}T{clock}.{(fraction or '0').ljust(6, '0')}{zone.upper()}"
            return to_micros(datetime.fromisoformat(written.replace("Z", "+00:00")))
    except (ValueError, OverflowError, InvalidInput):
        pass
    raise EventInvalid(
        f"{where}the attribute time is not a time like 2026-01-31T12:00:00Z.",
        attribute="time",
    )

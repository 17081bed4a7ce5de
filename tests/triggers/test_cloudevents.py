"""CloudEvents: all modes are read, and what is malformed is named."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import BodyInvalid, BodyTooLarge, BodyUnsupported, EventInvalid
from stepwell.kernel.clock import LAST
from stepwell.triggers.inbound.cloudevents import (
    CONTENT_TYPE,
    MAX_BATCH,
    MAX_VALUE,
    CloudEvent,
    attributes_of,
    event_of,
    events_inside,
    mode_of,
    payload_of_event,
    read_events,
)
from stepwell.triggers.inbound.headers import Headers

STRUCTURED = Headers([("Content-Type", f"{CONTENT_TYPE}; charset=utf-8")])
BATCH = Headers([("Content-Type", "application/cloudevents-batch+json")])
LEAST = {"specversion": "1.0", "id": "A-1", "source": "/context", "type": "com.example.some"}
AT = 1_522_900_584_000_000  # 2018-04-05T03:56:24Z


def binary(*pairs: tuple[str, str], **changes: str | None) -> Headers:
    attributes: dict[str, str | None] = {**LEAST, **changes}
    given = [(f"CE-{name}", value) for name, value in attributes.items() if value is not None]
    return Headers([*given, *pairs])


def test_an_event_in_binary_mode() -> None:
    headers = binary(
        ("Content-Type", "application/json; charset=utf-8"),
        time="2018-04-05T03:56:24Z", subject="Euro%20%E2%82%AC%20%F0%9F%98%80", sequence="5",
    )  # fmt: skip
    assert read_events(headers, b'{"a": [1]}') == [
        CloudEvent(
            type="com.example.some",
            source="/context",
            id="A-1",
            time=AT,
            subject="Euro € 😀",
            data={"a": [1]},
            datacontenttype="application/json; charset=utf-8",
            extensions={"sequence": "5"},
        )
    ]


def test_an_event_in_structured_mode() -> None:
    document = {
        **LEAST, "time": "2018-04-05T05:56:24.0+02:00", "subject": None, "othervalue": 5,
        "flag": True, "unset": None, "dataschema": "https://x.test/s",
        "datacontenttype": "text/xml", "data": "<a/>",
    }  # fmt: skip
    assert read_events(STRUCTURED, json.dumps(document).encode()) == [
        CloudEvent(
            type="com.example.some",
            source="/context",
            id="A-1",
            time=AT,
            data="<a/>",
            datacontenttype="text/xml",
            dataschema="https://x.test/s",
            extensions={"othervalue": 5, "flag": True},
        )
    ]


def test_a_batch_is_taken_whole_or_not_at_all() -> None:
    events = [{**LEAST, "id": str(i)} for i in range(3)]
    assert [each.id for each in read_events(BATCH, json.dumps(events).encode())] == ["0", "1", "2"]
    assert read_events(BATCH, b"[]") == []
    del events[1]["source"]
    with pytest.raises(EventInvalid, match="Event 1: the attribute source is missing"):
        read_events(BATCH, json.dumps(events).encode())
    for body in (b"{}", json.dumps([LEAST] * (MAX_BATCH + 1)).encode()):
        with pytest.raises(EventInvalid, match="A batch is a list of at most"):
            read_events(BATCH, body)


@pytest.mark.parametrize(
    ("pairs", "mode"),
    [
        ([("Content-Type", "Application/CloudEvents+JSON")], "structured"),
        ([("Content-Type", "application/cloudevents-batch+json")], "batch"),
        (
            [("Content-Type", "application/cloudevents+json"), ("ce-specversion", "1.0")],
            "structured",
        ),
        ([("Ce-SpecVersion", "1.0")], "binary"),
        ([("Content-Type", "application/json")], None),
        ([], None),
    ],
)
def test_the_mode_is_seen_from_the_headers(pairs: list[tuple[str, str]], mode: str | None) -> None:
    assert mode_of(Headers(pairs)) == mode
    if mode is None:
        with pytest.raises(EventInvalid, match="no CloudEvent"):
            read_events(Headers(pairs), b"{}")


@pytest.mark.parametrize("name", ["id", "source", "type", "specversion"])
@pytest.mark.parametrize("value", [None, ""])
def test_required_attributes_are_required(name: str, value: str | None) -> None:
    with pytest.raises(EventInvalid, match=name):
        event_of({**LEAST, name: value})
    with pytest.raises(EventInvalid, match=f"{name}|no CloudEvent"):
        read_events(binary(**{name: value}), b"")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"specversion": "0.3"}, "specversion must be '1.0'"),
        ({"id": 7}, "attribute id cannot be this number"),
        ({"type": ["t"]}, "attribute type cannot be"),
        ({"subject": True}, "attribute subject cannot be"),
        ({"time": "yesterday"}, "time is not a time"),
        ({"time": "2018-02-30T00:00:00Z"}, "time is not a time"),
        ({"time": "2018-01-01T00:00:00"}, "time is not a time"),
        ({"time": "1969-12-31T23:59:59Z"}, "time is not a time"),
        ({"time": "2018-01-01T00:00:00+99:00"}, "time is not a time"),
        ({"myExt": "x"}, "'myExt' has other characters"),
        ({"my_ext": "x"}, "'my_ext' has other characters"),
        ({"ext": {"a": 1}}, "attribute ext cannot be"),
        ({"ext": 1.5}, "attribute ext cannot be"),
        ({"ext": 2**31}, "attribute ext cannot be"),
        ({"ext": "a\nb"}, "attribute ext has"),
        ({"id": "x" * (MAX_VALUE + 1)}, "attribute id has"),
        ({f"e{i}": "" for i in range(100)}, "at most 100 attributes"),
        ({"data": 1, "data_base64": "AA=="}, "not both"),
        ({"data_base64": "A"}, "not base64"),
        ({"data_base64": 7}, "not base64"),
    ],
)
def test_what_is_malformed_is_named(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(EventInvalid, match=why):
        event_of({**LEAST, **changes})


def test_what_is_said_of_a_malformed_event_shows_none_of_its_values() -> None:
    secret = "hunter2"
    odd: list[Any] = [secret, [secret], {**LEAST, "data": secret, "data_base64": secret}]
    odd += [{**LEAST, name: [secret]} for name in ("id", "type", "subject", "time", "ext")]
    odd += [{**LEAST, "time": secret}, {**LEAST, "specversion": secret}]
    odd += [{**LEAST, "ext": f"{secret}\n"}, {**LEAST, "data_base64": f"{secret}!"}]
    for each in odd:
        with pytest.raises(EventInvalid) as refused:
            event_of(each)
        assert secret not in refused.value.message


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        (binary(("ce-id", "again")), "ce-id came more than once"),
        (binary(datacontenttype="text/plain"), "no header ce-datacontenttype"),
        (binary(data="x"), "no header ce-data"),
        (binary(("ce-my-ext", "x")), "'my-ext' has other characters"),
        (binary(subject="%C0%A0"), "ce-subject is not UTF-8"),
        (binary(subject="100%"), "ce-subject is not percent-encoded"),
        (binary(subject="é"), "ce-subject is not percent-encoded"),
        (binary(subject="%00"), "attribute subject has"),
    ],
)
def test_a_malformed_header_is_named(headers: Headers, why: str) -> None:
    with pytest.raises(EventInvalid, match=why):
        read_events(headers, b"")


def test_a_quoted_header_is_taken_out_of_its_quotes() -> None:
    [event] = read_events(binary(subject=r'"a \"b\" \\ %20c"'), b"")
    assert event.subject == r'a "b" \  c'


def test_data_that_is_neither_json_nor_text_stays_packed() -> None:
    packed = base64.b64encode(b"\x00\xff").decode()
    kind = {"datacontenttype": "application/x-thrift", "data_base64": packed}
    event = event_of({**LEAST, **kind})
    assert (event.data, event.data_base64) == (None, packed)
    with pytest.raises(BodyUnsupported, match="x-thrift"):
        read_events(binary(("Content-Type", "application/x-thrift")), b"\x00\xff")
    as_json = {"data_base64": base64.b64encode(b'{"a": 1}').decode()}
    assert event_of({**LEAST, **as_json}).data == {"a": 1}


@pytest.mark.parametrize("data", [b"hi", b"\x00\xff", b"", b'{"a": 1', b'{"a": 1e999}'])
def test_packed_data_of_no_type_stays_packed_unless_it_is_json(data: bytes) -> None:
    packed = base64.b64encode(data).decode()
    event = event_of({**LEAST, "data_base64": packed})
    assert (event.data, event.data_base64) == (None, packed)
    with pytest.raises(BodyInvalid):
        event_of({**LEAST, "data_base64": packed, "datacontenttype": "application/json"})


def test_what_an_event_says_is_its_data_with_its_attributes_beside() -> None:
    about = {"subject": "s", "time": "2018-04-05T03:56:24Z", "sequence": 5}
    told = {"type": "com.example.some", "source": "/context", "id": "A-1", **about}

    def payload(**fields: Any) -> dict[str, Any]:
        return payload_of_event(event_of({**LEAST, **about, **fields}))

    assert payload(data={"a": 1}) == {"a": 1, "cloudevent": told}
    assert payload(data=[1]) == {"data": [1], "cloudevent": told}
    assert payload() == {"data": None, "cloudevent": told}
    packed = {"data_base64": "AP8=", "datacontenttype": "application/x-thrift"}
    kind = {"datacontenttype": "application/x-thrift"}
    assert payload(**packed) == {"data_base64": "AP8=", "cloudevent": told | kind}
    # Data cannot pretend to be attributes, and loses nothing.
    forged = {"cloudevent": {"source": "/forged"}, "a": 1}
    assert payload(data=forged) == {"a": 1, "data": forged, "cloudevent": told}


def test_events_are_known_by_their_form_alone() -> None:
    assert [each.id for each in events_inside(dict(LEAST))] == ["A-1"]
    assert [each.id for each in events_inside([LEAST, LEAST])] == ["A-1", "A-1"]
    for other in (None, 5, "text", {}, [], [LEAST, 5], {"specversion": "1.0"}, {"id": "1"}):
        assert events_inside(other) == []
    with pytest.raises(EventInvalid, match="specversion"):
        events_inside({**LEAST, "specversion": "0.3"})


def test_bodies_of_events_keep_the_limits_of_bodies() -> None:
    packed = gzip.compress(json.dumps(LEAST).encode())
    headers = Headers([("Content-Type", CONTENT_TYPE), ("Content-Encoding", "gzip")])
    assert read_events(headers, packed)[0].id == "A-1"
    with pytest.raises(BodyTooLarge):
        read_events(headers, packed, limit=70)
    with pytest.raises(BodyInvalid, match="not JSON"):
        read_events(STRUCTURED, b"{")
    with pytest.raises(BodyInvalid, match="twice"):
        read_events(STRUCTURED, b'{"id": "1", "id": "2"}')
    for kind in ("application/cloudevents+avro", "application/cloudevents-batch+protobuf"):
        with pytest.raises(BodyUnsupported, match=r"avro|protobuf"):
            read_events(Headers([("Content-Type", kind)]), b"")


def written(event: CloudEvent) -> bytes:
    """The event as its sender would write it."""
    fields = {"specversion": "1.0", **attributes_of(event), "data": event.data}
    return json.dumps(fields).encode()


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), max_size=10)
NAMES = st.text("abz09", min_size=1, max_size=5).map("x".__add__)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.builds(
    CloudEvent,
    type=TEXTS.filter(bool),
    source=TEXTS.filter(bool),
    id=TEXTS.filter(bool),
    time=st.none() | st.integers(0, LAST),
    subject=st.none() | TEXTS,
    data=JSON,
    extensions=st.dictionaries(
        NAMES, TEXTS | st.booleans() | st.integers(-(2**31), 2**31 - 1), max_size=3
    ),
)


@given(EVENTS)
def test_what_is_written_is_read_again(event: CloudEvent) -> None:
    assert read_events(STRUCTURED, written(event)) == [event]

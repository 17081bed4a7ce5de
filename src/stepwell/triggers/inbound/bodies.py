"""Bodies of requests: the data in them, and the payload that data, query and headers make.

| `Content-Type` | data |
|---|---|
| none, `application/json`, `text/json`, `…+json` | the JSON value |
| `application/x-www-form-urlencoded` | an object of texts; of lists where a name is repeated |
| the same, with `payload` as its only field and an object in it (GitHub, Slack) | that object |
| the same, but JSON all the same (`curl -d '{…}'`) | the JSON value |
| `text/…`, `application/xml`, `…+xml` | the text |
| anything, with an empty body | none |
| `multipart/…` and everything else | refused |

The payload is the data if that is an object, else `{"body": data}`, with `query` and `headers`
added. Those are always the request's own, so that what they mean is not up to who wrote the body;
a body that has such keys itself is also kept whole, under `body`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from stepwell.errors import BodyInvalid, BodyUnsupported
from stepwell.kernel.jsonpath import NOTHING
from stepwell.kernel.names import show
from stepwell.triggers.inbound.headers import Headers
from stepwell.triggers.inbound.packing import unpacked
from stepwell.triggers.inbound.strict_json import read_json

MAX_BYTES = 1024 * 1024
# Fields of a form or a query.
MAX_FIELDS = 1000
_RESERVED = ("query", "headers")
_CHARSETS = {
    "utf-8": "utf-8", "utf8": "utf-8", "us-ascii": "ascii", "ascii": "ascii",
    "iso-8859-1": "latin-1", "latin1": "latin-1",
}  # fmt: skip
_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+/[!#$%&'*+.^_`|~0-9a-z-]+")


class MediaType(NamedTuple):
    """A `Content-Type`: its name in lower case, without parameters, and its charset."""

    name: str
    charset: str

    @property
    def is_json(self) -> bool:
        return self.name in ("", "application/json", "text/json") or self.name.endswith("+json")

    @property
    def is_text(self) -> bool:
        return self.name.startswith("text/") or self.name.endswith(("/xml", "+xml"))


def read_data(headers: Headers, body: bytes, *, limit: int = MAX_BYTES) -> Any:
    """What is in a body; NOTHING if it is empty."""
    kind = media_type(headers)
    if kind.name.startswith("multipart/"):
        raise BodyUnsupported("Files and other parts are not accepted. Send JSON.")
    data = unpacked(headers, body, limit)
    return read_as(kind, data) if data else NOTHING


def signed_data(headers: Headers, body: bytes, data: Any) -> Any:
    """The JSON or form that a body is, whatever its headers say, which nobody has signed.

    `data` is what is in it by its headers; NOTHING is what is neither.
    """
    if media_type(headers).is_json and "content-encoding" not in headers:
        return data
    for read in (read_json, _form):
        with suppress(BodyInvalid):
            return read(body)
    return NOTHING


def payload_of(
    data: Any, headers: Headers, query: str | bytes = b"", *, hidden: Collection[str] = ()
) -> dict[str, Any]:
    """The payload that data, query and headers make."""
    is_object = isinstance(data, dict)
    payload = dict(data) if is_object else {}
    if data is not NOTHING and not (is_object and payload.keys().isdisjoint(_RESERVED)):
        payload["body"] = data
    payload["query"] = _fields(
        _text(query, what="query") if isinstance(query, bytes) else query, "query"
    )
    payload["headers"] = headers.without_secrets(hidden)
    return payload


def media_type(headers: Headers) -> MediaType:
    """The kind of the body, by its header."""
    values = headers.all("content-type")
    if len(values) > 1:
        raise BodyInvalid("The header content-type came more than once.")
    return read_media_type(values[0] if values else "")


def read_media_type(text: str) -> MediaType:
    """A media type as it is written; an empty one stands for JSON."""
    name, *parameters = (part.strip() for part in text.lower().split(";"))
    if name and not _TYPE.fullmatch(name):
        raise BodyInvalid(f"The media type {show(text)} cannot be read.")
    charset = ""
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key == "charset":
            charset = value.strip('"')
    return MediaType(name, charset)


def read_as(kind: MediaType, data: bytes) -> Any:
    """Bytes of that kind as a value."""
    if kind.is_json:
        if kind.charset not in ("", "utf-8", "utf8", "us-ascii", "ascii"):
            raise _charset(kind.charset)
        return read_json(data)
    if kind.name == "application/x-www-form-urlencoded":
        return _form(data)
    if kind.is_text:
        return _text(data, kind.charset)
    raise BodyUnsupported(f"Bodies of type {show(kind.name)} are not accepted. Send JSON.")


def _form(data: bytes) -> Any:
    text = _text(data)
    if text.lstrip()[:1] in ("{", "["):
        return read_json(data)  # a form has these characters only in disguise
    fields = _fields(text, "form")
    payload = fields.get("payload")
    if len(fields) == 1 and isinstance(payload, str) and payload.startswith("{"):
        return read_json(payload.encode(), "The field payload")
    return fields


def _fields(text: str, what: str) -> dict[str, str | list[str]]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except UnicodeDecodeError:
        raise BodyInvalid(f"The {what} is not UTF-8.") from None
    except ValueError:
        raise BodyInvalid(f"The {what} has more than {MAX_FIELDS:,} fields.") from None
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _text(data: bytes, charset: str = "", what: str = "body") -> str:
    if charset and charset not in _CHARSETS:
        raise _charset(charset)
    try:
        return data.decode(_CHARSETS.get(charset, "utf-8"))
    except UnicodeDecodeError:
        raise BodyInvalid(f"The {what} is not {charset or 'utf-8'}.") from None


def _charset(charset: str) -> BodyUnsupported:
    return BodyUnsupported(f"The charset {show(charset)} is not accepted. Send UTF-8.")

"""The arguments of an operation, read from path, query, headers and body of a request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from stepwell.errors import BodyInvalid, BodyUnsupported, InvalidInput
from stepwell.kernel.codec import why_unread
from stepwell.kernel.fields import read_fields
from stepwell.kernel.names import did_you_mean, show
from stepwell.operation import HEADERS, Operation, Parameter

JSON = "application/json"
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,6}(?:\.\d+)?)\"?\s*(?:$|[,;])", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
MAX_QUERY_FIELDS = 100
# A header may have so many: each is tried.
MAX_TAGS = 10


class ArgumentReader:
    """Reads the arguments of one operation."""

    def __init__(self, operation: Operation) -> None:
        found = operation.parameters.values()
        self._all = operation.parameters
        self._query = {each.name: each for each in found if each.where == "query"}
        self._headers = [each for each in found if each.where == "header"]
        body = operation.arguments("body")
        self._body_fields = body.__struct_fields__
        self._decoder = msgspec.json.Decoder(body)
        self.has_body = operation.method not in ("GET", "DELETE")

    def read(
        self, values: Mapping[str, str], query: bytes, headers: Mapping[str, str], body: bytes
    ) -> dict[str, Any]:
        """All of them; raises InvalidInput, or BodyInvalid."""
        found = self._body(headers, body) if self.has_body else {}
        for name, text in values.items():
            found[name] = _converted(_printable(text, name), self._all[name])
        for each in self._headers:
            said = headers.get(HEADERS[each.name].lower())
            given = None if said is None else _from_header(each.name, said)
            if given is not None:
                found[each.name] = _converted(given, each)
        if query or self._query:
            self._from_query(query, found)
        return found

    def _body(self, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if body and kind != JSON and not kind.endswith("+json"):
            raise BodyUnsupported(f"The body has to be {JSON}, not {kind or 'without a type'!r}.")
        try:
            given = self._decoder.decode(body or b"{}")
        except msgspec.ValidationError as error:
            _, _, path = str(error).partition(" - at ")
            fields = f" Its fields are: {', '.join(self._body_fields) or 'none'}."
            raise InvalidInput(
                f"The body does not have the form that is asked for: {error!s:.300}."
                + ("" if path else fields),
                path=path[:300].strip("`") or "$",
            ) from None
        except RecursionError:
            raise BodyInvalid("The body is nested too deep.") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BodyInvalid(f"The body is not JSON: {why_unread(body, error)}.") from None
        return {name: getattr(given, name) for name in self._body_fields}

    def _from_query(self, query: bytes, found: dict[str, Any]) -> None:
        try:
            pairs = parse_qsl(
                query.decode(), keep_blank_values=True, errors="strict",
                max_num_fields=MAX_QUERY_FIELDS,
            )  # fmt: skip
        except ValueError:
            raise InvalidInput(
                f"The query is not UTF-8, or has more than {MAX_QUERY_FIELDS} fields."
            ) from None
        given: dict[str, list[str]] = {}
        dotted: dict[str, list[tuple[str, str]]] = {}
        for name, text in pairs:
            outer, dot, inner = name.partition(".")
            if dot and outer in self._query and _is_mapping(self._query[outer]):
                if "\0" in text + inner:
                    raise InvalidInput(f"{name!r:.100}: no input has a NUL in it.", path=outer)
                dotted.setdefault(outer, []).append((inner, text))
            elif name in self._query and name not in found:
                given.setdefault(name, []).append(_printable(text, name))
            else:
                if name in self._query:
                    raise InvalidInput(f"{name!r} stands in the path; leave it out of the query.")
                raise InvalidInput(
                    f"There is no query parameter {name!r:.100}."
                    + did_you_mean(name, self._query.keys() - found.keys())
                )
        for name, texts in given.items():
            parameter = self._query[name]
            listed = [each for text in texts for each in text.split(",")]
            if not _is_list(parameter) and len(texts) > 1:
                raise InvalidInput(f"The query has {name!r} more than once.")
            found[name] = _converted(listed if _is_list(parameter) else texts[0], parameter)
        for name, fields in dotted.items():
            found[name] = read_fields(fields, name)
        for name, parameter in self._query.items():
            if parameter.required and name not in found:
                raise InvalidInput(f"The query parameter {name!r} is missing.")


def _printable(text: str, name: str) -> str:
    """The text, unless it has something that no name and no id can have."""
    if not text.isprintable():
        raise InvalidInput(f"{name} has characters that cannot be shown: {show(text)}.", path=name)
    return text


def _converted(value: Any, parameter: Parameter) -> Any:
    if isinstance(value, str) and _DATE.fullmatch(value) and _is_time(parameter):
        value = f"{value}T00:00:00Z"
    try:
        # No text means null: what is not there is left out.
        kind = reduce(or_, _choices(parameter.type))
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        said = _no_choice(value, parameter) or (
            f"{parameter.name} is not what is asked for: {error}."
        )
        raise InvalidInput(said, path=parameter.name) from None


def _no_choice(value: Any, parameter: Parameter) -> str:
    """That a value is none of those there are; empty if it is not one of a few."""
    for kind in _choices(parameter.type):
        for each in (kind, *get_args(kind)):
            if get_origin(each) is Literal:
                known = get_args(each)
                given = value if isinstance(value, list) else [value]
                wrong = next((text for text in given if text not in known), "")
                return f"{show(wrong)} is no {parameter.name}; there are {', '.join(known)}."
    return ""


def tags_in(text: str) -> list[str]:
    """The tags in an `If-Match`, any of which may be that of what is there; none if all may.

    One that names nothing is refused: whoever sends it wants to overwrite nobody.
    """
    if text.strip() == "*":
        return []
    written = [each.strip() for each in text.split(",")]
    tags = [each.removeprefix("W/").strip('"') for each in written]
    if "" in tags or "*" in written:
        raise InvalidInput(
            f'If-Match is a tag like "abc", several with commas between, or * alone; not '
            f"{show(text)}.",
            path="If-Match",
        )
    if len(tags) > MAX_TAGS:
        raise InvalidInput(
            f"If-Match has {len(tags):,} tags; at most {MAX_TAGS} are tried.", path="If-Match"
        )
    return tags


def _from_header(name: str, text: str) -> str | float | None:
    """What a header says, without what HTTP puts around it."""
    if name == "if_match":
        tags = tags_in(text)
        return tags[0] if tags else None
    if name == "wait":
        wait = _WAIT.search(text)
        return None if wait is None else float(wait[1])
    return text


def _is_list(parameter: Parameter) -> bool:
    return any(_origin(each) in (list, Sequence) for each in _choices(parameter.type))


def _is_mapping(parameter: Parameter) -> bool:
    return any(_origin(each) in (dict, Mapping) for each in _choices(parameter.type))


def _is_time(parameter: Parameter) -> bool:
    return any(
        datetime in (each, *get_args(each)) for each in (parameter.type, *_choices(parameter.type))
    )


def _choices(kind: Any) -> list[Any]:
    if get_origin(kind) in (Union, UnionType):
        return [each for each in get_args(kind) if each is not NoneType]
    return [kind]


def _origin(kind: Any) -> Any:
    found = get_origin(kind)
    # As typing gives them back: collections.abc.Mapping.
    return found if found is not None else kind

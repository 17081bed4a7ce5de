"""JSON from outside: read in the one way that leaves no doubt about what it says."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec

from stepwell.errors import BodyInvalid
from stepwell.kernel.codec import decode, why_unread
from stepwell.kernel.names import show

MAX_DEPTH = 100
# Objects and lists, or rather brackets, texts included: so many take a tenth of a second.
MAX_BRACKETS = 200_000
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_json(data: bytes, what: str = "The body") -> Any:
    """A JSON value: UTF-8, no name twice in an object, nested no deeper than is accepted."""
    data = data.removeprefix(_BYTE_ORDER_MARK)
    brackets = data.count(b"[") + data.count(b"{")
    if brackets > MAX_BRACKETS:
        raise BodyInvalid(f"{what} has more than {MAX_BRACKETS:,} objects and lists.")
    try:
        value = decode(data)
    except UnicodeDecodeError:
        raise BodyInvalid(f"{what} is not UTF-8.") from None
    except RecursionError:
        raise _too_deep(what) from None
    except msgspec.MsgspecError as error:
        raise BodyInvalid(f"{what} is not JSON: {why_unread(data, error)}.") from None
    if brackets > MAX_DEPTH:
        _check_depth(value, what)
    _check_names(data, what)
    return value


def _check_depth(value: Any, what: str) -> None:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise _too_deep(what)


def _too_deep(what: str) -> BodyInvalid:
    return BodyInvalid(f"{what} is nested more than {MAX_DEPTH} levels deep.")


def _check_names(data: bytes, what: str) -> None:
    """Refuse names that are given twice: who checks and who acts might see different ones."""

    def distinct(pairs: list[tuple[str, Any]]) -> None:
        if len(dict(pairs)) < len(pairs):
            [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
            raise BodyInvalid(f"{what} has the name {show(twice)} twice in one object.")

    if data.count(b":") > 1 and b"{" in data:
        json.loads(data.decode(), object_pairs_hook=distinct, parse_int=bool, parse_float=bool)

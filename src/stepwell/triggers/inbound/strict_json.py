"""JSON from outside: read in the one way that leaves no doubt about what it says."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec

from stepwell.errors import BodyInvalid
from stepwell.kernel.codec import decode
from stepwell.kernel.names import show

MAX_DEPTH = 100
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_json(data: bytes, what: str = "The body") -> Any:
    """A JSON value: UTF-8, no name twice in an object, nested no deeper than is accepted."""
    data = data.removeprefix(_BYTE_ORDER_MARK)
    try:
        value = decode(data)
    except UnicodeDecodeError:
        raise BodyInvalid(f"{what} is not UTF-8.") from None
    except RecursionError:
        raise _too_deep(what) from None
    except msgspec.MsgspecError as error:
        raise BodyInvalid(f"{what} is not JSON: {error}.") from None
    _check_depth(value, what)
    _check_names(data, what)
    return value


def _check_depth(value: Any, what: str) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        nested = [each for each in level if isinstance(each, dict | list)]
        if not nested:
            return
        level = [
            inner
            for each in nested
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    raise _too_deep(what)


def _too_deep(what: str) -> BodyInvalid:
    return BodyInvalid(f"{what} is nested more than {MAX_DEPTH} levels deep.")


def _check_names(data: bytes, what: str) -> None:
    """Refuse names that are given twice: who checks and who acts might see different ones."""

    def distinct(pairs: list[tuple[str, Any]]) -> None:
        if len(dict(pairs)) < len(pairs):
            [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
            raise BodyInvalid(f"{what} has the name {show(twice)} twice in one object.")

    if data.count(b":") > 1:
        json.loads(data.decode(), object_pairs_hook=distinct, parse_int=bool, parse_float=bool)

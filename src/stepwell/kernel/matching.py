"""Whether a payload satisfies a match, and the one term by which waits are found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

# The longest term kept in the index; longer values are found by their first characters.
TERM_LENGTH = 200


def contains(payload: Any, match: Any) -> bool:
    """Superset test: every part of `match` is found in `payload`, lists in any order."""
    if isinstance(match, dict):
        return isinstance(payload, dict) and all(
            key in payload and contains(payload[key], value) for key, value in match.items()
        )
    if isinstance(match, list):
        return isinstance(payload, list) and all(
            any(contains(item, wanted) for item in payload) for wanted in match
        )
    if isinstance(match, bool) or isinstance(payload, bool):
        return payload is match
    return bool(payload == match)


def term_of(match: Any) -> str:
    """The term a wait is filed under: its longest scalar, the likeliest to be unique."""
    terms = list(_terms(match, ()))
    return max(terms, key=len, default="")


def terms_of(payload: Any) -> list[str]:
    """Every term under which a wait for this payload may be filed, the empty one included."""
    return ["", *dict.fromkeys(_terms(payload, ()))]


def _terms(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _terms(inner, (*path, key))
    elif path and not isinstance(value, list):
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # 1.0 equals 1, so both must be filed alike
        yield (json.dumps(path) + "=" + json.dumps(value))[:TERM_LENGTH]

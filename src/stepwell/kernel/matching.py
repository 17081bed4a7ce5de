"""Whether a payload satisfies a match, and the terms by which waits and runs are found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Any

from stepwell.errors import InvalidInput
from stepwell.kernel.codec import decode, encode
from stepwell.kernel.names import show

# The longest term kept in the index; longer values are found by their first characters.
TERM_LENGTH = 200
# How deep a match may be nested; deeper parts of a payload cannot be asked for.
MAX_DEPTH = 100
# Under how many terms of its input a run is filed.
MAX_FILED = 16
# What a run is filed under that has more of them: it has to be looked at.
UNFILED = 0


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


def filed_under(input: str) -> list[int]:
    """What a run with this input, as JSON, is filed under: the terms that are least deep in it."""
    if not input.startswith("{"):
        return []
    found = [number_of(term) for term in islice(_shallow_terms(decode(input)), MAX_FILED + 1)]
    if len(found) > MAX_FILED:
        found[MAX_FILED] = UNFILED
    return list(dict.fromkeys(found))


def looked_up(match: Any) -> list[int]:
    """What runs whose inputs contain a match are filed under; nothing if that cannot be said."""
    term = term_of(match)
    return [number_of(term), UNFILED] if term else []


def number_of(term: str) -> int:
    """A term as a number that others have hardly ever, and takes less room."""
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), signed=True)


def _terms(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items() if len(path) < MAX_DEPTH else ():
            yield from _terms(inner, (*path, key))
    elif path and not isinstance(value, list):
        yield _term(value, path)


def _shallow_terms(value: dict[str, Any]) -> Iterator[str]:
    """The same, level by level."""
    level: list[tuple[tuple[str, ...], dict[str, Any]]] = [((), value)]
    while level:
        deeper = []
        for path, each in level:
            for key, inner in each.items():
                if isinstance(inner, dict):
                    deeper.append(((*path, key), inner))
                elif not isinstance(inner, list):
                    yield _term(inner, (*path, key))
        level = deeper


def _term(value: Any, path: tuple[str, ...]) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1.0 equals 1, so both must be filed alike
    return (json.dumps(path) + "=" + json.dumps(value))[:TERM_LENGTH]


def check_match(value: Any, what: str) -> dict[str, Any]:
    """A match as it comes back from JSON: a mapping, and not nested without end."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{what} must be a mapping, not {show(value)}.")
    found: dict[str, Any] = decode(encode(dict(value), what))
    if _depth(found) > MAX_DEPTH:
        raise InvalidInput(f"{what} is nested more than {MAX_DEPTH} levels deep.")
    return found


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH:
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        depth += 1
    return depth

"""Taking secrets out of everything that is recorded, in whichever dress they come."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "•••"
# Shorter ones would take ordinary words apart.
SHORTEST = 4
# A line of a secret that has several, and what is sure to be of it in base64.
_SHORTEST_PART = 8
# How often JSON inside JSON is looked through.
_NESTED = 3


class Masking:
    """Knows values that nobody may see."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        forms = {form for value in values for form in _forms(value)}
        # The longest first: of two that begin alike, the shorter would leave the rest.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __bool__(self) -> bool:
        return self._pattern is not None

    def text(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def value(self, value: Any) -> Any:
        """A JSON value with its texts and keys masked."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                self.text(key) if isinstance(key, str) else key: self.value(each)
                for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        return value


def _forms(value: str) -> Iterator[str]:
    """All the ways in which a value may show itself."""
    if len(value) < SHORTEST:
        return
    yield from _in_json(value)
    yield quote(value, safe="")
    yield quote_plus(value)
    yield repr(value)[1:-1]
    yield repr(value.encode())[2:-1]
    for line in value.splitlines():
        if len(line.strip()) >= _SHORTEST_PART:
            yield line.strip()
    yield from _in_base64(value.encode())


def _in_json(value: str) -> set[str]:
    """The value as it is inside JSON, and inside JSON that is a text inside JSON again."""
    found = {value}
    for _ in range(_NESTED):
        found |= {
            json.dumps(each, ensure_ascii=ascii)[1:-1] for each in found for ascii in (True, False)
        }
    return found


def _in_base64(raw: bytes) -> Iterator[str]:
    """What base64 of any text around the value has to contain, wherever it begins."""
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + raw).decode().rstrip("=")
        # The first characters also hold what comes before, the last what comes after.
        first = 0 if offset == 0 else offset + 1
        last = len(encoded) if (offset + len(raw)) % 3 == 0 else len(encoded) - 1
        sure = encoded[first:last]
        if len(sure) >= _SHORTEST_PART:
            yield sure
            yield sure.replace("+", "-").replace("/", "_")

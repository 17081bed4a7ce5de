"""Taking secrets out of everything that is recorded, in whichever dress they come.

Whoever cuts a text puts "…" where it was cut: what is left there of a secret is masked as well.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "•••"
# Shorter ones would take ordinary words apart.
SHORTEST = 4
# A line of a secret that has several, and what is sure to be of it in base64.
_SHORTEST_PART = 8
# How we, and others, mark that a text was cut: pydantic and reprlib write dots.
_CUT = re.compile(r"…|\.{3,}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]")
# How often JSON inside JSON is looked through.
_NESTED = 3


# In texts longer than this, looking for one form after the other is faster than for all at once.
_LONG = 500


def beginning(text: str, most: int) -> str:
    """What a text begins with, and the mark if that is not all of it."""
    return text if len(text) <= most else f"{text[:most]}…"


class Masking:
    """Knows values that nobody may see."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        values = set(values)
        self._encoded = {
            form: ends for value in values for form, ends in _in_base64(value.encode())
        }
        forms = {form for value in values for form in _forms(value)} | self._encoded.keys()
        self._numbers = {number for value in values for number in _as_number(value)}
        # The longest first: of two that begin alike, the shorter would leave the rest.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._forms = ordered
        self._pattern = _any_of(ordered)
        self._before_cut = _Starts(ordered)
        self._after_cut = _Starts([form[::-1] for form in ordered])
        # How far a piece can reach over other cuts: only over those that a secret itself has.
        self._reach = max((len(form) for form in ordered if _CUT.search(form)), default=0)

    def __bool__(self) -> bool:
        return self._pattern is not None

    def text(self, text: str) -> str:
        if self._pattern is None:
            return text
        pattern: re.Pattern[str] | None = self._pattern
        if len(text) > _LONG:
            pattern = _any_of([form for form in self._forms if form in text])
        cuts = [cut.span() for cut in _CUT.finditer(text)]
        whole = [] if pattern is None else [self._whole(found) for found in pattern.finditer(text)]
        return _without(text, [*whole, *self._pieces(text, cuts)])

    def _whole(self, found: re.Match[str]) -> tuple[int, int]:
        """Where a secret stands; of base64 with the characters that are partly of it, and padding.

        Not in the pattern: it would try every character as the first of one.
        """
        text, (start, end) = found.string, found.span()
        shares_first, shares_last = self._encoded.get(found[0], (False, False))
        if shares_first and _BASE64.fullmatch(text[start - 1 : start]):
            start -= 1
        if shares_last and _BASE64.fullmatch(text[end : end + 1]):
            end += 1
            end += len(text[end : end + 2]) - len(text[end : end + 2].lstrip("="))
        return start, end

    def _pieces(self, text: str, cuts: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Where cuts have left a part of a secret."""
        ends = [0, *(end for _, end in cuts)]
        starts = [*(start for start, _ in cuts), len(text)]
        for number, (start, end) in enumerate(cuts):
            before = text[max(0, min(ends[number], start - self._reach)) : start]
            yield start - self._before_cut.at_the_end_of(before), start
            after = text[end : max(starts[number + 1], end + self._reach)]
            yield end, end + self._after_cut.at_the_end_of(after[::-1])

    def value(self, value: Any) -> Any:
        """A JSON value with its texts, keys and numbers masked."""
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
        return MASK if self._is_telling(value) else value

    def _is_telling(self, value: Any) -> bool:
        """Whether this is a number that a secret was read as, or that holds one."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        assert self._pattern is not None
        text = json.dumps(value)
        return self._pattern.search(text) is not None or float(text) in self._numbers


def _any_of(forms: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(re.escape, forms))) if forms else None


class _Starts:
    """Finds texts of which only the start is there."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._longest = max(map(len, texts), default=0)
        self._texts: dict[str, list[str]] = defaultdict(list)
        for text in texts:
            self._texts[text[:SHORTEST]].append(text)

    def at_the_end_of(self, text: str) -> int:
        """How long the longest start of one is that this text ends with; very short ones pass."""
        for place in range(max(0, len(text) - self._longest), len(text) - SHORTEST + 1):
            for whole in self._texts.get(text[place : place + SHORTEST], ()):
                if len(whole) >= len(text) - place and whole.startswith(text[place:]):
                    return len(text) - place
        return 0


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text with these parts masked; those that overlap are one."""
    parts, shown = [], 0
    for start, end in sorted(spans):
        if end <= max(start, shown):
            continue
        if start >= shown:
            parts += [text[shown:start], MASK]
        shown = end
    return "".join([*parts, text[shown:]])


def _forms(value: str) -> Iterator[str]:
    """All the ways in which a value may show itself."""
    if len(value) < SHORTEST:
        return
    yield from _in_json(value)
    plain = "".join(sign for sign in value if sign.isprintable() or sign in "\t\n")
    yield plain  # as it is once it was put into another text
    yield quote(value, safe="")
    yield quote(value, safe="/:@!$&'()*+,;=~?")  # as addresses are written
    yield quote_plus(value)
    yield repr(value)[1:-1]
    yield repr(value.encode())[2:-1]
    for line in value.splitlines():
        if len(line.strip()) >= _SHORTEST_PART:
            yield line.strip()


def _as_number(value: str) -> Iterator[float]:
    """The number that a value can be read as, which may be written otherwise: 0815, 1e9."""
    try:
        number = float(value)
    except ValueError:
        return
    if math.isfinite(number) and len(f"{number:g}") >= SHORTEST:
        yield number


def _in_json(value: str) -> set[str]:
    """The value as it is inside JSON, and inside JSON that is a text inside JSON again."""
    found = {value}
    for _ in range(_NESTED):
        found |= {
            json.dumps(each, ensure_ascii=ascii)[1:-1] for each in found for ascii in (True, False)
        }
    return found


def _in_base64(raw: bytes) -> Iterator[tuple[str, tuple[bool, bool]]]:
    """What base64 of any text around the value has to contain, wherever it begins.

    With it, whether the character before and the one after hold a part of the value too.
    """
    if len(raw) < SHORTEST:
        return
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + raw).decode().rstrip("=")
        # The first characters also hold what comes before, the last what comes after.
        first = 0 if offset == 0 else offset + 1
        shares_last = (offset + len(raw)) % 3 != 0
        last = len(encoded) - shares_last
        sure = encoded[first:last]
        if len(sure) >= _SHORTEST_PART:
            ends = offset > 0, shares_last
            yield sure, ends
            yield sure.replace("+", "-").replace("/", "_"), ends

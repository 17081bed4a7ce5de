"""JSONPath as in RFC 9535, without filters and functions: read once, asked often.

A path that can only lead to one place (`$.user.name`, `$.items[-1]`) is *singular* and finds a
value, or `NOTHING`; any other finds a list. What it may cost is bounded, whoever sends the data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import msgspec

from stepwell.errors import InvalidPath, PathTooBroad
from stepwell.kernel.names import show

MAX_LENGTH = 1000
MAX_SEGMENTS = 50
# How much one path may find, at every segment of it.
MAX_RESULTS = 10_000
# How many objects and lists may be looked at, over all segments: 50 ms or so, in which nothing
# else happens. A megabyte of records has as many.
MAX_LOOKS = 50_000
# So many values in one of them cost as much as one more.
_SCANNED = 16
# The largest number that every reader of JSON can hold exactly.
_MAX_INDEX = 2**53 - 1


class Nothing(Enum):
    """What a singular path finds where there is nothing; null is something."""

    NOTHING = "nothing"

    def __bool__(self) -> bool:
        return False


class Wildcard(Enum):
    """The selector `*`."""

    ALL = "*"


NOTHING: Final = Nothing.NOTHING
Selector = str | int | slice | Wildcard


class Segment(msgspec.Struct, frozen=True):
    """One step of the way: what to select, and whether from all descendants or children only."""

    selectors: tuple[Selector, ...]
    descends: bool = False

    @property
    def singular(self) -> bool:
        only = self.selectors[0] if len(self.selectors) == 1 else None
        return not self.descends and isinstance(only, str | int)


class Looks:
    """Counts what has been looked at; several paths may share it."""

    def __init__(self, most: int = MAX_LOOKS) -> None:
        self._left = most

    def spend(self, count: int, path: str) -> None:
        self._left -= count
        if self._left < 0:
            raise PathTooBroad(
                f"The path {show(path)} has to look at too much of the data: more than "
                f"{MAX_LOOKS:,} objects and lists, with all paths beside it. Name more of the way.",
                path=path,
            )


class Path(msgspec.Struct, frozen=True):
    """A path that was read."""

    text: str
    segments: tuple[Segment, ...]

    @property
    def singular(self) -> bool:
        """Whether it leads to one place at most."""
        return all(each.singular for each in self.segments)

    @property
    def plain(self) -> bool:
        """Whether nothing in the data can be part of what it finds more than once."""
        return all(len(each.selectors) == 1 and not each.descends for each in self.segments)

    def find(self, data: Any, looks: Looks | None = None) -> Any:
        """The value or NOTHING if the path is singular, else a list of what was found."""
        looks = looks or Looks()
        found = [data]
        for segment in self.segments:
            sources, found = found, []
            for source in sources:
                if segment.descends:
                    self._descend(segment, source, found, looks)
                elif isinstance(source, dict | list):
                    looks.spend(len(segment.selectors), self.text)
                    self._select(segment, source, found)
        if self.singular:
            return found[0] if found else NOTHING
        return found

    def _select(self, segment: Segment, source: Any, found: list[Any]) -> None:
        for selector in segment.selectors:
            found += _selected(selector, source)
            if len(found) > MAX_RESULTS:
                raise PathTooBroad(
                    f"The path {show(self.text)} finds more than {MAX_RESULTS:,} values.",
                    path=self.text,
                )

    def _descend(self, segment: Segment, source: Any, found: list[Any], looks: Looks) -> None:
        """From the source, then from all below it; parents before children, lists in order."""
        stack, selectors = [source], len(segment.selectors)
        while stack:
            value = stack.pop()
            if not isinstance(value, dict | list):
                continue
            looks.spend(selectors + len(value) // _SCANNED, self.text)
            self._select(segment, value, found)
            # In what is empty there is nothing to be found.
            inner = value.values() if isinstance(value, dict) else value
            below = [each for each in inner if each and isinstance(each, (dict, list))]
            below.reverse()
            stack += below


def _selected(selector: Selector, source: dict[str, Any] | list[Any]) -> Iterable[Any]:
    if isinstance(selector, Wildcard):
        return source.values() if isinstance(source, dict) else source
    if isinstance(source, dict):
        return (source[selector],) if isinstance(selector, str) and selector in source else ()
    if isinstance(selector, slice):
        return () if selector.step == 0 else source[selector]
    if isinstance(selector, int) and -len(source) <= selector < len(source):
        return (source[selector],)
    return ()


def read_path(text: str) -> Path:
    """Read a path; raises InvalidPath, which says where it goes wrong."""
    given: object = text
    if not isinstance(given, str):
        raise InvalidPath(f"A path is a text like '$.user.name', not {show(given)}.", path=None)
    if len(text) > MAX_LENGTH:
        raise InvalidPath(
            f"The path has {len(text):,} characters; at most {MAX_LENGTH:,} are allowed.",
            path=f"{text[:100]}…",
        )
    return _read(text)


@lru_cache(maxsize=1024)
def _read(text: str) -> Path:
    # Triggers read the same few paths for every request.
    return Path(text, tuple(_Reader(text).segments()))


_NAME = re.compile("[A-Za-z_\x80-\ud7ff\ue000-\U0010ffff][0-9A-Za-z_\x80-\ud7ff\ue000-\U0010ffff]*")
_SPACE = re.compile("[ \t\n\r]*")
_INTEGER = re.compile("0|-?[1-9][0-9]*")
_PLAIN = {
    quote: re.compile(rf"[^\x00-\x1f\ud800-\udfff\\{quote}]+") for quote in ("'", '"')
}  # fmt: skip
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "/": "/", "\\": "\\"}
_UNICODE = re.compile(
    r"\\u(?:([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
    r"|([0-9abcefABCEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}))"
)


class _Reader:
    """Goes through the text of one path from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def segments(self) -> Iterator[Segment]:
        if not self._take("$"):
            raise self._wrong("A path begins with '$'", f"Write {'$.' + self.text.lstrip('@.')!r}.")
        count = 0
        while self.at < len(self.text):
            self._skip()
            if (count := count + 1) > MAX_SEGMENTS:
                raise self._wrong(f"A path has at most {MAX_SEGMENTS} segments")
            yield self._segment()

    def _segment(self) -> Segment:
        descends = self._take("..")
        if not descends and self._peek() == "[":
            return Segment(self._bracketed())
        if not descends and not self._take("."):
            raise self._wrong(*self._between())
        if descends and self._peek() == "[":
            return Segment(self._bracketed(), descends=True)
        if self._take("*"):
            return Segment((Wildcard.ALL,), descends)
        return Segment((self._match(_NAME) or self._no_name(),), descends)

    def _between(self) -> tuple[str, str]:
        """What is wrong where a segment should begin."""
        if self.at == len(self.text):
            return "A path does not end with spaces", ""
        if self._peek() == "(":
            return "Functions are not supported", "Let the definition compute it from the value."
        return (
            "Here '.', '..' or '[' should follow",
            "Names with other characters than letters, digits and '_' are written ['like-this'].",
        )

    def _no_name(self) -> str:
        if self._peek() == "[":
            raise self._wrong("There is a '.' too many before '['", "Leave it out, or write '..'.")
        raise self._wrong(
            "A name is missing, or does not begin with a letter or '_'",
            "Write [0] for an index, ['0'] for a name.",
        )

    def _bracketed(self) -> tuple[Selector, ...]:
        self._take("[")
        selectors = [self._selector()]
        while self._take(","):
            selectors.append(self._selector())
        if not self._take("]"):
            raise self._wrong("Here ',' or ']' should follow")
        return tuple(selectors)

    def _selector(self) -> Selector:
        """A selector, with the spaces around it."""
        self._skip()
        found: Selector
        if self._peek() in ("'", '"'):
            found = self._quoted()
        elif self._take("*"):
            found = Wildcard.ALL
        elif self._peek() == "?":
            raise self._wrong("Filters are not supported", "Take the list, and filter in a node.")
        elif self._peek() == "(":
            raise self._wrong("Scripts are not supported", "The last item is [-1].")
        else:
            found = self._index_or_slice()
        self._skip()
        return found

    def _index_or_slice(self) -> int | slice:
        start = self._integer()
        self._skip()
        if not self._take(":"):
            if start is None:
                raise self._wrong(
                    "A name in quotes, an index, a slice or '*' should stand here",
                    "Names in brackets have quotes: ['name'].",
                )
            return start
        self._skip()
        end = self._integer()
        self._skip()
        step = None
        if self._take(":"):
            self._skip()
            step = self._integer()
        return slice(start, end, step)

    def _integer(self) -> int | None:
        at, text = self.at, self._match(_INTEGER)
        if not text:
            return None
        if len(text) > 17 or abs(int(text)) > _MAX_INDEX:
            self.at = at
            raise self._wrong(f"A number lies between -{_MAX_INDEX} and {_MAX_INDEX}")
        return int(text)

    def _quoted(self) -> str:
        quote = self._peek()
        begin, parts = self.at, [""]
        self.at += 1
        while not self._take(quote):
            if self.at == len(self.text):
                self.at = begin
                raise self._wrong(f"The {quote} that begins here does not end")
            parts.append(self._match(_PLAIN[quote]) or self._escaped(quote))
        return "".join(parts)

    def _escaped(self, quote: str) -> str:
        if self._peek() != "\\":
            raise self._wrong(
                "Control characters are written with a backslash", r"Write \n or \u0001."
            )
        after = self.text[self.at + 1 : self.at + 2]
        if after == quote or after in _ESCAPES:
            self.at += 2
            return _ESCAPES.get(after, quote)
        if not (match := _UNICODE.match(self.text, self.at)):
            raise self._wrong(f"There is no such escape as \\{after}", r"Write \\ for a backslash.")
        self.at = match.end()
        if match[3]:
            return chr(int(match[3], 16))
        return chr(0x10000 + ((int(match[1], 16) & 0x3FF) << 10) + (int(match[2], 16) & 0x3FF))

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self, token: str) -> bool:
        found = self.text.startswith(token, self.at)
        self.at += len(token) if found else 0
        return found

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match[0] if match else ""

    def _skip(self) -> None:
        self._match(_SPACE)

    def _wrong(self, why: str, hint: str = "") -> InvalidPath:
        position = self.at + 1
        message = f"The path {show(self.text)} cannot be read at character {position}: {why}."
        return InvalidPath(
            f"{message} {hint}".rstrip(), path=self.text, position=position, hint=hint
        )

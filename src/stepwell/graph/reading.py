"""Text to plain data that remembers its lines: JSON, and YAML within bounds.

YAML's events are turned into data here, not by its library: that would follow nesting until the
stack ends, let aliases multiply without end, and take `on` and `12:30` for something else than
they look like. Plain words mean what YAML 1.2 says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import yaml

from stepwell.graph.problems import MAX_PATH, Problems, below

MAX_CHARACTERS = 4 * 1024 * 1024
MAX_DEPTH = 100
# How many values a document may come to, with everything that its aliases repeat.
MAX_VALUES = 200_000

_WORDS = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INT = re.compile(r"[-+]?[0-9]{1,30}|0o[0-7]{1,30}|0x[0-9a-fA-F]{1,30}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")
_END = (yaml.SequenceEndEvent, yaml.MappingEndEvent)
_MERGE = "<<"

# A reference at the beginning of a value, without the quotes that YAML wants around it.
_BARE_REFERENCE = re.compile(r"[:,\[-]\s*(?:@\w|\{\{)")


class Reading(msgspec.Struct):
    """What a text says, and on which line each part of it begins."""

    data: Any
    lines: Mapping[str, int]


class _Unreadable(Exception):
    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


def read(text: str, problems: Problems) -> Reading | None:
    """Read JSON or YAML; None, and a problem with its line, if that is not possible."""
    try:
        return _read(text)
    except _Unreadable as error:
        message, line = error.message, error.line
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message, line = str(error.problem or error.context), mark.line + 1 if mark else None
    except yaml.YAMLError as error:
        message, line = str(error).replace("\n", " "), None
    at = "" if line is None else f" at line {line}"
    problems.error(
        "", "unreadable", f"The document cannot be read{at}: {message}.", _hint(text, line),
        line=line,
    )  # fmt: skip
    return None


def _hint(text: str, line: int | None) -> str:
    """What may be meant by a line that YAML reads otherwise, or not at all."""
    found = text.splitlines()[line - 1 : line] if line else []
    if found and "\t" in found[0][: len(found[0]) - len(found[0].lstrip())]:
        return "The line is indented with a tab, and YAML takes spaces only."
    if found and _BARE_REFERENCE.search(found[0]):
        return 'A text that begins with @ or {{ needs quotes: value: "@step.field".'
    return ""


def _read(text: str) -> Reading:
    if len(text) > MAX_CHARACTERS:
        raise _Unreadable(
            f"it has {len(text):,} characters, and at most {MAX_CHARACTERS:,} are allowed"
        )
    if text.lstrip()[:1] in ("{", "["):
        try:
            data = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            pass  # YAML may also begin like this, and says where it ends
        else:
            _check_bounds(data)
            return Reading(data, {})
    builder = _Builder(text)
    return Reading(builder.document(), builder.lines)


def _check_bounds(data: Any) -> None:
    level, values = [data], 1
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        values += len(level)
        _check_count(values, None)
        if not level:
            return
    raise _Unreadable(f"it is nested more than {MAX_DEPTH} levels deep")


def _check_count(values: int, line: int | None) -> None:
    if values > MAX_VALUES:
        raise _Unreadable(f"it comes to more than {MAX_VALUES:,} values", line)


class _Builder:
    """Makes plain data of YAML's events."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=yaml.CSafeLoader))
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        self._values = 0
        self._characters = 0
        self.lines: dict[str, int] = {}

    def document(self) -> Any:
        data = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if self.lines:
                    raise _Unreadable("it has several documents", _line(event))
                data = self._value(next(self._events), "", 0)
        return data

    def _value(self, event: yaml.Event, path: str | None, depth: int) -> Any:
        line = _line(event)
        before, written = self._values, self._characters
        self._values += 1
        _check_count(self._values, line)
        if depth > MAX_DEPTH:
            raise _Unreadable(f"it is nested more than {MAX_DEPTH} levels deep", line)
        if path is not None:
            self.lines.setdefault(path, line)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, line)
        assert isinstance(event, yaml.CollectionStartEvent | yaml.ScalarEvent)
        value: Any
        if isinstance(event, yaml.SequenceStartEvent):
            self._check_tag(event.tag, "tag:yaml.org,2002:seq", line)
            value = self._sequence(path, depth)
        elif isinstance(event, yaml.ScalarEvent):
            value = _scalar(event, line)
            self._characters += len(event.value)
        else:
            self._check_tag(event.tag, "tag:yaml.org,2002:map", line)
            value = self._mapping(path, depth, line)
        if event.anchor is not None:  # only now, so that nothing can contain itself
            size = self._characters - written
            self._anchors[event.anchor] = (value, self._values - before, size)
        return value

    def _alias(self, event: yaml.AliasEvent, line: int) -> Any:
        if event.anchor not in self._anchors:
            raise _Unreadable(f"'*{event.anchor}' repeats what is not there yet", line)
        value, values, size = self._anchors[event.anchor]
        self._values += values
        _check_count(self._values, line)
        self._characters += size
        if self._characters > MAX_CHARACTERS:
            raise _Unreadable(
                f"with all that is repeated it has more than {MAX_CHARACTERS:,} characters", line
            )
        return value

    def _check_tag(self, tag: str | None, usual: str, line: int) -> None:
        if tag not in (None, "!", usual):
            raise _Unreadable(f"{tag!r} is not a kind of value that JSON has", line)

    def _sequence(self, path: str | None, depth: int) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(self._events), _END):
            found.append(self._value(event, _short(path, len(found)), depth + 1))
        return found

    def _mapping(self, path: str | None, depth: int, begin: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: list[Any] = []
        while not isinstance(event := next(self._events), _END):
            line = _line(event)
            if not isinstance(event, yaml.ScalarEvent):
                raise _Unreadable("a key must be text", line)
            key = event.value
            self._characters += len(key)
            value = self._value(next(self._events), _short(path, key), depth + 1)
            if key == _MERGE and event.implicit[0]:
                merged += value if isinstance(value, list) else [value]
            elif key in found:
                raise _Unreadable(f"the key {key!r} stands twice", line)
            else:
                found[key] = value
        for other in merged:
            if not isinstance(other, dict):
                raise _Unreadable(f"'<<' needs a mapping, not {other!r:.50}", begin)
            self._values += len(other)
            _check_count(self._values, begin)
            found |= {name: value for name, value in other.items() if name not in found}
        return found


def _short(path: str | None, key: str | int) -> str | None:
    """The path one level down; None if it is so long that no problem names it."""
    if path is None or (isinstance(key, str) and len(key) > MAX_PATH):
        return None
    found = below(path, key)
    return found if len(found) <= MAX_PATH else None


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None
    return event.start_mark.line + 1


def _scalar(event: yaml.ScalarEvent, line: int) -> Any:
    text = event.value
    if not event.implicit[0]:
        if event.tag not in _TEXT_TAGS and not event.implicit[1]:
            raise _Unreadable(f"{event.tag!r} is not a kind of value that is known here", line)
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        number = int(text, 0) if text[:2] in ("0x", "0o") else int(text)
        if not -(2**63) <= number < 2**63:
            raise _Unreadable(f"the number {text:.50} has more than 64 bits", line)
        return number
    if _NO_NUMBER.fullmatch(text) or (_FLOAT.fullmatch(text) and not math.isfinite(float(text))):
        raise _Unreadable(f"JSON has no number for {text:.50}", line)
    return float(text) if _FLOAT.fullmatch(text) else text

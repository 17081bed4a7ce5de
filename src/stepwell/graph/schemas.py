"""How much work a JSON Schema makes of checking values, known before any is checked.

Parts of a schema that apply to the same value add up, and with references they multiply: forty
definitions that each name the next one twice are a trillion parts. A schema may lead back into
itself; how far is up to the value then, and each part looks at an object or a list once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin

import msgspec

from stepwell.graph.problems import Problems, below

# How often the parts of a schema may look at one value.
MOST_VISITS = 100_000
# How many parts may be inside each other, references followed.
MAX_LEVELS = 200
# How many addresses references in a part may count from.
MOST_ADDRESSES = 16
# How many texts and numbers are compared with in the time of a visit.
PLAIN_VALUES_OF_A_VISIT = 50
# Parts that look at the same value: one each, a list of them, or some with names.
_HERE = ("not", "if", "then", "else")
_HERE_LISTED = ("allOf", "anyOf", "oneOf")
_HERE_NAMED = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Parts that look at what is in the value.
_INSIDE = (
    "additionalProperties", "unevaluatedProperties", "propertyNames", "items", "additionalItems",
    "contains", "unevaluatedItems",
)  # fmt: skip
# To know what no other part has looked at, these are looked through again.
_AGAIN = ("unevaluatedProperties", "unevaluatedItems")
_TIMES_AGAIN = 4
# The same where parts lead back into the schema: of this the library remembers nothing.
_TIMES_BACK = 100
# Any address will do from which others can be told.
_HOME = "http://schema/"


class TooMuchWork(Exception):
    """A schema by which nothing could be checked in any reasonable time."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


class Work(NamedTuple):
    """What a schema makes of checking a value."""

    # How many parts look at each value at most.
    visits: int
    # How many of those lead back into the schema: with more than one, work grows with depth.
    returns: int
    # How many values it can add to what is given.
    defaults: int


def check_work(schema: dict[str, Any] | None, problems: Problems) -> None:
    """Note if the inputs of a definition could not be checked in any reasonable time."""
    if schema is None or any(each.code == "bad_schema" for each in problems.found):
        return
    try:
        work_of(schema)
    except TooMuchWork as error:
        problems.error(
            error.path, "schema_too_large", error.message,
            "Let definitions refer to fewer others, or say less of what is inside.",
        )  # fmt: skip
    except ValueError as error:
        problems.error("inputs", "bad_schema", f"inputs cannot be used as a schema: {error}.")


def work_of(schema: dict[str, Any]) -> Work:
    """How much work a schema makes; raises TooMuchWork, or ValueError if it is not complete."""
    text = msgspec.json.encode(schema)
    # A copy, in which no part stands at two places.
    return _Schema(msgspec.json.decode(text)).work(values_in(text) if b'"default"' in text else 0)


def values_in(text: bytes) -> int:
    """How many values JSON has at most."""
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


# As much as there may be, where it is not known.
MOST_WORK = Work(MOST_VISITS, 2, 0)


class _Count(NamedTuple):
    visits: int
    returns: int


_ONE = _Count(1, 0)
_BACK = _Count(1, 1)


class _Schema:
    """A schema whose parts are counted."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        # What says the address of a part.
        self._address = "id" if "draft-04" in str(schema.get("$schema")) else "$id"
        # Part → addresses that its references may count from, and address → parts.
        self._bases: dict[int, tuple[str, ...]] = {}
        self._resources: dict[str, list[Any]] = {_HOME: [schema]}
        self._anchors: dict[str, list[Any]] = {}
        self._find_names(schema)

    def work(self, defaults: int) -> Work:
        counted = _Counting(self, inside=True)
        root = counted.of(self._schema)
        if not counted.targets:
            return Work(root.visits, 0, defaults)
        found = [root, *(counted.done[each] for each in counted.targets)]
        # Of texts and numbers it is not remembered whether they fit.
        here = _Counting(self, inside=False)
        plain = max(here.of(counted.parts[each]).visits for each in counted.targets)
        plain **= 1 + len(here.targets)
        returns = max(each.returns for each in found)
        visits = max(each.visits for each in found) * plain
        if returns > 1:
            total = sum(each.returns for each in found)
            visits = sum(each.visits for each in found) + total * plain
            visits *= _TIMES_BACK if counted.looks_back else 1
        if visits > MOST_VISITS:
            raise self.too_much(self._schema)
        return Work(visits, returns, defaults)

    def too_much(self, part: Any) -> TooMuchWork:
        return TooMuchWork(
            f"With all that it refers to, more than {MOST_VISITS:,} parts look at the same value.",
            _path_of(part, self._schema),
        )

    def too_deep(self, part: Any) -> TooMuchWork:
        return TooMuchWork(
            f"It is inside of more than {MAX_LEVELS} others, references followed.",
            _path_of(part, self._schema),
        )

    # -- references ----------------------------------------------------------------------

    def _find_names(self, schema: dict[str, Any]) -> None:
        """Note what every part may be called, and what its references may count from.

        Which of these holds depends on the version of the language and on what stands beside it.
        Whatever may be meant is counted: a schema has to be little work in any case.
        """
        left: list[tuple[Any, tuple[str, ...]]] = [(schema, (_HOME,))]
        while left:
            part, bases = left.pop()
            if isinstance(part, dict):
                if isinstance(name := part.get(self._address), str) and name[:1] != "#":
                    bases = tuple({*bases, *(_joined(base, name)[0] for base in bases)})
                    if len(bases) > MOST_ADDRESSES:
                        raise ValueError("parts with addresses are too deep inside of each other")
                    for base in bases:
                        self._resources.setdefault(base, []).append(part)
                for word in ("$id", "id", "$anchor", "$dynamicAnchor"):
                    if isinstance(name := part.get(word), str):
                        self._anchors.setdefault(name.rpartition("#")[2], []).append(part)
                self._bases[id(part)] = bases
            inner = part.values() if isinstance(part, dict) else part
            left += ((each, bases) for each in inner if isinstance(each, dict | list))

    def referred(self, part: dict[str, Any]) -> list[Any]:
        """What a part refers to; all that it may be, if that depends."""
        found: dict[int, Any] = {}
        for word in _REFERENCES:
            if isinstance(name := part.get(word), str):
                meant = [each for each in self._meant(part, name) if each is not None]
                if word == "$recursiveRef":
                    meant += [each for parts in self._resources.values() for each in parts]
                if not meant:
                    raise ValueError(f"it refers to {name[:200]!r}, which is not in it")
                found |= {id(each): each for each in meant}
        return list(found.values())

    def _meant(self, part: dict[str, Any], name: str) -> Iterator[Any]:
        for base in self._bases[id(part)]:
            address, fragment = _joined(base, name)
            resources = self._resources.get(address, [])
            if not fragment or fragment.startswith("/"):
                yield from (_pointed(each, fragment) for each in resources)
            elif resources:
                yield from self._anchors.get(fragment, ())


class _Counting:
    """Counts parts that look at a value, or at it and all that is inside of it."""

    def __init__(self, schema: _Schema, *, inside: bool) -> None:
        self._schema = schema
        self._inside = inside
        self._open: set[int] = set()
        self.done: dict[int, _Count] = {}
        # Those that something in them leads back to.
        self.targets: set[int] = set()
        self.parts: dict[int, Any] = {}
        # Whether some part is looked through again that leads back itself.
        self.looks_back = False

    def of(self, part: Any, level: int = 0) -> _Count:
        if not isinstance(part, dict):
            return _ONE
        key = id(part)
        if key in self._open:
            self.targets.add(key)
            self.parts[key] = part
            return _BACK
        if key in self.done:
            return self.done[key]
        if level > MAX_LEVELS:
            raise self._schema.too_deep(part)
        self._open.add(key)
        visits, returns = 1 + _compared(part), 0
        for each in [*self._schema.referred(part), *_here(part)]:
            found = self.of(each, level + 1)
            visits, returns = visits + found.visits, returns + found.returns
        if any(word in part for word in _AGAIN):
            self.looks_back |= returns > 0
            visits, returns = visits * _TIMES_AGAIN, returns * _TIMES_AGAIN
        for several in _inside(part) if self._inside else ():
            # Of these one value meets one.
            counts = [self.of(each, level + 1) for each in several]
            visits += max((each.visits for each in counts), default=0)
            returns += max((each.returns for each in counts), default=0)
        if visits > MOST_VISITS:
            raise self._schema.too_much(part)
        self._open.remove(key)
        self.done[key] = _Count(visits, returns)
        return self.done[key]


def _compared(part: dict[str, Any]) -> int:
    """How many names and values a part compares what it looks at with."""
    names = part.get("required"), *_named(part, "dependentRequired"), *_named(part, "dependencies")
    values = [*(part["enum"] if isinstance(part.get("enum"), list) else ()), part.get("const")]
    large = [each for each in values if isinstance(each, dict | list)]
    return (
        sum(len(each) for each in names if isinstance(each, list))
        + sum(values_in(msgspec.json.encode(each)) for each in large)
        + len(values) // PLAIN_VALUES_OF_A_VISIT
    )


def _named(part: dict[str, Any], word: str) -> list[Any]:
    return list(part[word].values()) if isinstance(part.get(word), dict) else []


def _here(part: dict[str, Any]) -> Iterator[Any]:
    yield from (part[word] for word in _HERE if word in part)
    for word in _HERE_LISTED:
        yield from part[word] if isinstance(part.get(word), list) else ()
    for word in _HERE_NAMED:
        yield from _named(part, word)


def _inside(part: dict[str, Any]) -> Iterator[list[Any]]:
    if isinstance(named := part.get("properties"), dict):
        yield list(named.values())
    if isinstance(named := part.get("patternProperties"), dict):
        yield from ([each] for each in named.values())
    for word in ("prefixItems", *_INSIDE):
        if word in part:
            yield part[word] if isinstance(part[word], list) else [part[word]]


def _joined(base: str, name: str) -> tuple[str, str]:
    """The address of what is called so, and the part of it that is meant."""
    address, _, fragment = name.partition("#")
    return (urljoin(base, address) if address else base), unquote(fragment)


def _pointed(part: Any, pointer: str) -> Any:
    for word in pointer.split("/")[1:]:
        key = word.replace("~1", "/").replace("~0", "~")
        if isinstance(part, list) and key.isdecimal() and int(key) < len(part):
            part = part[int(key)]
        else:
            part = part.get(key) if isinstance(part, dict) else None
    return part


def _path_of(wanted: Any, schema: Any) -> str:
    """Where a part stands."""
    left = [(schema, "inputs")]
    while left:
        part, path = left.pop()
        if part is wanted:
            return path
        inner = part.items() if isinstance(part, dict) else enumerate(part)
        left += ((each, below(path, key)) for key, each in inner if isinstance(each, dict | list))
    return ""

"""Which operation a path leads to.

Paths are taken apart before they are unquoted, so that a name may have a slash in it: a trigger is
`hello%2Fnightly`, a step may be called anything.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import unquote

T = TypeVar("T")


class Match(NamedTuple):
    """What a path leads to, and the values that stand in it."""

    target: Any
    values: dict[str, str]


class _Place(Generic[T]):
    """Where one part of a path leads."""

    __slots__ = ("rest", "targets", "variable", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Place[T]] = {}
        self.variable: _Place[T] | None = None
        # Where all that may still follow leads, however much it is.
        self.rest: _Place[T] | None = None
        # By method, with the names of the values in the path.
        self.targets: dict[str, tuple[T, list[str]]] = {}


class Routes(Generic[T]):
    """Targets by method and path; a word comes before a variable in the same place.

    `{name}` is one part of a path, `{*name}` the rest of it.
    """

    def __init__(self) -> None:
        self._root: _Place[T] = _Place()

    def add(self, method: str, path: str, target: T) -> None:
        place, names = self._root, []
        for part in _parts(path):
            if part.startswith("{*"):
                names.append(part[2:-1])
                place.rest = place = place.rest or _Place()
            elif part.startswith("{"):
                names.append(part[1:-1])
                place.variable = place.variable or _Place()
                place = place.variable
            else:
                place = place.words.setdefault(part, _Place())
        assert method not in place.targets, f"{method} {path} leads to two things"
        place.targets[method] = (target, names)

    def find(self, method: str, raw_path: str) -> Match | set[str]:
        """What a request is for; else the methods that there are for its path, if any."""
        reached = _reached(self._root, _parts(raw_path), [])
        for place, values in reached:
            if method in place.targets:
                target, names = place.targets[method]
                return Match(target, dict(zip(names, values, strict=True)))
        return next((set(place.targets) for place, _ in reached if place.targets), set())


def _parts(path: str) -> list[str]:
    return path.strip("/").split("/")


def _reached(
    place: _Place[T], parts: list[str], values: list[str]
) -> list[tuple[_Place[T], list[str]]]:
    """All places that the parts lead to, with the values on the way, the most literal first."""
    if not parts:
        return [(place, values)]
    part, rest = unquote(parts[0]), parts[1:]
    found = []
    if part in place.words:
        found += _reached(place.words[part], rest, values)
    if place.variable is not None and part:
        found += _reached(place.variable, rest, [*values, part])
    if place.rest is not None and all(parts):
        found.append((place.rest, [*values, "/".join(map(unquote, parts))]))
    return found

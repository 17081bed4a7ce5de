"""Maps: what a trigger makes of a payload, each value a path into it or a constant.

A text that begins with `$` is a JSONPath, `$$` stands for a literal `$`; anything else is meant as
it is written. Mappings and lists may be nested. A singular path that finds nothing leaves its name
out (in a list, null keeps the place), unless it is written `{path: "$.x", default: 0}` or
`{path: "$.x", required: true}`. A mapping with a `path` is always such a lookup, so that a slip in
it is told; `$path` is the name of a field that is called so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stepwell.errors import InputTooLarge, InvalidPath, MissingPath
from stepwell.kernel.jsonpath import NOTHING, Looks, Path, read_path
from stepwell.kernel.names import did_you_mean, show

# How deep a map may be nested.
MAX_DEPTH = 20
# How many characters, and values beside texts, may come out: paths can find things many times.
MAX_SIZE = 16 * 1024 * 1024
# So few paths that find nothing twice make little enough of any payload.
MOST_PLAIN = 16
_LOOKUP = ("path", "default", "required")


class Constant(msgspec.Struct, frozen=True):
    """A value that is meant as it is written."""

    value: Any


class Lookup(msgspec.Struct, frozen=True):
    """A path, and what to do when it finds nothing."""

    path: Path
    where: str
    required: bool = False
    default: Any = NOTHING

    def find(self, data: Any, looks: Looks) -> Any:
        found = self.path.find(data, looks)
        if found is not NOTHING and (self.path.singular or found):
            return found
        if self.required:
            raise MissingPath(
                f"{self.where}: {self.path.text} leads to nothing in the payload, and it is "
                "required.",
                path=self.path.text,
            )
        return found if self.default is NOTHING else self.default


Template = Constant | Lookup | dict[str, Any] | list[Any]


class Map(msgspec.Struct, frozen=True):
    """A map that was read."""

    templates: dict[str, Any]

    def of(self, data: Any) -> dict[str, Any]:
        """What the map makes of a payload."""
        looks = Looks()
        found: dict[str, Any] = _filled(self.templates, data, looks)
        lookups = list(_lookups(self.templates))
        if len(lookups) > MOST_PLAIN or not all(each.path.plain for each in lookups):
            _check_size(found, looks)
        return found


def read_map(values: Mapping[str, Any], *, stored: bool = False) -> Map:
    """Read a map; raises InvalidPath, which names the place, `map.user.id` say.

    In one that is `stored`, what has a path and is no lookup is a constant: it was taken for one
    before such slips were refused, and must go on.
    """
    if not isinstance(values, Mapping):
        raise InvalidPath(f"map must be a mapping of names to values, not {show(values)}.")
    return Map({key: _read(each, f"map.{key}", 1, stored) for key, each in values.items()})


def mapped(values: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """What a map, as it is written, makes of a payload."""
    return read_map(values).of(data)


def _read(value: Any, where: str, depth: int, stored: bool) -> Template:
    if depth > MAX_DEPTH:
        raise InvalidPath(f"{where} is nested more than {MAX_DEPTH} levels deep.", where=where)
    if isinstance(value, str):
        if value.startswith("$$") or not value.startswith("$"):
            return Constant(value.removeprefix("$"))
        return Lookup(_path(value, where), where)
    if isinstance(value, Mapping):
        if "path" in value and not (stored and _is_slip(value)):
            return _lookup(value, where)
        return {
            _literal(key): _read(each, f"{where}.{key}", depth + 1, stored)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_read(each, f"{where}[{i}]", depth + 1, stored) for i, each in enumerate(value)]
    return Constant(value)


def _is_slip(value: Mapping[str, Any]) -> bool:
    """Whether it has a path and yet is no lookup: by other names in it, or by what the path is."""
    path = value["path"]
    bare = len(value) == 1 and not (isinstance(path, str) and path.startswith("$"))
    return bare or not set(value) <= set(_LOOKUP)


def _literal(name: str) -> str:
    """The name that is meant: a `$` more is before `path` where it is a name like any other."""
    return name[1:] if name.startswith("$") and name.lstrip("$") == "path" else name


def _lookup(value: Mapping[str, Any], where: str) -> Lookup:
    for name in value:
        if name not in _LOOKUP:
            hint = did_you_mean(str(name), _LOOKUP) or (
                " Write $path for a field that is called so."
            )
            raise InvalidPath(
                f"{where}.{name}: what has a path has only a default or required beside it.{hint}",
                where=where,
            )
    required = value.get("required", False)
    if not isinstance(required, bool):
        raise InvalidPath(
            f"{where}.required must be true or false, not {show(required)}.", where=where
        )
    if required and "default" in value:
        raise InvalidPath(
            f"{where} is required and has a default. Leave one of them out.", where=where
        )
    path = _path(value["path"], f"{where}.path")
    return Lookup(path, where, required, value.get("default", NOTHING))


def _path(text: Any, where: str) -> Path:
    try:
        return read_path(text)
    except InvalidPath as error:
        literal = isinstance(text, str) and not text.startswith(("$.", "$["))
        hint = " Write $$ for a literal $." if literal and text.startswith("$") else ""
        raise InvalidPath(
            f"{where}: {error.message}{hint}", **{**error.details, "where": where}
        ) from None


def _filled(template: Any, data: Any, looks: Looks) -> Any:
    if isinstance(template, Constant):
        return template.value
    if isinstance(template, Lookup):
        return template.find(data, looks)
    if isinstance(template, list):
        found = [_filled(each, data, looks) for each in template]
        return [None if each is NOTHING else each for each in found]
    pairs = ((key, _filled(each, data, looks)) for key, each in template.items())
    return {key: each for key, each in pairs if each is not NOTHING}


def _lookups(template: Any) -> Iterator[Lookup]:
    if isinstance(template, Lookup):
        yield template
    elif isinstance(template, dict | list):
        for each in template.values() if isinstance(template, dict) else template:
            yield from _lookups(each)


def _check_size(value: Any, looks: Looks) -> None:
    """Refuse what many paths to the same large values have made too large to be written.

    Each object and list is measured once, however often it was found.
    """
    sizes: dict[int, int] = {}
    stack = [value]
    while stack:
        each = stack[-1]
        if id(each) in sizes:
            stack.pop()
            continue
        inner = list(each.values()) if isinstance(each, dict) else each
        looks.spend(1 + len(inner) // 4, "$")
        nested = [one for one in inner if isinstance(one, (dict, list))]
        unknown = [one for one in nested if id(one) not in sizes]
        if unknown:
            stack += unknown
            continue
        size = 1 + len(inner) + sum([len(one) for one in inner if isinstance(one, str)])
        size += sum([sizes[id(one)] for one in nested])
        sizes[id(each)] = size + (sum(map(len, each)) if isinstance(each, dict) else 0)
        if sizes[id(each)] > MAX_SIZE:
            raise InputTooLarge(
                f"The map makes more than {MAX_SIZE:,} characters of the payload. "
                "Take less of it, or take it only once."
            )

"""What differs between two documents, for programs and for people.

Documents are compared as they are written, so that nobody approves a change without being shown
it: also texts that runs do not depend on, and also in documents that are wrong in some way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stepwell.graph.levels import edges_of, levels, nodes_of

# How much of a value is shown to people, and how many changes.
MAX_SHOWN = 100
MAX_LINES = 200
# Characters of the names of fields inside of others: of one, and of all. Beyond them the field
# around is shown, as each of these names repeats all that it is in.
MAX_NAME = 1000
MAX_NAMES = 1_000_000

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_encode = msgspec.json.Encoder(order="deterministic").encode
_PARTS = ("nodes", "edges")
# Lists of things that have ids, whose order matters little.
_WITH_IDS = ("triggers", "branches")

# Field → `from` and `to`; one of them is missing if the field was.
Changes = dict[str, dict[str, Any]]


def diff(old: Any, new: Any) -> dict[str, Any]:
    """What became of `old` in `new`; either may be None.

    `nodes` and `edges` have `added`, `removed` and `changed`, by id and by `source → target`;
    `meta` has the other fields. `in` says in which body or branch a node or edge is.
    """
    before, after = _nodes(old), _nodes(new)
    first, second = _edges(old), _edges(new)
    room = _Room()
    meta = _fields("", _meta(old), _meta(new), room)
    kept, stayed = _kept(before, after), _kept(after, before)
    if kept != stayed:
        meta["nodes"] = {"from": kept, "to": stayed}
    same, order = _common(first, second), _common(second, first)
    if [edge.text for edge in same] != [edge.text for edge in order]:
        meta["edges"] = {"from": [edge.name for edge in same], "to": [edge.name for edge in order]}
    return {
        "meta": meta,
        "nodes": _compared(before, after, room),
        "edges": _compared(_unmatched(first, second), _unmatched(second, first), room),
    }


def differs(found: Mapping[str, Any]) -> bool:
    """Whether a difference is one."""
    return bool(found["meta"]) or any(found[part][how] for part in _PARTS for how in found[part])


def describe(found: Mapping[str, Any]) -> list[str]:
    """A difference for people, a line for each change."""
    lines = list(_lines(found))
    if len(lines) > MAX_LINES:
        lines[MAX_LINES:] = [f"and {len(lines) - MAX_LINES:,} more changes"]
    return lines


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    for field, change in found["meta"].items():
        if field in _PARTS:
            yield f"the order of {field} changed"
        else:
            yield _line(field, change)
    for part, what in (("nodes", "node"), ("edges", "edge")):
        for name, value in found[part]["added"].items():
            yield f"{what} {_short(name)} added{_kind(value)}"
        for name, value in found[part]["removed"].items():
            yield f"{what} {_short(name)} removed{_kind(value)}"
        for name, changes in found[part]["changed"].items():
            for field, change in changes.items():
                yield f"{what} {_short(name)}: {_line(field, change)}"


def _line(field: str, change: Mapping[str, Any]) -> str:
    name = _short(field)
    if "from" not in change:
        return f"{name} added: {_shown(change['to'])}"
    if "to" not in change:
        return f"{name} removed: {_shown(change['from'])}"
    return f"{name}: {_shown(change['from'])} → {_shown(change['to'])}"


def _kind(value: Mapping[str, Any]) -> str:
    kind = value.get("type")
    place = f" in {_short(value['in'])}" if isinstance(value.get("in"), str) else ""
    return f"{place} ({_short(kind)})" if isinstance(kind, str) else place


def _shown(value: Any) -> str:
    return _short(_encode(value).decode())


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


# -- what is compared ------------------------------------------------------------------------


def _meta(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        return {} if document is None else {"document": document}
    found = {key: value for key, value in document.items() if key not in _PARTS}
    return {**found, **_misshapen(document)}


def _misshapen(level: Mapping[str, Any]) -> dict[str, Any]:
    """Nodes and edges that have not the form of any, so that these are not lost."""
    found = {}
    for part in _PARTS:
        listed = level.get(part, [])
        odd = (
            [each for each in listed if not isinstance(each, dict)] if _is_list(listed) else listed
        )
        if odd or not _is_list(listed):
            found[f"{part} (unusable)"] = odd
    return found


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _nodes(document: Any) -> dict[str, dict[str, Any]]:
    """All nodes by their ids, without what is inside of them, but with where they are."""
    found: dict[str, dict[str, Any]] = {}
    seen: Counter[str] = Counter()
    for place, level in levels(document):
        for node in nodes_of(level):
            found[_free(_text(node.get("id")), found, seen)] = _placed(_bare(node), place)
    return found


def _bare(node: Mapping[str, Any]) -> dict[str, Any]:
    """The node without its inner nodes and edges, which are looked at by themselves."""
    found = dict(node)
    body, branches = node.get("body"), node.get("branches")
    if isinstance(body, dict | list):
        found["body"] = _meta({"nodes": body} if isinstance(body, list) else body)
    if isinstance(branches, list):
        found["branches"] = [_meta(each) for each in branches]
    return found


def _edges(document: Any) -> list[_Edge]:
    """All edges in order; there may be several between the same nodes."""
    return [
        _Edge(f"{_text(edge.get('source'))} → {_text(edge.get('target'))}", _placed(edge, place))
        for place, level in levels(document)
        for edge in edges_of(level)
    ]


class _Edge:
    """An edge, and what tells it from all that are not equal."""

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.name = name
        self.fields = fields
        self.text = _encode(fields)


def _placed(value: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {**value, "in": place} if place else dict(value)


def _common(these: list[_Edge], those: list[_Edge]) -> list[_Edge]:
    """Those that are equal to others."""
    left = Counter(edge.text for edge in those)
    return [edge for edge in these if _taken(edge, left)]


def _unmatched(these: list[_Edge], those: list[_Edge]) -> dict[str, dict[str, Any]]:
    """Those that are equal to none of the others, with names of their own."""
    left = Counter(edge.text for edge in those)
    found: dict[str, dict[str, Any]] = {}
    seen: Counter[str] = Counter()
    for edge in these:
        if not _taken(edge, left):
            found[_free(edge.name, found, seen)] = edge.fields
    return found


def _taken(edge: _Edge, left: Counter[bytes]) -> bool:
    left[edge.text] -= 1
    return left[edge.text] >= 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _encode(value).decode()


def _free(name: str, taken: Mapping[str, Any], seen: Counter[str]) -> str:
    """A name that is not taken, close to this one."""
    seen[name] += 1
    found = name if seen[name] == 1 else f"{name} #{seen[name]}"
    while found in taken:  # by something that is called so
        found += "'"
    return found


# -- comparing -------------------------------------------------------------------------------


class _Room:
    """How much of names can still be shown."""

    def __init__(self) -> None:
        self._left = MAX_NAMES

    def take(self, name: str) -> bool:
        self._left -= len(name)
        return self._left >= 0


def _compared(old: Mapping[str, Any], new: Mapping[str, Any], room: _Room) -> dict[str, Any]:
    changed = {
        name: changes
        for name in old
        if name in new and (changes := _fields("", old[name], new[name], room))
    }
    return {
        "added": {name: new[name] for name in new if name not in old},
        "removed": {name: old[name] for name in old if name not in new},
        "changed": changed,
    }


def _fields(path: str, old: Any, new: Any, room: _Room) -> Changes:
    """The fields that differ, mappings looked into."""
    if isinstance(old, dict) and isinstance(new, dict) and len(path) <= MAX_NAME:
        found = _inner(path, old, new, room)
        return {path: {"from": old, "to": new}} if found is None else found
    if _same(old, new):
        return {}
    first, second = (_by_id(old), _by_id(new)) if path in _WITH_IDS else (None, None)
    if first is None or second is None or _kept(first, second) != _kept(second, first):
        return {path: {"from": old, "to": new}}
    found = _inner(path, first, second, room)
    return {path: {"from": old, "to": new}} if found is None else found


def _inner(
    path: str, old: Mapping[str, Any], new: Mapping[str, Any], room: _Room
) -> Changes | None:
    """The fields of a mapping that differ; None if there is no room for their names."""
    found: Changes = {}
    for key in {**old, **new}:
        below = _below(path, key)
        if key not in old:
            changes: Changes = {below: {"to": new[key]}}
        elif key not in new:
            changes = {below: {"from": old[key]}}
        else:
            changes = _fields(below, old[key], new[key], room)
        if path and below in changes and not room.take(below):
            return None
        found |= changes
    return found


def _by_id(value: Any) -> dict[str, Any] | None:
    """A list of things with ids of their own, such as triggers, as a mapping."""
    if not isinstance(value, list):
        return None
    found = {each["id"]: each for each in value if _has_id(each)}
    return found if len(found) == len(value) else None


def _has_id(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("id"), str)


def _kept(these: Mapping[str, Any], those: Mapping[str, Any]) -> list[str]:
    """The names of what has stayed where it was."""
    return [
        name for name in these if name in those and these[name].get("in") == those[name].get("in")
    ]


def _same(old: Any, new: Any) -> bool:
    # Not `==`, for which 1, 1.0 and True are the same.
    return _encode(old) == _encode(new)


def _below(path: str, key: str) -> str:
    """The path to a field, in which no two fields are called the same."""
    name = key if _PLAIN.fullmatch(key) else f"[{_encode(key).decode()}]"
    return f"{path}.{name}" if path and name == key else f"{path}{name}"

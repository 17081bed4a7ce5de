"""Changes of a document that say what they mean: a node added, a field set, an edge removed.

    {"op": "add_node", "node": {…}, "into": "a loop, or a parallel.branch"}
    {"op": "update_node", "id": "a", "set": {"config.url": "…"}, "unset": ["timeout"]}
    {"op": "remove_node", "id": "a"}
    {"op": "add_edge", "edge": {"source": "a", "target": "b"}}
    {"op": "update_edge", "source": "a", "target": "b", "set": {…}, "unset": […]}
    {"op": "remove_edge", "source": "a", "target": "b"}
    {"op": "set_meta", "set": {"title": "…", "policy.timeout": "2h"}, "unset": ["output"]}

They are carried out one after the other. What they lead to may still be wrong as a definition;
that is found by whoever checks it.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from stepwell.errors import InvalidInput
from stepwell.graph.definition import ID
from stepwell.graph.levels import as_level, edges_of, inside, levels, nodes_of
from stepwell.graph.parse import DEFINITION_FIELDS, EDGE_FIELDS, NODE_FIELDS
from stepwell.kernel.names import show

MAX_OPERATIONS = 500

_META = frozenset(DEFINITION_FIELDS) - {"nodes", "edges"}
# What an operation has besides `op`: what it must have, and what it may have.
_FIELDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "add_node": (("node",), ("into",)),
    "update_node": (("id",), ("set", "unset")),
    "remove_node": (("id",), ()),
    "add_edge": (("edge",), ()),
    "update_edge": (("source", "target"), ("set", "unset")),
    "remove_edge": (("source", "target"), ()),
    "set_meta": ((), ("set", "unset")),
}


class _Wrong(Exception):
    """Something is wrong with an operation."""


def edited(document: Mapping[str, Any], operations: Any) -> dict[str, Any]:
    """A copy of the document in which the operations have been carried out."""
    if not isinstance(operations, list) or not operations:
        raise InvalidInput("operations is a list of at least one operation.")
    if len(operations) > MAX_OPERATIONS:
        raise InvalidInput(
            f"There are {len(operations):,} operations; at most {MAX_OPERATIONS} are carried out "
            "at a time."
        )
    if not isinstance(document, dict):
        raise InvalidInput("Only a document that can be read is edited by operations.")
    editor = _Editor(copy.deepcopy(document))
    for index, operation in enumerate(operations):
        try:
            editor.carry_out(operation)
        except _Wrong as wrong:
            raise InvalidInput(f"operations[{index}]: {wrong}", index=index) from None
    return editor.document


class _Editor:
    """A document being edited, with an index of where its nodes are."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        # The node and the level that it is on, by its id.
        self._places: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        for _, level in levels(_with_levels(document)):
            for node in nodes_of(level):
                self._places.setdefault(str(node.get("id")), (node, level))
        self._ways: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "add_node": self._add_node,
            "update_node": self._update_node,
            "remove_node": self._remove_node,
            "add_edge": self._add_edge,
            "update_edge": self._update_edge,
            "remove_edge": self._remove_edge,
            "set_meta": self._set_meta,
        }

    def carry_out(self, operation: Any) -> None:
        if not isinstance(operation, dict):
            raise _Wrong(f"An operation is a mapping with an op, not {show(operation)}.")
        name = operation.get("op")
        if not isinstance(name, str) or name not in _FIELDS:
            raise _Wrong(f"There is no op {show(name)}.{_closest(name, _FIELDS)}")
        needed, possible = _FIELDS[name]
        _known(operation, ("op", *needed, *possible), name)
        if missing := [field for field in needed if field not in operation]:
            raise _Wrong(f"{name} needs {' and '.join(missing)}.")
        if "set" in possible and not (operation.get("set") or operation.get("unset")):
            raise _Wrong(f"{name} needs fields to set or to unset.")
        self._ways[name](operation)

    # -- nodes ---------------------------------------------------------------------------

    def _add_node(self, operation: Mapping[str, Any]) -> None:
        node = copy.deepcopy(operation["node"])
        if not isinstance(node, dict):
            raise _Wrong("A node is a mapping with an id and a type.")
        _known(node, NODE_FIELDS, "A node")
        if not isinstance(node.get("type"), str):
            raise _Wrong("A node has a type.")
        level = self._level(operation.get("into"))
        self._index(_with_levels({"nodes": [node]}), level)
        _list(level, "nodes").append(node)

    def _update_node(self, operation: Mapping[str, Any]) -> None:
        node, level = self._find(operation["id"])
        changed = _changed(node, operation, NODE_FIELDS, ("id",), "A node")
        self._forget(node)
        node.clear()
        node.update(changed)
        self._index(_with_levels({"nodes": [node]}), level)

    def _remove_node(self, operation: Mapping[str, Any]) -> None:
        node, level = self._find(operation["id"])
        self._forget(node)
        level["nodes"] = [each for each in level["nodes"] if each is not node]
        if "edges" in level:
            level["edges"] = [
                edge
                for edge in _list(level, "edges")
                if not isinstance(edge, dict)
                or node["id"] not in (edge.get("source"), edge.get("target"))
            ]

    def _index(self, added: dict[str, Any], level: dict[str, Any]) -> None:
        """Take up the one node of `added`, which is or will be on that level, and all inside."""
        places: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        for _, found in levels(added):
            for node in nodes_of(found):
                node_id = node.get("id")
                if not isinstance(node_id, str) or not ID.fullmatch(node_id):
                    raise _Wrong(f"A node cannot have the id {show(node_id)}.")
                if node_id in self._places or node_id in places:
                    raise _Wrong(f"There is a node {node_id!r} already.")
                places[node_id] = (node, level if found is added else found)
        self._places |= places

    def _forget(self, node: dict[str, Any]) -> None:
        for _, level in levels({"nodes": [node]}):
            for each in nodes_of(level):
                self._places.pop(str(each.get("id")), None)

    def _find(self, node_id: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        found = self._places.get(node_id) if isinstance(node_id, str) else None
        if found is None:
            raise _Wrong(f"There is no node {show(node_id)}.{_closest(node_id, self._places)}")
        return found

    def _level(self, into: Any) -> dict[str, Any]:
        if into is None or into == "":
            return self.document
        if not isinstance(into, str):
            raise _Wrong('into is the id of a loop, or "parallel.branch".')
        container, dot, branch = into.partition(".")
        node, _ = self._find(container)
        if not dot:  # a loop may have been added before what it repeats
            body: dict[str, Any] = node.setdefault("body", {"nodes": []})
            return body
        found = {name: level for name, level in inside(node) if name != container}
        if into not in found:
            raise _Wrong(f"{container!r} has no branch {branch!r}.{_closest(into, found)}")
        return found[into]

    # -- edges ---------------------------------------------------------------------------

    def _add_edge(self, operation: Mapping[str, Any]) -> None:
        edge = copy.deepcopy(operation["edge"])
        if not isinstance(edge, dict):
            raise _Wrong("An edge is a mapping: {source, target}.")
        _known(edge, EDGE_FIELDS, "An edge")
        _, level = self._find(edge.get("source"))
        if self._find(edge.get("target"))[1] is not level:
            raise _Wrong("Edges lead neither into nor out of bodies and branches.")
        _list(level, "edges").append(edge)

    def _update_edge(self, operation: Mapping[str, Any]) -> None:
        found, _ = self._edges(operation)
        if len(found) > 1:
            raise _Wrong(f"There are {len(found)} such edges; remove them and add what is wanted.")
        changed = _changed(found[0], operation, EDGE_FIELDS, ("source", "target"), "An edge")
        found[0].clear()
        found[0].update(changed)

    def _remove_edge(self, operation: Mapping[str, Any]) -> None:
        found, level = self._edges(operation)
        gone = set(map(id, found))
        level["edges"] = [edge for edge in level["edges"] if id(edge) not in gone]

    def _edges(self, operation: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        source, target = operation["source"], operation["target"]
        _, level = self._find(source)
        found = [
            edge
            for edge in edges_of(level)
            if edge.get("source") == source and edge.get("target") == target
        ]
        if not found:
            raise _Wrong(f"There is no edge from {show(source)} to {show(target)}.")
        return found, level

    # -- the rest ------------------------------------------------------------------------

    def _set_meta(self, operation: Mapping[str, Any]) -> None:
        self.document.update(
            changed := _changed(self.document, operation, _META, (), "A definition")
        )
        for field in self.document.keys() - changed.keys():
            del self.document[field]


def _changed(
    value: Mapping[str, Any], operation: Mapping[str, Any], fields: Collection[str],
    fixed: Collection[str], what: str,
) -> dict[str, Any]:  # fmt: skip
    """The value with fields set and unset; `config.url` is a field of a field."""
    setting, unsetting = operation.get("set") or {}, operation.get("unset") or []
    if not isinstance(setting, dict) or not isinstance(unsetting, list):
        raise _Wrong("set is a mapping of fields to values, unset a list of fields.")
    found = copy.deepcopy(dict(value))
    for path, new in [*setting.items(), *((path, ...) for path in unsetting)]:
        keys = path.split(".") if isinstance(path, str) else [""]
        if keys[0] in fixed:
            raise _Wrong(f"{keys[0]!r} cannot be changed; remove what has it and add another.")
        _known(keys[:1], fields, what)
        _put(found, keys, new)
    return found


def _put(value: dict[str, Any], keys: list[str], new: Any) -> None:
    for depth, key in enumerate(keys[:-1], start=1):
        if new is ... and key not in value:
            raise _Wrong(f"There is no {'.'.join(keys)!r} to unset.")
        inner = value.setdefault(key, {})
        if not isinstance(inner, dict):
            raise _Wrong(f"{'.'.join(keys[:depth])!r} is not a mapping, so it has no fields.")
        value = inner
    if new is not ...:
        value[keys[-1]] = copy.deepcopy(new)
    elif keys[-1] in value:
        del value[keys[-1]]
    else:
        raise _Wrong(f"There is no {'.'.join(keys)!r} to unset.")


def _list(level: dict[str, Any], part: str) -> list[Any]:
    found = level.setdefault(part, [])
    if not isinstance(found, list):
        raise _Wrong(f"{part} is not a list in the document that is edited.")
    return found


def _with_levels(document: dict[str, Any]) -> dict[str, Any]:
    """The document, its bodies all written as mappings, so that there is one way to edit them."""
    for node in nodes_of(document):
        if "body" in node and (body := as_level(node["body"])) is not None:
            node["body"] = _with_levels(body)
        for _, branch in inside({"branches": node.get("branches")}):
            _with_levels(branch)
    return document


def _known(given: Collection[Any], fields: Collection[str], what: str) -> None:
    for field in given:
        if field not in fields:
            raise _Wrong(f"{what} has no field {show(field)}.{_closest(field, fields)}")


def _closest(wanted: Any, known: Collection[str]) -> str:
    names = sorted(known)[:1000]
    closest = difflib.get_close_matches(str(wanted)[:100], names, 1, 0.6)
    return f" Did you mean {closest[0]!r}?" if closest else ""

"""The levels of a document that is plain data: the top, bodies and branches, each with a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def levels(document: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every level with its name, outer ones first; whatever has not the form of one is left out.

    The top is "", a body is called like its node, a branch like `node.branch`.
    """
    if not isinstance(document, dict):
        return
    yield name, document
    for node in nodes_of(document):
        for inner, data in inside(node):
            yield from levels(data, inner)


def inside(node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The levels right inside a node, with their names."""
    if (body := as_level(node.get("body"))) is not None:
        yield str(node.get("id")), body
    branches = node.get("branches")
    for branch in branches if isinstance(branches, list) else []:
        if isinstance(branch, dict):
            yield f"{node.get('id')}.{branch.get('id')}", branch


def as_level(data: Any) -> dict[str, Any] | None:
    """A body may also be written as nothing but its nodes."""
    if isinstance(data, list):
        return {"nodes": data}
    return data if isinstance(data, dict) else None


def nodes_of(level: dict[str, Any]) -> list[dict[str, Any]]:
    return _mappings(level.get("nodes"))


def edges_of(level: dict[str, Any]) -> list[dict[str, Any]]:
    return _mappings(level.get("edges"))


def _mappings(listed: Any) -> list[dict[str, Any]]:
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []

"""One hash for what a definition means: the same for YAML and JSON, drawn here or there.

Left out is what does not matter to a run: titles, descriptions, tags, and fields that only say
what would be so without them. Lists keep their order.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from stepwell.graph.definition import Definition, Edge, Graph, Node, Policy

_encode = msgspec.json.Encoder(order="deterministic").encode


def canonical(definition: Definition) -> dict[str, Any]:
    """The document without anything that runs do not depend on."""
    found: dict[str, Any] = {"name": definition.name, **_graph(definition.graph)}
    if definition.timezone != "UTC":
        found["timezone"] = definition.timezone
    if definition.inputs is not None:
        found["inputs"] = definition.inputs
    if definition.triggers:
        found["triggers"] = definition.triggers
    if policy := _unusual(definition.policy, Policy()):
        found["policy"] = policy
    if definition.lenient:
        found["refs"] = "lenient"
    return found


def hash_of(definition: Definition) -> str:
    """The SHA-256 hash of the canonical form."""
    return hashlib.sha256(_encode(canonical(definition))).hexdigest()


def _graph(graph: Graph) -> dict[str, Any]:
    found: dict[str, Any] = {"nodes": [_node(node) for node in graph.nodes]}
    if graph.edges:
        found["edges"] = [_edge(edge) for edge in graph.edges]
    if graph.output is not msgspec.UNSET:
        found["output"] = graph.output
    return found


def _node(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {"id": node.id, "type": node.type}
    if node.config:
        found["config"] = node.config
    if node.when is not None:
        found["when"] = node.when
    if node.for_each is not None:
        each = msgspec.to_builtins(node.for_each)
        found["for_each"] = {"as" if key == "name" else key: each[key] for key in each}
    if node.any_join:
        found["join"] = "any"
    if node.retry is not None:
        found["retry"] = msgspec.to_builtins(node.retry)
    if node.timeout is not None:
        found["timeout"] = node.timeout
    if node.body is not None:
        found["body"] = _graph(node.body)
    if node.branches is not None:
        found["branches"] = [
            {"id": branch_id, **_graph(branch)} for branch_id, branch in node.branches.items()
        ]
    return found


def _edge(edge: Edge) -> dict[str, Any]:
    found: dict[str, Any] = {"source": edge.source, "target": edge.target}
    if isinstance(edge.condition, bool):
        found["condition"] = str(edge.condition).lower()
    elif edge.condition is not None:
        found["condition"] = edge.condition
    if edge.on_failure != "skip":
        found["on_failure"] = edge.on_failure
    if edge.on_skip != "skip":
        found["on_skip"] = edge.on_skip
    return found


def _unusual(value: Policy, usual: Policy) -> dict[str, Any]:
    plain, default = msgspec.to_builtins(value), msgspec.to_builtins(usual)
    return {key: plain[key] for key in plain if plain[key] != default[key]}

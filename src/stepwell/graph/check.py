"""What is wrong with a definition as a whole; a plan of it, if nothing is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import jsonschema_rs

from stepwell.errors import InvalidDuration
from stepwell.graph.compile import Compiler, NodeKind
from stepwell.graph.control import CONTROL, MAX_ITERATIONS, ControlType
from stepwell.graph.definition import RESERVED, Definition, Graph, Node
from stepwell.graph.doubts import doubt
from stepwell.graph.inputs import validator
from stepwell.graph.parse import NODE_FIELDS
from stepwell.graph.plan import Plan
from stepwell.graph.problems import Problems, below
from stepwell.kernel.durations import seconds
from stepwell.kernel.names import with_article


class CheckedKind(NodeKind, Protocol):
    """A type of node that can say what is wrong with a config."""

    @property
    def max_timeout(self) -> float | None:
        """No node of this type may take longer, in seconds."""
        ...

    def check(self, config: dict[str, Any], path: str, problems: Problems) -> None: ...


def check(
    definition: Definition, kinds: Mapping[str, CheckedKind], problems: Problems,
    secrets: Collection[str] | None = None,
) -> Plan | None:  # fmt: skip
    """Find everything that is wrong; a plan if nothing is that matters."""
    nodes = list(definition.graph.all_nodes())
    _check_ids(nodes, problems)
    _check_edges(definition.graph, {node.id for node in nodes}, problems)
    for node in nodes:
        _check_node(node, kinds, problems)
    _check_inputs(definition, problems)
    plan = Compiler(kinds, problems, (node.id for node in nodes)).definition(definition)
    doubt(definition, plan, problems, secrets)
    return plan if problems.ok else None


def _check_ids(nodes: list[Node], problems: Problems) -> None:
    seen: dict[str, str] = {}
    for node in nodes:
        path = below(node.path, "id")
        if node.id in RESERVED:
            problems.error(
                path, "reserved_id", f"{node.id!r} is a word of the language.", "Choose another id."
            )
        elif node.id and node.id in seen:
            problems.error(
                path, "duplicate_id",
                f"There are two nodes {node.id!r}; the other one is {seen[node.id]}.",
                "Ids are unique over the whole definition, bodies included.",
            )  # fmt: skip
        seen.setdefault(node.id, node.path)
    named = {node.id for node in nodes}
    for node in nodes:
        if node.for_each is not None and node.for_each.name in named:
            problems.error(
                below(below(node.path, "for_each"), "as"), "reserved_name",
                f"An item cannot be called {node.for_each.name!r}: a node is.",
            )  # fmt: skip


def _check_edges(graph: Graph, all_ids: set[str], problems: Problems) -> None:
    here = {node.id for node in graph.nodes}
    for edge in graph.edges:
        for end, node_id in (("source", edge.source), ("target", edge.target)):
            path = below(edge.path, end)
            if node_id in here:
                continue
            if node_id in all_ids:
                problems.error(
                    path, "edge_across_levels",
                    f"{node_id!r} is not on the same level: edges lead neither into nor out of "
                    "bodies.",
                    "Connect the node that has the body.",
                )  # fmt: skip
            else:
                problems.error(
                    path, "dangling_edge", f"There is no node {node_id!r}.",
                    problems.did_you_mean(node_id, here),
                )  # fmt: skip
        if edge.source == edge.target and edge.source in here:
            problems.error(
                edge.path, "self_loop", f"{edge.source!r} leads to itself.",
                "Repeat things with a loop node.",
            )  # fmt: skip
    for node in graph.nodes:
        for inner in node.inside:
            _check_edges(inner, all_ids, problems)


def _check_node(node: Node, kinds: Mapping[str, CheckedKind], problems: Problems) -> None:
    config = below(node.path, "config")
    if node.type not in CONTROL and node.type not in kinds:
        if node.type:
            problems.error(
                below(node.path, "type"), "unknown_type", f"There is no node type {node.type!r}.",
                problems.did_you_mean(node.type, [*CONTROL, *kinds])
                or f"There are {', '.join(sorted([*CONTROL, *kinds]))}.",
            )  # fmt: skip
        return
    if node.type in kinds:
        kinds[node.type].check(node.config, config, problems)
        _check_timeout(node, kinds[node.type], problems)
    else:
        _check_control(node, CONTROL[node.type], config, problems)
        if node.type == "loop":
            _check_loop(node, config, problems)
    for field, owner, present in (
        ("body", "loop", node.body is not None),
        ("branches", "parallel", node.branches is not None),
    ):
        if present and node.type != owner:
            problems.error(below(node.path, field), "unknown_field", f"Only a {owner} has {field}.")
        elif not present and node.type == owner:
            problems.error(below(node.path, field), "missing_field", f"A {owner} has {field}.")
    if node.type in CONTROL and node.retry is not None:
        problems.error(
            below(node.path, "retry"), "unknown_field",
            f"{with_article(node.type)} is not tried again; its nodes may be.",
        )  # fmt: skip


def _check_timeout(node: Node, kind: CheckedKind, problems: Problems) -> None:
    most = kind.max_timeout
    if node.timeout is not None and most is not None and seconds(node.timeout) > most:
        problems.error(
            below(node.path, "timeout"), "limit_exceeded",
            f"{with_article(node.type)} may take at most {most:g} s, not {node.timeout}.",
        )  # fmt: skip


def _check_loop(node: Node, path: str, problems: Problems) -> None:
    conditions = [key for key in ("until", "while") if key in node.config]
    if len(conditions) != 1:
        problems.error(
            path, "missing_field" if not conditions else "bad_field",
            "A loop has either until or while.",
        )  # fmt: skip
    most = node.config.get("max_iterations", 1)
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MAX_ITERATIONS:
        problems.error(
            below(path, "max_iterations"), "bad_field",
            f"max_iterations is a whole number from 1 to {MAX_ITERATIONS:,}, not {most!r:.100}.",
        )  # fmt: skip
    try:
        seconds(node.config.get("delay", 0), "delay")
    except InvalidDuration as error:
        problems.error(below(path, "delay"), "bad_duration", error.message)


def _check_control(node: Node, kind: ControlType, path: str, problems: Problems) -> None:
    known = f"It has {', '.join(kind.fields)}." if kind.fields else ""
    for key in node.config:
        if key not in kind.fields:
            problems.error(
                below(path, key), "unknown_field", f"{with_article(node.type)} has no {key!r}.",
                f"{key} stands beside config, not in it." if key in NODE_FIELDS
                else problems.did_you_mean(key, kind.fields) or known,
            )  # fmt: skip
    for key in kind.required:
        if key not in node.config:
            problems.error(
                below(path, key), "missing_field", f"{with_article(node.type)} needs {key!r}."
            )


def _check_inputs(definition: Definition, problems: Problems) -> None:
    if definition.inputs is None:
        return
    try:
        validator(definition.inputs)
    except jsonschema_rs.ValidationError as error:
        path = "inputs"
        for key in error.instance_path:
            path = below(path, key)
        problems.error(path, "bad_schema", f"This is no JSON Schema: {error.message:.300}.")
    except ValueError as error:
        problems.error("inputs", "bad_schema", f"inputs is not a JSON Schema: {error!s:.300}.")

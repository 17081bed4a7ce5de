"""What is wrong with a definition as a whole; a plan of it, if nothing is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import jsonschema_rs

from stepwell.errors import InvalidDuration
from stepwell.graph.compile import CONTROL, Compiler, NodeKind
from stepwell.graph.definition import RESERVED, Definition, Graph, Node
from stepwell.graph.inputs import validator
from stepwell.graph.plan import Plan, PlanNode
from stepwell.graph.problems import Problems, below
from stepwell.kernel.durations import seconds

MAX_ITERATIONS = 100_000
_LOOP = ("until", "while", "max_iterations", "delay")


class CheckedKind(NodeKind, Protocol):
    """A type of node that can say what is wrong with a config."""

    @property
    def max_timeout(self) -> float | None:
        """No node of this type may take longer, in seconds."""
        ...

    def check(self, config: dict[str, Any], path: str, problems: Problems) -> None: ...


def check(
    definition: Definition, kinds: Mapping[str, CheckedKind], problems: Problems
) -> Plan | None:
    """Find everything that is wrong; a plan if nothing is that matters."""
    nodes = list(all_nodes(definition.graph))
    _check_ids(nodes, problems)
    _check_edges(definition.graph, {node.id for node in nodes}, problems)
    for node in nodes:
        _check_node(node, kinds, problems)
    _check_inputs(definition, problems)
    plan = Compiler(kinds, problems, (node.id for node in nodes)).definition(definition)
    _warn_unreachable(plan, definition.graph, problems)
    return plan if problems.ok else None


def all_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph, and those inside of them."""
    for node in graph.nodes:
        yield node
        for inner in _inside(node):
            yield from all_nodes(inner)


def _inside(node: Node) -> list[Graph]:
    return [*([node.body] if node.body else []), *(node.branches or {}).values()]


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
        for inner in _inside(node):
            _check_edges(inner, all_ids, problems)


def _check_node(node: Node, kinds: Mapping[str, CheckedKind], problems: Problems) -> None:
    config = below(node.path, "config")
    if node.type not in CONTROL and node.type not in kinds:
        if node.type:
            problems.error(
                below(node.path, "type"), "unknown_type", f"There is no node type {node.type!r}.",
                problems.did_you_mean(node.type, [*CONTROL, *kinds]),
            )  # fmt: skip
        return
    if node.type in kinds:
        kinds[node.type].check(node.config, config, problems)
        _check_timeout(node, kinds[node.type], problems)
    elif node.type == "condition":
        _only(node, config, ("expression",), problems)
        if "expression" not in node.config:
            problems.error(
                below(config, "expression"), "missing_field", "A condition has an expression."
            )
    elif node.type == "return":
        _only(node, config, ("value",), problems)
    elif node.type == "parallel":
        _only(node, config, (), problems)
    elif node.type == "loop":
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
            f"A {node.type} is not tried again; its nodes may be.",
        )  # fmt: skip


def _check_timeout(node: Node, kind: CheckedKind, problems: Problems) -> None:
    most = kind.max_timeout
    if node.timeout is not None and most is not None and seconds(node.timeout) > most:
        problems.error(
            below(node.path, "timeout"), "limit_exceeded",
            f"A {node.type} may take at most {most:g} s, not {node.timeout}.",
        )  # fmt: skip


def _check_loop(node: Node, path: str, problems: Problems) -> None:
    _only(node, path, _LOOP, problems)
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


def _only(node: Node, path: str, fields: tuple[str, ...], problems: Problems) -> None:
    known = f"It has {', '.join(fields)}." if fields else ""
    for key in node.config:
        if key not in fields:
            problems.error(
                below(path, key), "unknown_field", f"A {node.type} has no {key!r}.",
                problems.did_you_mean(key, fields) or known,
            )  # fmt: skip


def _check_inputs(definition: Definition, problems: Problems) -> None:
    if definition.inputs is None:
        return
    try:
        validator(definition.inputs)
    except jsonschema_rs.ValidationError as error:
        problems.error(
            "inputs", "bad_schema", f"inputs is not a JSON Schema: {error.message:.300}."
        )
    except ValueError as error:
        problems.error("inputs", "bad_schema", f"inputs is not a JSON Schema: {error!s:.300}.")


def _warn_unreachable(plan: Plan, graph: Graph, problems: Problems) -> None:
    """Nodes to which every way leads over a return that is always taken."""
    paths = {node.id: node.path for node in graph.nodes}
    reached: dict[str, bool] = {}
    for node_id in plan.order:
        node = plan.nodes[node_id]
        ways = [edge for edge in node.incoming if edge.drawn] or list(node.incoming)
        reached[node_id] = not ways or any(
            reached[edge.source] and not _ends(plan.nodes[edge.source]) for edge in ways
        )
        if not reached[node_id]:
            problems.warning(
                paths[node_id], "unreachable", f"{node_id!r} is never executed.",
                "Everything that leads to it returns before.",
            )  # fmt: skip


def _ends(node: PlanNode) -> bool:
    return node.type == "return" and node.when is None

"""What is allowed in a document, and yet hardly meant: warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stepwell.graph.conditions import Condition, Expression
from stepwell.graph.definition import Definition, Graph
from stepwell.graph.inputs import closed_fields
from stepwell.graph.plan import Plan, PlanNode
from stepwell.graph.problems import Problems
from stepwell.graph.refs import refs_in

_INPUT = re.compile(r"(?<![\w.])input\.([A-Za-z_]\w*)")


def doubt(definition: Definition, plan: Plan, problems: Problems) -> None:
    """Warn of nodes that are never executed, and of fields that no input can have."""
    _warn_unreachable(plan, definition.graph, problems)
    fields = closed_fields(definition.inputs or {})
    if fields is not None:
        _warn_unknown_fields(plan, definition.graph, fields, problems)


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


def _warn_unknown_fields(plan: Plan, graph: Graph, fields: list[str], problems: Problems) -> None:
    paths = {node.id: node.path for node in graph.all_nodes()}
    for node, _ in plan.all_nodes():
        for name in dict.fromkeys(_inputs_of(node)):
            if name not in fields:
                problems.warning(
                    paths[node.id], "unknown_input",
                    f"{node.id!r} looks at {name!r}, which is neither a step nor a field of the "
                    "inputs.",
                    problems.did_you_mean(name, [*fields, *paths])
                    or f"The inputs are {', '.join(fields) or 'none'}.",
                )  # fmt: skip


def _inputs_of(node: PlanNode) -> Iterator[str]:
    """The fields of the input that a node looks at."""
    templates = [node.config, *([node.items] if node.items is not None else [])]
    for template in templates:
        for ref in refs_in(template):
            if ref.root == "input" and ref.path:
                yield str(ref.path[0])
    conditions: list[Condition | None] = [node.when, *node.conditions.values()]
    conditions += [edge.condition for edge in node.incoming]
    for condition in conditions:
        if isinstance(condition, Expression):
            yield from _INPUT.findall(condition.text)
        elif condition is not None and condition.ref.root == "input" and condition.ref.path:
            yield str(condition.ref.path[0])

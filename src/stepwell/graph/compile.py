"""From a definition to a plan: references and conditions read, edges found, order made.

Nodes on one level of nesting see each other, and what is around them. A reference to a step on
the same level makes an edge; one to a step further out makes an edge there, to the node whose
body the reference is in. Steps inside other bodies cannot be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from stepwell.graph.conditions import Condition, read_condition, steps_of
from stepwell.graph.definition import Definition, Edge, Graph, Node
from stepwell.graph.plan import Plan, PlanEdge, PlanNode
from stepwell.graph.problems import Problems, below
from stepwell.graph.refs import Composed, Constant, Names, Template, read_template, refs_in
from stepwell.kernel.durations import seconds

# Their fields that are conditions, not templates.
_CONDITIONS = {"condition": ("expression",), "loop": ("until", "while")}


class NodeKind(Protocol):
    """What the language has to know of a type of node."""

    @property
    def verbatim(self) -> frozenset[str]:
        """Fields of the config in which nothing is a reference: code, say."""
        ...

    @property
    def acts(self) -> bool:
        """Whether it is executed as one step, and may be given secrets."""
        ...


Kinds = Mapping[str, NodeKind]


class Level:
    """One level of nesting while it is compiled: its nodes, and what can be seen from it."""

    def __init__(
        self, graph: Graph, above: Level | None, container: str | None, items: Iterable[str]
    ) -> None:
        self.graph = graph
        self.above = above
        # The node around this level, by its id on the level above.
        self.container = container
        self.ids = frozenset(node.id for node in graph.nodes)
        self.items = frozenset(items)
        # Steps that can be referred to from here: not the nodes that this level is inside of.
        outside = above.visible - {container} if above is not None else frozenset()
        self.visible: frozenset[str] = self.ids | outside
        # The steps that the nodes on this level refer to, by node.
        self.needs: dict[str, dict[str, None]] = {node.id: {} for node in graph.nodes}
        self._names: dict[tuple[frozenset[str], bool], Names] = {}

    def names(
        self, all_ids: frozenset[str], own: frozenset[str] = frozenset(), *, secrets: bool = False
    ) -> Names:
        """What references on this level may begin with; `own` are names of the node's items."""
        found = self._names.get((own, secrets))
        if found is None:
            hidden = all_ids - self.visible
            found = Names(self.visible, self.items | own, hidden, secrets)
            self._names[own, secrets] = found
        return found


class Compiler:
    """Compiles a definition; what cannot be compiled is a problem."""

    def __init__(self, kinds: Kinds, problems: Problems, all_ids: Iterable[str]) -> None:
        self._kinds = kinds
        self._problems = problems
        self._all_ids = frozenset(all_ids)

    def definition(self, definition: Definition) -> Plan:
        return self._level(Level(definition.graph, None, None, ()))

    # -- levels --------------------------------------------------------------------------

    def _level(self, level: Level) -> Plan:
        nodes = {node.id: self._node(node, level) for node in level.graph.nodes}
        edges = self._edges(level, nodes)
        incoming: dict[str, list[PlanEdge]] = {node_id: [] for node_id in nodes}
        targets: dict[str, dict[str, None]] = {node_id: {} for node_id in nodes}
        for edge in edges:
            incoming[edge.target].append(edge)
            targets[edge.source][edge.target] = None
        tolerated = {edge.source for edge in edges if edge.drawn and edge.on_failure == "continue"}
        wired = {
            node_id: msgspec.structs.replace(
                node,
                incoming=tuple(
                    msgspec.structs.replace(edge, on_failure="continue")
                    if not edge.drawn and edge.source in tolerated
                    else edge
                    for edge in incoming[node_id]
                ),
                targets=tuple(targets[node_id]),
                tolerated=node_id in tolerated,
                sources=len({edge.source for edge in incoming[node_id]}),
            )
            for node_id, node in nodes.items()
        }
        return Plan(
            wired,
            self._order(level, wired),
            tuple(node_id for node_id in wired if not wired[node_id].targets),
            self._output(level),
            1 + max((_depth(node) for node in wired.values()), default=0),
        )

    def _edges(self, level: Level, nodes: Mapping[str, PlanNode]) -> list[PlanEdge]:
        drawn = [
            self._edge(edge, level, nodes)
            for edge in level.graph.edges
            if edge.source in nodes and edge.target in nodes and edge.source != edge.target
        ]
        for node in level.graph.nodes:
            if node.id in level.needs[node.id]:
                self._problems.error(
                    node.path, "cycle", f"{node.id!r} refers to itself, before it has a result.",
                    "Inside a loop, `previous` is what the last turn gave.",
                )  # fmt: skip
        # A condition may look at other steps than its source; its target waits for those too.
        pairs = {(edge.source, edge.target) for edge in drawn}
        implied = [
            PlanEdge(source, target, on_skip="continue", drawn=False)
            for target, sources in level.needs.items()
            for source in sources
            if (source, target) not in pairs and source != target
        ]
        return drawn + implied

    def _edge(self, edge: Edge, level: Level, nodes: Mapping[str, PlanNode]) -> PlanEdge:
        branch, condition = None, None
        path = below(edge.path, "condition")
        behind_condition = nodes[edge.source].type == "condition"
        if isinstance(edge.condition, bool):
            branch = edge.condition
            if not behind_condition:
                self._problems.error(
                    path, "bad_condition",
                    f"{edge.source!r} is not a condition, so it has no true and false branch.",
                    "Write CEL text, or {ref, eq}.",
                )  # fmt: skip
        elif edge.condition is not None:
            condition = read_condition(
                edge.condition, level.names(self._all_ids), path, self._problems
            )
            self._note(level, edge.target, () if condition is None else steps_of(condition))
        elif behind_condition:
            self._problems.error(
                edge.path, "missing_branch",
                f"The edge from the condition {edge.source!r} to {edge.target!r} does not say "
                "which branch it is.",
                'Write condition: "true" or condition: "false".',
            )  # fmt: skip
        return PlanEdge(edge.source, edge.target, branch, condition, edge.on_failure, edge.on_skip)

    def _output(self, level: Level) -> Template | None:
        output = level.graph.output
        if output is msgspec.UNSET:
            return None
        names = level.names(self._all_ids)
        template = read_template(output, names, below(level.graph.path, "output"), self._problems)
        if level.container is not None:
            steps = [ref.step for ref in refs_in(template) if ref.step is not None]
            self._note_above(level, [step for step in steps if step not in level.ids])
        return template

    # -- nodes ---------------------------------------------------------------------------

    def _node(self, node: Node, level: Level) -> PlanNode:
        own = _item_names(node)
        names = level.names(self._all_ids, own, secrets=self._acts(node))
        config, conditions = self._config(node, level, names)
        when = items = None
        if node.when is not None:
            path = below(node.path, "when")
            when = read_condition(node.when, level.names(self._all_ids, own), path, self._problems)
            self._note(level, node.id, () if when is None else steps_of(when))
        if node.for_each is not None:
            path = below(below(node.path, "for_each"), "items")
            plain = level.names(self._all_ids)
            items = read_template(node.for_each.items, plain, path, self._problems)
            if isinstance(items, Constant) and not isinstance(items.value, list | None):
                self._problems.error(
                    path, "bad_field", f"for_each goes through a list, not {items.value!r:.100}.",
                    'Write a list, or a reference to one: items: "@step.field".',
                )  # fmt: skip
            self._note_template(level, node.id, items)
        inside = own | (frozenset({"index", "previous"}) if node.type == "loop" else frozenset())
        body = None
        if node.body is not None:
            inner = Level(node.body, level, node.id, level.items | inside)
            body = self._level(inner)
            if node.type == "loop":
                conditions |= self._loop_conditions(node, inner)
        branches = None
        if node.branches is not None:
            branches = {
                branch_id: self._level(Level(branch, level, node.id, level.items | inside))
                for branch_id, branch in node.branches.items()
            }
        return PlanNode(
            node.id, node.type, config, (), (), when, node.for_each, items, node.any_join,
            node.retry, None if node.timeout is None else seconds(node.timeout), body, branches,
            conditions,
        )  # fmt: skip

    def _config(
        self, node: Node, level: Level, names: Names
    ) -> tuple[Template, dict[str, Condition]]:
        path = below(node.path, "config")
        kind = self._kinds.get(node.type)
        verbatim = kind.verbatim if kind is not None else frozenset()
        fields = _CONDITIONS.get(node.type, ())
        conditions: dict[str, Condition] = {}
        inner: dict[str, Any] = {}
        for key, value in node.config.items():
            at = below(path, key)
            if key in fields:
                if node.type == "condition":
                    condition = read_condition(value, names, at, self._problems)
                    if condition is not None:
                        conditions[key] = condition
                        self._note(level, node.id, steps_of(condition))
            elif key in verbatim:
                inner[key] = Constant(value)
            else:
                inner[key] = read_template(value, names, at, self._problems)
                self._note_template(level, node.id, inner[key])
        return _composed(inner), conditions

    def _loop_conditions(self, node: Node, inner: Level) -> dict[str, Condition]:
        """`until` and `while` look at the body that has just been executed."""
        found: dict[str, Condition] = {}
        for key in _CONDITIONS["loop"]:
            if key in node.config:
                path = below(below(node.path, "config"), key)
                names = inner.names(self._all_ids)
                condition = read_condition(node.config[key], names, path, self._problems)
                if condition is not None:
                    found[key] = condition
                    outside = [step for step in steps_of(condition) if step not in inner.ids]
                    self._note_above(inner, outside)
        return found

    def _acts(self, node: Node) -> bool:
        kind = self._kinds.get(node.type)
        return kind is not None and kind.acts

    # -- names and needs -----------------------------------------------------------------

    def _note_template(self, level: Level, node_id: str, template: Template) -> None:
        steps = [ref.step for ref in refs_in(template) if ref.step is not None]
        self._note(level, node_id, steps)

    def _note(self, level: Level, node_id: str, steps: Iterable[str]) -> None:
        """The node looks at these steps: it, or the node around it, has to wait for them."""
        outside = []
        for step in steps:
            if step in level.ids:
                level.needs[node_id][step] = None
            else:
                outside.append(step)
        self._note_above(level, outside)

    def _note_above(self, level: Level, steps: Iterable[str]) -> None:
        if level.above is not None and level.container is not None:
            self._note(level.above, level.container, steps)

    # -- order ---------------------------------------------------------------------------

    def _order(self, level: Level, nodes: Mapping[str, PlanNode]) -> tuple[str, ...]:
        """Every node after those that lead to it; a cycle is a problem."""
        waiting = {
            node_id: len({edge.source for edge in node.incoming}) for node_id, node in nodes.items()
        }
        order = [node_id for node_id, count in waiting.items() if count == 0]
        for node_id in order:
            for target in nodes[node_id].targets:
                waiting[target] -= 1
                if waiting[target] == 0:
                    order.append(target)
        if len(order) < len(nodes):
            left = {node_id for node_id in nodes if node_id not in set(order)}
            cycle = _cycle(left, nodes)
            self._problems.error(
                below(level.graph.path, "edges"), "cycle",
                f"These nodes wait for each other: {' → '.join(cycle)}.",
                "Edges and references must lead forward; repeat things with a loop node.",
            )  # fmt: skip
        return tuple(order)


def _cycle(left: set[str], nodes: Mapping[str, PlanNode]) -> list[str]:
    """One cycle among nodes that never become ready."""
    trail: dict[str, None] = {}
    node_id = next(iter(node_id for node_id in nodes if node_id in left))
    while node_id not in trail:
        trail[node_id] = None
        node_id = next(edge.source for edge in nodes[node_id].incoming if edge.source in left)
    path = list(trail)
    return [node_id, *reversed(path[path.index(node_id) :])]


def _depth(node: PlanNode) -> int:
    """How many levels there are inside a node."""
    inside = [*(node.branches or {}).values(), *([node.body] if node.body is not None else [])]
    return max((plan.depth for plan in inside), default=0)


def _item_names(node: Node) -> frozenset[str]:
    if node.for_each is None:
        return frozenset()
    return frozenset({node.for_each.name, "item", "index"})


def _composed(inner: dict[str, Any]) -> Template:
    if all(isinstance(each, Constant) for each in inner.values()):
        return Constant({key: each.value for key, each in inner.items()})
    return Composed(inner)

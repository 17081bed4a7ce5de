"""A plan: a definition made ready to be executed, level by level."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from stepwell.graph.conditions import Condition
from stepwell.graph.definition import ForEach, OnFailure, OnSkip, RetryPolicy
from stepwell.graph.refs import Composed, Constant, Ref, Template, Text


class PlanEdge(msgspec.Struct, frozen=True):
    """A way from one node to another, drawn or implied by a reference."""

    source: str
    target: str
    # The result of a condition node that it goes on from, or what has to hold besides.
    branch: bool | None = None
    condition: Condition | None = None
    on_failure: OnFailure = "skip"
    on_skip: OnSkip = "skip"
    drawn: bool = True


class PlanNode(msgspec.Struct, frozen=True):
    """A node with its references read and its edges found."""

    id: str
    type: str
    config: Template
    incoming: tuple[PlanEdge, ...]
    # The nodes that look at this one once it has ended.
    targets: tuple[str, ...]
    when: Condition | None = None
    for_each: ForEach | None = None
    items: Template | None = None
    any_join: bool = False
    retry: RetryPolicy | None = None
    timeout: float | None = None
    body: Plan | None = None
    branches: dict[str, Plan] | None = None
    # Conditions of its own that nodes of control have: `until` and `while` of a loop.
    conditions: dict[str, Condition] = {}
    # Whether some edge makes its failure good.
    tolerated: bool = False
    # How many nodes lead to it.
    sources: int = 0

    def written(self, field: str) -> Any:
        """What a field of its config says; None if that is up to a reference."""
        fields = self.config.value if isinstance(self.config, Composed | Constant) else None
        found = fields.get(field) if isinstance(fields, dict) else None
        if isinstance(found, Constant):
            return found.value
        return None if isinstance(found, Ref | Text | Composed) else found


class Plan(msgspec.Struct, frozen=True):
    """One level: the whole definition, or a body of one of its nodes."""

    nodes: dict[str, PlanNode]
    # In an order in which every node comes after those that lead to it.
    order: tuple[str, ...]
    # Nodes that lead to no other.
    terminal: tuple[str, ...]
    output: Template | None = None
    # How many levels there are, this one included.
    depth: int = 1

    def all_nodes(self, around: tuple[str, ...] = ()) -> Iterator[tuple[PlanNode, tuple[str, ...]]]:
        """The nodes of all levels, each with the ids of those that it is inside of."""
        for node in self.nodes.values():
            yield node, around
            for inner in (*([node.body] if node.body else []), *(node.branches or {}).values()):
                yield from inner.all_nodes((*around, node.id))

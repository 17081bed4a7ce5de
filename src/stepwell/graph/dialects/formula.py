"""Formulas: work described as tasks that need each other, with parents, expansions and aspects.

Three kinds are made into one graph of tasks. A *workflow* has steps; it may extend others, have
some of its steps expanded by an expansion, and be woven with aspects. A *convoy* has legs that
are worked on at the same time, and a synthesis of them all. An *expansion* of its own is expanded
for itself; an aspect that only says what to put around other steps is nothing to execute.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec

from stepwell.graph.dialects.conversion import Ids, Load, Losses, Sequence, slug
from stepwell.graph.dialects.formulas.convoys import Convoy
from stepwell.graph.dialects.formulas.family import Family, Formula
from stepwell.graph.dialects.formulas.joints import Joints, Need
from stepwell.graph.dialects.formulas.shapes import Shapes, Step, TooMuch
from stepwell.graph.dialects.formulas.variables import Variables
from stepwell.graph.dialects.formulas.waits import Waits
from stepwell.graph.dialects.formulas.weaving import Weaver
from stepwell.graph.parse import MAX_DESCRIPTION, MAX_STEPS, MAX_TITLE
from stepwell.kernel.names import show

NAME = "formula"
_DOCUMENT = (
    "formula", "description", "version", "type", "vars", "inputs", "steps", "compose", "legs",
    "synthesis", "template", "advice", "aspects", "prompts", "output", "presets", "title", "phase",
    "pour", "pointcuts",
)  # fmt: skip
_KINDS = ("workflow", "convoy", "expansion", "aspect")
# Room for tasks that are bonded on.
_BUDGET = 1000


def recognises(data: Any) -> bool:
    return isinstance(data, dict) and (
        "formula" in data or any(key in data for key in ("legs", "template", "advice"))
    )


def convert(data: dict[str, Any], losses: Losses, load: Load) -> dict[str, Any]:
    """The document in the language of this system."""
    try:
        return _Converter(losses, load).document(data)
    except TooMuch as error:
        losses.refuse("", str(error))
        return {"name": slug(str(data.get("formula"))), "nodes": []}


class _Level(msgspec.Struct):
    """The nodes of some steps, and what these need that is not among them."""

    graph: dict[str, Any]
    ids: dict[str, str]
    outside: list[Need]


class _Converter:
    def __init__(self, losses: Losses, load: Load) -> None:
        self._losses = losses
        self._shapes = Shapes(losses)
        self._family = Family(self._shapes, losses, load)
        self._ids = Ids(losses)
        self._variables = Variables({}, self._shapes, losses)
        self._waits = Waits(self._variables, self._shapes, losses, self._ids)

    def document(self, data: dict[str, Any]) -> dict[str, Any]:
        name = self._shapes.text(data.get("formula"), "formula") or "imported"
        formula = self._family.formula(data, (name,))
        data = {**formula.data, "vars": formula.variables}
        self._losses.unknown(data, _DOCUMENT, "")
        self._variables = Variables(data, self._shapes, self._losses)
        self._waits = Waits(self._variables, self._shapes, self._losses, self._ids)
        level = self._steps(self._composed(formula), "steps", ())
        for who, need in level.outside:
            self._losses.refuse("steps", f"{show(who)} needs {show(need)}, which is not there.")
        found: dict[str, Any] = {"name": slug(name)}
        found["title"] = self._short(data, "title", MAX_TITLE) or name
        if description := self._short(data, "description", MAX_DESCRIPTION):
            found["description"] = description
        if inputs := self._variables.schema():
            found["inputs"] = inputs
        steps = _executed(level.graph["nodes"])
        if steps > MAX_STEPS:
            self._losses.refuse("steps", f"It has {steps:,} steps; at most {MAX_STEPS:,} can be.")
        elif steps > _BUDGET // 2:
            found["policy"] = {"max_steps": min(steps + _BUDGET, MAX_STEPS)}
        return {**found, **level.graph}

    def _short(self, data: dict[str, Any], key: str, longest: int) -> str:
        text = self._shapes.text(data.get(key), key)
        if len(text) > longest:
            self._losses.add(key, f"It is cut after {longest:,} characters.")
        return text[:longest]

    def _composed(self, formula: Formula) -> list[Step]:
        """The steps of a formula of whichever kind."""
        data = formula.data
        kind = data.get("type", "workflow")
        if kind not in _KINDS:
            known = ", ".join(_KINDS)
            self._losses.refuse("type", f"There is no formula of the type {show(kind)}: {known}.")
        if data.get("legs") or data.get("aspects"):
            return Convoy(data, self._variables, self._shapes, self._losses).steps()
        weaver = Weaver(self._shapes, self._losses, self._family)
        if not formula.steps and data.get("template"):
            self._losses.add("template", "It is expanded for itself, as nothing else is there.")
            formula.steps = weaver.template(formula)
        if not formula.steps:
            what = "An aspect only goes around the steps of others" if formula.advice else "None"
            self._losses.refuse("steps", f"There are no steps to execute. {what}.")
        return weaver.woven(formula)

    # -- steps ---------------------------------------------------------------------------

    def _steps(self, steps: list[Step], path: str, items: tuple[str, ...]) -> _Level:
        ids: dict[str, str] = {}
        for step in steps:
            if step.id in ids:
                self._losses.refuse(f"{step.path}.id", f"There is another step {step.id!r}.")
            ids[step.id] = self._ids.make(step.id, f"{step.path}.id")
        joints = Joints(steps, self._losses)
        level = Sequence()
        for step in steps:
            nodes, outside = self._nodes(step, ids[step.id], items)
            joints.add(step, nodes, ids[step.id], outside)
            level.nodes += nodes
            level.edges += [{"source": a["id"], "target": b["id"]} for a, b in pairwise(nodes)]
        level.edges += joints.edges()
        return _Level(level.graph(), ids, joints.outside)

    def _nodes(
        self, step: Step, node_id: str, items: tuple[str, ...]
    ) -> tuple[list[dict[str, Any]], list[Need]]:
        """The nodes of a step, in their order, and what those inside of it need from outside."""
        nodes: list[dict[str, Any]] = []
        outside: list[Need] = []
        if step.gate:
            nodes.append(self._waits.gate(step, node_id, items))
        if step.loop:
            node, outside = self._loop(step, node_id, items)
        elif step.children:
            inner = self._steps(step.children, f"{step.path}.children", items)
            node, outside = _group(node_id, inner.graph), inner.outside
        else:
            node = self._task(step, node_id, items)
        if step.inner() and step.title:
            node["title"] = step.title[:MAX_TITLE]
        if step.inner() and (step.description or step.acceptance):
            self._losses.add(
                f"{step.path}.description", "A group of steps is no task; its text is left out."
            )
        nodes.append(node)
        if step.on_complete:
            nodes.append(self._waits.bond(step, node_id, items))
        if step.condition:
            when = self._variables.condition(step.condition, f"{step.path}.condition")
            nodes[0] |= {} if when is None else {"when": when}
        return nodes, outside

    def _task(self, step: Step, node_id: str, items: tuple[str, ...]) -> dict[str, Any]:
        fields = {
            "title": step.title or step.id,
            "instructions": step.description,
            "acceptance": step.acceptance,
            "assignee": step.assignee,
        }
        config = {key: self._variables.text(value, items) for key, value in fields.items() if value}
        return {"id": node_id, "type": "task", "config": config}

    def _loop(
        self, step: Step, node_id: str, items: tuple[str, ...]
    ) -> tuple[dict[str, Any], list[Need]]:
        assert step.loop is not None
        turns = self._waits.turns(step.loop)
        name = turns.name or "item"
        inner = self._steps(step.loop.body, f"{step.loop.path}.body", (*items, name))
        if turns.until is not None:
            config = self._waits.until(step.loop, turns, inner.ids)
            node = {"id": node_id, "type": "loop", "config": config, "body": inner.graph}
            return node, inner.outside
        each: dict[str, Any] = {"items": turns.items, "max_items": max(len(turns.items), 1)}
        if turns.name:
            each["as"] = turns.name
        return {**_group(node_id, inner.graph), "for_each": each}, inner.outside


def _group(node_id: str, graph: dict[str, Any]) -> dict[str, Any]:
    return {"id": node_id, "type": "parallel", "branches": [{"id": "body", **graph}]}


def _executed(nodes: list[dict[str, Any]]) -> int:
    """How many nodes are executed at most, each of them as often as it is repeated."""
    total = 0
    for node in nodes:
        inner = [node["body"]] if "body" in node else node.get("branches", [])
        once = 1 + sum(_executed(graph["nodes"]) for graph in inner)
        items = node.get("for_each", {}).get("items")
        times = len(items) if isinstance(items, list) else 1
        total += once * max(times, node["config"].get("max_iterations", 1) if "body" in node else 1)
    return total

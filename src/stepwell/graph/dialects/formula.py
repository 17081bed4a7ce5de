"""Formulas: work described as tasks that need each other, with parents, expansions and aspects.

Three kinds are made into one graph of tasks. A *workflow* has steps; it may extend others, have
some of its steps expanded by an expansion, and be woven with aspects. A *convoy* has legs that
are worked on at the same time, and a synthesis of them all. Expansions and aspects are not
definitions of their own: they are read where a workflow names them.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from itertools import pairwise
from typing import Any

from stepwell.graph.dialects.conversion import Ids, Load, Losses, Sequence, schema_of, slug
from stepwell.graph.dialects.weaving import merged, replaced, woven

NAME = "formula"
_DOCUMENT = (
    "formula", "description", "version", "type", "vars", "inputs", "steps", "extends", "compose",
    "legs", "synthesis", "template", "advice", "prompts", "output", "title", "phase", "pour",
)  # fmt: skip
_STEP = (
    "id", "title", "description", "needs", "depends_on", "acceptance", "acceptance_criteria",
    "condition", "gate", "loop", "on_complete", "children",
)  # fmt: skip
_VARIABLE = re.compile(r"\{\{\s*(!?)\s*([A-Za-z_][\w-]*)\s*\}\}")
_CONDITION = re.compile(
    r"(?P<not>!?)\s*\{\{\s*(?P<name>[\w-]+)\s*\}\}\s*(?:(?P<op>==|!=)\s*(?P<value>.+))?"
)
_RANGE = re.compile(r"\s*(-?\d+)\s*\.\.\s*(-?\d+)\s*")
# Room for iterations, and for tasks that are bonded on.
_BUDGET = 1000


def recognises(data: Any) -> bool:
    return isinstance(data, dict) and (
        "formula" in data or any(key in data for key in ("legs", "template", "advice"))
    )


def convert(data: dict[str, Any], losses: Losses, load: Load) -> dict[str, Any]:
    """The document in the language of this system."""
    return _Converter(losses, load).document(data)


class _Converter:
    def __init__(self, losses: Losses, load: Load) -> None:
        self._losses = losses
        self._load = load
        self._ids = Ids(losses)

    def document(self, data: dict[str, Any]) -> dict[str, Any]:
        data = self._with_parents(data, ())
        self._losses.unknown(data, _DOCUMENT, "")
        name = str(data.get("formula", "imported"))
        found: dict[str, Any] = {"name": slug(name), "title": str(data.get("title", name))}
        if data.get("description"):
            found["description"] = data["description"]
        if inputs := schema_of(data.get("vars") or data.get("inputs"), "vars", self._losses):
            found["inputs"] = inputs
        steps = self._convoy(data) if data.get("legs") else self._composed(data)
        level = Sequence()
        self._steps(steps, level, "steps")
        nodes = _count(level.nodes)
        if nodes > _BUDGET // 2:
            found["policy"] = {"max_steps": nodes + _BUDGET}
        for key in ("prompts", "output"):
            if key in data:
                self._losses.add(key, f"{key!r} has no counterpart and was left out.")
        return {**found, **level.graph()}

    # -- parents, expansions, aspects ----------------------------------------------------

    def _with_parents(self, data: dict[str, Any], seen: tuple[str, ...]) -> dict[str, Any]:
        """The formula with what it extends: its own variables and steps win."""
        together: dict[str, Any] = {}
        for parent in data.get("extends") or []:
            if parent in seen:
                self._losses.add("extends", f"{parent!r} extends itself and was left out.")
                continue
            found = self._sibling(str(parent), "extends")
            if found is not None:
                together = merged(together, self._with_parents(found, (*seen, str(parent))))
        return merged(together, {key: data[key] for key in data if key != "extends"})

    def _sibling(self, name: str, path: str) -> dict[str, Any] | None:
        text = self._load(f"{name}.formula.toml")
        if text is None:
            self._losses.refuse(path, f"There is no {name}.formula.toml beside this file.")
            return None
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            self._losses.refuse(path, f"{name}.formula.toml cannot be read: {error}.")
            return None

    def _composed(self, data: dict[str, Any]) -> list[dict[str, Any]]:
        steps = [dict(step) for step in data.get("steps") or data.get("template") or []]
        compose = data.get("compose") or {}
        self._losses.unknown(compose, ("expand", "aspects", "map"), "compose")
        for index, rule in enumerate(compose.get("expand") or []):
            steps = self._expanded(steps, rule, f"compose.expand[{index}]", [rule.get("target")])
        for index, rule in enumerate(compose.get("map") or []):
            targets = [
                s["id"] for s in steps if fnmatch.fnmatch(str(s["id"]), str(rule.get("select")))
            ]
            steps = self._expanded(steps, rule, f"compose.map[{index}]", targets)
        for name in compose.get("aspects") or []:
            aspect = self._sibling(str(name), "compose.aspects")
            if aspect is not None:
                steps = woven(steps, aspect.get("advice") or [])
        return woven(steps, data.get("advice") or [])

    def _expanded(
        self, steps: list[dict[str, Any]], rule: dict[str, Any], path: str, targets: list[Any]
    ) -> list[dict[str, Any]]:
        """Put the steps of an expansion in the place of each target."""
        expansion = self._sibling(str(rule.get("with")), path)
        if expansion is None:
            return steps
        given = {
            **{k: v.get("default") if isinstance(v, dict) else v
               for k, v in (expansion.get("vars") or {}).items()},
            **(rule.get("vars") or {}),
        }  # fmt: skip
        template = expansion.get("template") or expansion.get("steps") or []
        for target in targets:
            place = next((i for i, s in enumerate(steps) if s.get("id") == target), None)
            if place is None:
                self._losses.add(path, f"There is no step {target!r} to expand.")
                continue
            steps = replaced(steps, place, template, given)
        return steps

    def _convoy(self, data: dict[str, Any]) -> list[dict[str, Any]]:
        """Legs at the same time, then what is made of them all."""
        legs = [
            {
                "id": leg.get("id", f"leg-{index}"),
                "title": leg.get("title", ""),
                "description": "\n\n".join(
                    str(leg[key]) for key in ("focus", "description") if leg.get(key)
                ),
            }
            for index, leg in enumerate(data["legs"])
        ]
        synthesis = data.get("synthesis")
        if not synthesis:
            return legs
        needs = synthesis.get("depends_on") or [leg["id"] for leg in legs]
        return [
            *legs,
            {
                "id": synthesis.get("id", "synthesis"),
                "title": synthesis.get("title", "Synthesis"),
                "description": synthesis.get("description", ""),
                "needs": needs,
            },
        ]

    # -- steps ---------------------------------------------------------------------------

    def _steps(self, steps: list[dict[str, Any]], level: Sequence, path: str) -> None:
        ids = {
            str(step.get("id")): self._ids.make(str(step.get("id")), f"{path}[{index}].id")
            for index, step in enumerate(steps)
        }
        # Where a step begins and ends: a gate comes before it, what it bonds on comes after.
        first = dict(ids)
        last = dict(ids)
        conditional = {str(step.get("id")) for step in steps if step.get("condition")}
        made = []
        for index, step in enumerate(steps):
            own, at = str(step.get("id")), f"{path}[{index}]"
            self._losses.unknown(step, _STEP, at)
            nodes = self._nodes(step, ids[own], at)
            first[own], last[own] = nodes[0]["id"], nodes[-1]["id"]
            made.append(nodes)
        for step, nodes in zip(steps, made, strict=True):
            level.nodes += nodes
            level.edges += [{"source": a["id"], "target": b["id"]} for a, b in pairwise(nodes)]
            for need in [*(step.get("needs") or []), *(step.get("depends_on") or [])]:
                if need not in last:
                    self._losses.refuse(
                        path, f"{step.get('id')!r} needs {need!r}, which is not there."
                    )
                    continue
                edge = {"source": last[need], "target": first[str(step.get("id"))]}
                # Who needs a step that is left out goes on without it.
                level.edges.append({**edge, "on_skip": "continue"} if need in conditional else edge)

    def _nodes(self, step: dict[str, Any], node_id: str, path: str) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = []
        when = self._when(step.get("condition"), f"{path}.condition")
        if step.get("gate"):
            nodes.append(self._gate(step["gate"], node_id, f"{path}.gate"))
        inner = step.get("children") or []
        if step.get("loop"):
            nodes.append(self._loop(step, node_id, f"{path}.loop"))
        elif inner:
            body = Sequence()
            self._steps(inner, body, f"{path}.children")
            nodes.append(
                {"id": node_id, "type": "parallel", "branches": [{"id": "body", **body.graph()}]}
            )
        else:
            nodes.append(_task(step, node_id))
        if step.get("on_complete"):
            nodes.append(self._bonded(step["on_complete"], node_id, f"{path}.on_complete"))
        if when is not None:
            nodes[0]["when"] = when
        return nodes

    def _gate(self, gate: dict[str, Any], node_id: str, path: str) -> dict[str, Any]:
        self._losses.unknown(gate, ("type", "id", "timeout", "prompt", "title", "duration"), path)
        gate_id = self._ids.make(f"{node_id}_gate", path)
        kind, timeout = str(gate.get("type", "human")), gate.get("timeout")
        if kind == "human":
            prompt = gate.get("prompt") or gate.get("title") or f"Go on with {node_id}?"
            config: dict[str, Any] = {"prompt": _references(str(prompt))}
            return _timed({"id": gate_id, "type": "approval", "config": config}, timeout)
        if kind == "timer":
            wait = gate.get("duration") or timeout or "0s"
            return {"id": gate_id, "type": "delay", "config": {"duration": wait}}
        config = {"event": kind}
        if gate.get("id"):
            config["match"] = {"id": _references(str(gate["id"]))}
        return _timed({"id": gate_id, "type": "wait_event", "config": config}, timeout)

    def _loop(self, step: dict[str, Any], node_id: str, path: str) -> dict[str, Any]:
        loop = step["loop"]
        self._losses.unknown(loop, ("count", "until", "max", "range", "var", "body"), path)
        body = Sequence()
        inner = loop.get("body") or [
            {**step, "id": f"{step['id']}_body", "loop": None, "needs": []}
        ]
        self._steps([dict(each) for each in inner], body, f"{path}.body")
        if "until" in loop:
            condition = self._when(loop["until"], f"{path}.until")
            if condition is None:
                condition = str(loop["until"])
            config = {"until": condition, "max_iterations": loop.get("max", 100)}
            return {"id": node_id, "type": "loop", "config": config, "body": body.graph()}
        items = self._items(loop, path)
        each: dict[str, Any] = {"items": items, "max_items": max(len(items), 1)}
        if loop.get("var"):
            each["as"] = loop["var"]
        branches = [{"id": "body", **body.graph()}]
        return {"id": node_id, "type": "parallel", "branches": branches, "for_each": each}

    def _items(self, loop: dict[str, Any], path: str) -> list[int]:
        if found := _RANGE.fullmatch(str(loop.get("range", ""))):
            return list(range(int(found[1]), int(found[2]) + 1))
        count = loop.get("count")
        if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
            return list(range(1, count + 1))
        self._losses.add(path, f"How often {loop!r:.100} repeats is not known; it does so once.")
        return [1]

    def _bonded(self, rule: dict[str, Any], node_id: str, path: str) -> dict[str, Any]:
        """A run of another formula for each thing that the task came up with."""
        self._losses.unknown(rule, ("for_each", "bond", "vars", "parallel", "sequential"), path)
        items = str(rule.get("for_each", "output")).removeprefix("output").removeprefix(".")
        source = f"step.{node_id}.output" + (f".{items}" if items else "")
        config: dict[str, Any] = {"definition": slug(str(rule.get("bond", "")))}
        if rule.get("vars"):
            config["input"] = {
                key: re.sub(r"\{(item|index)((?:\.\w+)*)\}", r"{{\1\2}}", str(value))
                for key, value in rule["vars"].items()
            }
        each = {"items": f"@{source}"}
        concurrent = {"concurrency": 10} if rule.get("parallel") else {}
        return {
            "id": self._ids.make(f"{node_id}_bond", path), "type": "run", "config": config,
            "for_each": {**each, **concurrent},
        }  # fmt: skip

    def _when(self, condition: Any, path: str) -> Any:
        if not condition:
            return None
        found = _CONDITION.fullmatch(str(condition).strip())
        if found is None:
            self._losses.add(
                path, f"The condition {condition!r:.100} is not known; it always holds."
            )
            return None
        ref = f"@input.{found['name']}"
        if found["op"] is None:
            return {"ref": ref, "eq": False} if found["not"] else {"ref": ref}
        value = found["value"].strip().strip("'\"")
        return {"ref": ref, "eq" if found["op"] == "==" else "neq": value}


def _task(step: dict[str, Any], node_id: str) -> dict[str, Any]:
    config: dict[str, Any] = {"title": _references(str(step.get("title") or step.get("id")))}
    if step.get("description"):
        config["instructions"] = _references(str(step["description"]))
    acceptance = step.get("acceptance") or step.get("acceptance_criteria")
    if acceptance:
        config["acceptance"] = _references(str(acceptance))
    return {"id": node_id, "type": "task", "config": config}


def _references(text: str) -> str:
    """Variables of a formula are inputs here; an `@` in its prose means nothing."""
    return _VARIABLE.sub(lambda found: "{{input." + found[2] + "}}", text.replace("@", "@@"))


def _timed(node: dict[str, Any], timeout: Any) -> dict[str, Any]:
    if timeout:
        node["config"]["timeout"] = timeout
    return node


def _count(nodes: list[dict[str, Any]]) -> int:
    """How many nodes there are, those in bodies included."""
    total = 0
    for node in nodes:
        inner = [node["body"]] if "body" in node else node.get("branches", [])
        total += 1 + sum(_count(graph["nodes"]) for graph in inner)
    return total

"""What formulas wait for, how often they repeat, and what they bond on when a step is done."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from stepwell.graph.control import MAX_ITERATIONS
from stepwell.graph.dialects.conversion import Ids, Losses, slug
from stepwell.graph.dialects.formulas.ranges import bounds, number
from stepwell.graph.dialects.formulas.shapes import Loop, Shapes, Step
from stepwell.graph.dialects.formulas.variables import Variables, outcome
from stepwell.graph.parse import MAX_ITEMS
from stepwell.kernel.names import show

_GATE = ("type", "id", "await_id", "timeout", "prompt", "title", "duration")
# Gates that something outside opens; all others are opened by people.
_EVENTS = ("gh:run", "gh:pr", "mail", "bead")
_FIELDS = re.compile(r"output((?:\.\w[\w-]*)+)")
# How many formulas that are bonded on are worked on at the same time.
_BESIDE = 10


class Turns(msgspec.Struct):
    """How often a loop repeats its body."""

    items: list[int] = []
    # What the number of the turn is called.
    name: str = ""
    until: str | None = None
    most: int = 1


class Waits:
    def __init__(self, variables: Variables, shapes: Shapes, losses: Losses, ids: Ids) -> None:
        self._variables = variables
        self._shapes = shapes
        self._losses = losses
        self._ids = ids
        self._turns = 0

    # -- gates ---------------------------------------------------------------------------

    def gate(self, step: Step, node_id: str, items: tuple[str, ...]) -> dict[str, Any]:
        path = f"{step.path}.gate"
        self._losses.unknown(step.gate, _GATE, path)
        text = {key: self._shapes.text(step.gate.get(key), f"{path}.{key}") for key in _GATE}
        kind, timeout = text["type"] or "human", text["timeout"]
        gate = {"id": self._ids.make(f"{node_id}_gate", path)}
        awaited = self._variables.text(text["id"] or text["await_id"], items)
        if kind == "timer":
            if not (wait := text["duration"] or timeout):
                self._losses.refuse(path, "The timer does not say how long it takes.")
            return {**gate, "type": "delay", "config": {"duration": wait or "0s"}}
        config: dict[str, Any]
        if kind in _EVENTS:
            config = {"event": kind, **({"match": {"id": awaited}} if awaited else {})}
            self._losses.add(path, f"It opens when somebody sends an event {kind!r}.")
        else:
            config = {"prompt": self._prompt(step, text, awaited, items)}
            if kind != "human":
                self._losses.add(path, f"There are no gates {kind!r}; people decide about it.")
        if timeout:
            # There, somebody is told; it does not open by itself.
            config |= {"timeout": timeout, "on_timeout": "fail"}
        return {**gate, "type": "wait_event" if kind in _EVENTS else "approval", "config": config}

    def _prompt(
        self, step: Step, text: dict[str, str], awaited: str, items: tuple[str, ...]
    ) -> str:
        if written := text["prompt"] or text["title"]:
            return self._variables.text(written, items)
        title = self._variables.text(step.title or step.id, items)
        return f"Go on with {title}?" + (f" ({awaited})" if awaited else "")

    # -- loops ---------------------------------------------------------------------------

    def turns(self, loop: Loop) -> Turns:
        fields, path = loop.fields, loop.path
        self._losses.unknown(fields, ("count", "until", "max", "range", "var", "body"), path)
        name = self._shapes.text(fields.get("var"), f"{path}.var")
        ways = [key for key in ("count", "until", "range") if fields.get(key) not in (None, "")]
        if len(ways) != 1:
            self._losses.refuse(path, "A loop has one of count, until and range.")
            return Turns([1], name)
        text = self._shapes.text(fields[ways[0]], f"{path}.{ways[0]}")
        if ways == ["until"]:
            return Turns(name=name, until=text, most=self._most(fields.get("max"), f"{path}.max"))
        try:
            first, last = (
                bounds(text, self._variables.default) if ways == ["range"]
                else (1, number(text, self._variables.default))
            )  # fmt: skip
            return Turns(self._numbers(first, last), name)
        except ValueError as error:
            self._losses.refuse(f"{path}.{ways[0]}", f"How often it repeats is not known: {error}.")
            return Turns([1], name)
        finally:
            if "{" in text:
                self._losses.add(
                    f"{path}.{ways[0]}",
                    f"{show(text)} is fixed by the defaults of its variables, whatever is given.",
                )

    def _numbers(self, first: int, last: int) -> list[int]:
        if last < first:
            raise ValueError(f"{last} is less than {first}")
        self._turns += last - first + 1
        if self._turns > MAX_ITEMS:
            raise ValueError(f"{first}..{last} are too many; there may be {MAX_ITEMS:,} turns")
        return list(range(first, last + 1))

    def _most(self, value: Any, path: str) -> int:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not 1 <= value <= MAX_ITERATIONS
        ):
            self._losses.refuse(
                path,
                f"A loop with until has a max from 1 to {MAX_ITERATIONS:,}, not {show(value)}.",
            )
            return 1
        return value

    def until(self, loop: Loop, turns: Turns, ids: dict[str, str]) -> dict[str, Any]:
        """When a loop ends: once its condition holds, or after as many turns as there may be."""
        first = loop.body[0].id if loop.body else ""
        condition = outcome(turns.until or "", ids, first)
        if condition is None:
            self._losses.refuse(
                f"{loop.path}.until",
                f"The condition {show(turns.until)} cannot be read; it can compare what a step of "
                "the body came to, like check.output.done == true.",
            )
            condition = "true"
        until = f"({condition}) || index + 1 >= {turns.most}"
        return {"until": until, "max_iterations": turns.most}

    # -- bonds ---------------------------------------------------------------------------

    def bond(self, step: Step, node_id: str, items: tuple[str, ...]) -> dict[str, Any]:
        """A run of another formula for each thing that the task came up with."""
        rule, path = step.on_complete, f"{step.path}.on_complete"
        self._losses.unknown(rule, ("for_each", "bond", "vars", "parallel", "sequential"), path)
        name = self._shapes.text(rule.get("bond"), f"{path}.bond")
        source = self._shapes.text(rule.get("for_each"), f"{path}.for_each")
        fields = _FIELDS.fullmatch(source)
        if not name or fields is None:
            self._losses.refuse(
                path, "It needs a bond, and a for_each that says where it is: output.<field>."
            )
        if rule.get("parallel") and rule.get("sequential"):
            self._losses.refuse(path, "It cannot be both parallel and sequential.")
        if step.inner():
            self._losses.refuse(path, "A group of steps has no output to look into.")
        config: dict[str, Any] = {"definition": slug(name)}
        if given := self._shapes.values(rule.get("vars"), f"{path}.vars"):
            names = (*items, "item", "index")
            config["input"] = {
                key: self._variables.text(value, names) for key, value in given.items()
            }
        self._losses.add(f"{path}.bond", f"{name!r} is looked for as {slug(name)!r}.")
        # What a task reports is found below its output, beside a summary.
        listed = f"@step.{node_id}.output.output{fields[1] if fields else ''}"
        each = {"items": listed, **({} if rule.get("sequential") else {"concurrency": _BESIDE})}
        return {
            "id": self._ids.make(f"{node_id}_bond", path), "type": "run", "config": config,
            "for_each": each,
        }  # fmt: skip

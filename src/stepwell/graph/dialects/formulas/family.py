"""A formula and those that it names: parents that it extends, and others beside it."""

from __future__ import annotations

import tomllib
from typing import Any

import msgspec

from stepwell.graph.definition import MAX_NODES
from stepwell.graph.dialects.conversion import Load, Losses
from stepwell.graph.dialects.formulas.shapes import Shapes, Step, TooMuch
from stepwell.graph.reading import MAX_CHARACTERS

_COMPOSE = ("expand", "map", "branch", "gate", "aspects", "hooks", "bond_points")


class Formula(msgspec.Struct):
    """A formula with all that it extends."""

    data: dict[str, Any]
    variables: dict[str, Any]
    steps: list[Step]
    advice: list[dict[str, Any]]
    compose: dict[str, list[Any]]


class Family:
    """Reads formulas with all that they extend."""

    def __init__(self, shapes: Shapes, losses: Losses, load: Load) -> None:
        self._shapes = shapes
        self._losses = losses
        self._load = load
        self._known: dict[str, Formula | None] = {}

    def formula(self, data: dict[str, Any], seen: tuple[str, ...], at: str = "") -> Formula:
        """The formula with what it extends: its own variables and steps win."""
        found = Formula({}, {}, [], [], {})
        for name in self._shapes.texts(data.get("extends"), f"{at}extends"):
            if name in seen:
                way = " -> ".join((*seen, name))
                self._losses.refuse(f"{at}extends", f"A formula cannot extend itself: {way}.")
            elif (parent := self.sibling(name, f"{at}extends", seen)) is not None:
                self._merge(found, parent, f"{at}extends", own=False)
        self._merge(found, self._read(data, at), at, own=True)
        return found

    def _read(self, data: dict[str, Any], at: str) -> Formula:
        compose = self._shapes.table(data.get("compose"), f"{at}compose")
        self._losses.unknown(compose, _COMPOSE, f"{at}compose")
        rules: dict[str, list[Any]] = {
            key: self._shapes.texts(compose.get(key), f"{at}compose.{key}") if key == "aspects"
            else self._shapes.tables(compose.get(key), f"{at}compose.{key}")
            for key in _COMPOSE if compose.get(key)
        }  # fmt: skip
        return Formula(
            {key: value for key, value in data.items() if key != "extends"},
            self._shapes.table(data.get("vars"), f"{at}vars"),
            self._shapes.steps(data.get("steps"), f"{at}steps"),
            self._shapes.tables(data.get("advice"), f"{at}advice"),
            rules,
        )

    def _merge(self, into: Formula, more: Formula, path: str, *, own: bool) -> None:
        into.data = {**into.data, **more.data}
        # Of two parents, the first decides.
        pair = (into.variables, more.variables)
        into.variables = {**pair[0], **pair[1]} if own else {**pair[1], **pair[0]}
        places = {step.id: index for index, step in enumerate(into.steps)}
        for step in more.steps:
            place = places.get(step.id)
            if place is None:
                into.steps.append(step)
            elif own:
                into.steps[place] = step
            elif into.steps[place] is not step:
                self._losses.refuse(path, f"Two of them have a step {step.id!r}.")
        into.advice = [*into.advice, *more.advice]
        for key, rules in more.compose.items():
            into.compose[key] = [*into.compose.get(key, []), *rules]
        if len(into.steps) > MAX_NODES:
            raise TooMuch(f"It would become more than {MAX_NODES:,} steps.")

    def sibling(self, name: str, path: str, seen: tuple[str, ...] = ()) -> Formula | None:
        if name not in self._known:
            data = self._loaded(name, path)
            at = f"{name}: "
            self._known[name] = data and self.formula(data, (*seen, name), at)
        return self._known[name]

    def _loaded(self, name: str, path: str) -> Any:
        text = self._load(f"{name}.formula.toml")
        if text is None:
            self._losses.refuse(path, f"There is no {name}.formula.toml beside this file.")
            return None
        try:
            if len(text) > MAX_CHARACTERS:
                raise ValueError(f"it has more than {MAX_CHARACTERS:,} characters")
            return tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            self._losses.refuse(path, f"{name}.formula.toml cannot be read: {error}.")
            return None

"""Convoys: legs that are worked on beside each other, and a synthesis of them all."""

from __future__ import annotations

import re
from typing import Any

from stepwell.graph.dialects.conversion import Losses
from stepwell.graph.dialects.formulas.shapes import Shapes, Step
from stepwell.graph.dialects.formulas.variables import RUN_ID, Variables

_LEG = ("id", "title", "focus", "description")
_SYNTHESIS = ("id", "title", "description", "depends_on")
_OUTPUT = ("directory", "leg_pattern", "synthesis")
# `{{.leg.focus}}`, and blocks like `{{if .context}}`.
_VALUE = re.compile(r"\{\{-?\s*\.(?P<path>\w+(?:\.\w+)?)\s*-?\}\}")
_BLOCK = re.compile(r"\{\{-?\s*(?:if|range|with|else)\b")
# What a run is called by the templates of those who start it.
_RUN_ID = re.compile(r"\w+_id")


class Convoy:
    """The steps of a convoy, or of aspects that are looked at beside each other."""

    def __init__(
        self, data: dict[str, Any], variables: Variables, shapes: Shapes, losses: Losses
    ) -> None:
        self._data = data
        self._variables = variables
        self._shapes = shapes
        self._losses = losses
        self._name = shapes.text(data.get("formula"), "formula")
        self._prompt = shapes.values(data.get("prompts"), "prompts").pop("base", "")
        self._output = shapes.values(data.get("output"), "output")
        self._left: set[str] = set()

    def steps(self) -> list[Step]:
        self._losses.unknown(
            self._shapes.table(self._data.get("prompts"), ""), ("base",), "prompts"
        )
        self._losses.unknown(self._output, _OUTPUT, "output")
        key = "legs" if self._data.get("legs") else "aspects"
        legs = [
            self._leg(leg, f"{key}[{index}]")
            for index, leg in enumerate(self._shapes.tables(self._data.get(key), key))
        ]
        if self._data.get("presets"):
            self._losses.add("presets", "There are no presets; all legs are worked on.")
        if _BLOCK.search(self._prompt):
            self._losses.add(
                "prompts.base", "Its blocks ({{if …}}) are left to whoever reads them."
            )
        found = [*legs, *self._synthesis(legs)]
        for name in sorted(self._left):
            self._losses.add("prompts", f"{{{{.{name}}}}} has no value here and stays as it is.")
        return found

    def _leg(self, leg: dict[str, Any], path: str) -> Step:
        self._losses.unknown(leg, _LEG, path)
        text = {key: self._shapes.text(leg.get(key), f"{path}.{key}") for key in _LEG}
        if not text["id"]:
            self._losses.refuse(f"{path}.id", "A leg needs an id.")
        directory = self._output.get("directory", "")
        pattern = self._output.get("leg_pattern", "")
        about = {f"leg.{key}": value for key, value in text.items()}
        about["output_path"] = "/".join(filter(None, (directory, pattern)))
        parts = [self._prompt or text["focus"]]
        if "{{.leg.description}}" not in self._prompt:
            parts.append(text["description"])
        written = "\n\n".join(filter(None, parts))
        # Twice, as what is put in may itself be a template: the directory has the run in it.
        for _ in range(2):
            written = self._filled(written, about)
        return Step(text["id"], path, self._filled(text["title"], about), written)

    def _synthesis(self, legs: list[Step]) -> list[Step]:
        data = self._shapes.table(self._data.get("synthesis"), "synthesis")
        if not data:
            return []
        self._losses.unknown(data, _SYNTHESIS, "synthesis")
        text = {key: self._shapes.text(data.get(key), f"synthesis.{key}") for key in _SYNTHESIS[:3]}
        needs = self._shapes.texts(data.get("depends_on"), "synthesis.depends_on")
        written = text["description"]
        for _ in range(2):
            written = self._filled(written, {})
        return [
            Step(
                text["id"] or "synthesis", "synthesis", text["title"] or "Synthesis", written,
                needs=needs or [leg.id for leg in legs],
            )
        ]  # fmt: skip

    def _filled(self, text: str, about: dict[str, str]) -> str:
        known = {
            **{f"output.{key}": value for key, value in self._output.items()},
            "formula_name": self._name,
            **about,
        }

        def value(match: re.Match[str]) -> str:
            path = match["path"]
            if path in known:
                return known[path]
            if path in self._variables:
                return "{{" + path + "}}"
            if _RUN_ID.fullmatch(path):
                return RUN_ID
            self._left.add(path)
            return match[0]

        return self._shapes.filled(text, _VALUE, value)

"""The variables of a formula: they are the inputs here, and stand in its texts and conditions."""

from __future__ import annotations

import json
import re
from typing import Any

from stepwell.graph.dialects.conversion import Losses, schema_of
from stepwell.graph.dialects.formulas.shapes import Shapes
from stepwell.kernel.names import show

# How others of this folder write that the id of the run is meant.
RUN_ID = "{{@run.id}}"
_IN_TEXT = re.compile(
    r"(?P<run>\{\{@run\.id\}\})|(?<!\{)\{\{\s*(?P<name>[A-Za-z_]\w*)\s*\}\}|(?P<braces>\{\{)"
    r"|(?<!\{)\{(?P<item>[A-Za-z_]\w*(?:\.\w+)*)\}(?!\})|@"
)
# Words between braces that other languages of templates know, where nothing is declared.
_WORDS = frozenset({"else", "end", "this", "range", "with", "block", "define", "template", "nil"})
_CONDITION = re.compile(
    r"(?P<not>!?)\s*\{\{\s*(?P<name>\w+)\s*\}\}|"
    r"\{\{\s*(?P<compared>\w+)\s*\}\}\s*(?P<operator>==|!=)\s*(?P<value>.+)"
)
# What is not true there, where every value is a text.
_FALSE = "^(?i:false|0|no|off|)$"
_OUTCOME = re.compile(r"(?P<path>\w[\w-]*(?:\.\w+)*)\s*(?P<operator>[=!]=|[<>]=?)\s*(?P<value>.+)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_KINDS = {
    "string": "string", "str": "string", "int": "integer", "integer": "integer",
    "bool": "boolean", "boolean": "boolean", "number": "number", "float": "number",
}  # fmt: skip
_VARIABLE = ("type", "description", "default", "enum", "pattern", "required", "required_unless")


class Variables:
    """Which variables there are, what they stand for, and which of them are used."""

    def __init__(self, data: dict[str, Any], shapes: Shapes, losses: Losses) -> None:
        self._losses = losses
        self._shapes = shapes
        # Of the inputs of a convoy, those that are left out are empty; other variables that are
        # used must have a value.
        self._optional: set[str] = set()
        self._groups: list[list[str]] = []
        self._specs: dict[str, Any] = {}
        for section in ("inputs", "vars"):
            for name, spec in shapes.table(data.get(section), section).items():
                self._declare(str(name), spec, f"{section}.{name}", section == "inputs")
        self._open = not self._specs
        self._used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._specs

    def default(self, name: str) -> str:
        """The default of a variable; raises ValueError if there is none."""
        found = self._specs.get(name, {}).get("default")
        if found is None:
            raise ValueError(f"there is no variable {name!r} that has a default")
        return str(found)

    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the inputs; what is used and has no default must be given."""
        specs = {
            name: spec if "default" in spec or name not in self._used or name in self._optional
            else {**spec, "required": True}
            for name, spec in self._specs.items()
        }  # fmt: skip
        found = schema_of(specs, "vars", self._losses)
        if found is not None and self._groups:
            found["allOf"] = [
                {"anyOf": [{"required": [name]} for name in group]} for group in self._groups
            ]
        return found

    def text(self, text: str, items: tuple[str, ...] = ()) -> str:
        """A text as it is written here; what is between braces and no variable stays as it is."""

        def written(match: re.Match[str]) -> str:
            name = match["name"]
            if match["run"]:
                return "{{run.id}}"
            if name in items:
                return "{{" + name + "}}"
            if name and self._knows(name):
                self._used.add(name)
                return "{{input." + name + (' ? ""' if name in self._optional else "") + "}}"
            if match["item"]:
                known = match["item"].partition(".")[0] in items
                return "{{" + match["item"] + "}}" if known else match[0]
            return "@@" if match[0] == "@" else "{{" + match[0]

        return _IN_TEXT.sub(written, text)

    def condition(self, text: str, path: str) -> Any:
        """When a step is part of the run; None, and a refusal, if nobody can tell."""
        found = _CONDITION.fullmatch(text)
        if found is None:
            self._losses.refuse(path, f"The condition {show(text)} cannot be read.")
            return None
        name = json.dumps(found["name"] or found["compared"])
        if found["operator"]:
            value = json.dumps(_unquoted(found["value"]), ensure_ascii=False)
            return f'({name} in input ? string(input[{name}]) : "") {found["operator"]} {value}'
        if self._specs.get(found["name"], {}).get("type") == "boolean":
            ref = f"@input.{found['name']}"
            return {"ref": ref, "neq": True} if found["not"] else {"ref": ref}
        holds = f'{name} in input && !string(input[{name}]).matches("{_FALSE}")'
        return f"!({holds})" if found["not"] else holds

    def _knows(self, name: str) -> bool:
        if name not in self._specs and self._open and name not in _WORDS:
            self._specs[name] = {}
            self._losses.add("vars", f"{name!r} is declared nowhere; it has to be given.")
        return name in self._specs

    def _declare(self, name: str, spec: Any, path: str, is_input: bool) -> None:
        spec = dict(spec) if isinstance(spec, dict) else {"default": spec}
        self._losses.unknown(spec, _VARIABLE, path)
        spec = {key: spec[key] for key in _VARIABLE if key in spec}
        if group := self._shapes.texts(
            spec.pop("required_unless", None), f"{path}.required_unless"
        ):
            group = sorted({name, *group})
            self._groups += [] if group in self._groups else [group]
        if is_input and not spec.get("required") and "default" not in spec:
            self._optional.add(name)
        if "type" in spec or isinstance(spec.get("default"), bool):
            self._typed(spec, path)
        self._emptied(spec, path)
        self._specs[name] = spec

    def _typed(self, spec: dict[str, Any], path: str) -> None:
        """Give values the type that is declared: there, all of them are texts."""
        declared = spec.pop("type", "bool")
        kind = _KINDS.get(str(declared))
        if kind is None:
            self._losses.add(f"{path}.type", f"There is no type {show(declared)}; any value is.")
            return
        spec["type"] = kind
        if "default" in spec and not (spec["default"] == "" and kind != "string"):
            spec["default"] = self._value(spec["default"], kind, f"{path}.default")
        elif "default" in spec:  # nothing at all stands for a number that nobody gave
            spec.pop("type")
        if isinstance(spec.get("enum"), list):
            spec["enum"] = [self._value(each, kind, f"{path}.enum") for each in spec["enum"]]

    def _value(self, value: Any, kind: str, path: str) -> Any:
        text = self._shapes.text(value, path)
        if kind == "string":
            return text
        if kind == "boolean" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind == "integer" and re.fullmatch(r"-?\d{1,18}", text):
            return int(text)
        if kind == "number" and re.fullmatch(r"-?\d{1,18}(?:\.\d{1,18})?", text):
            return float(text) if "." in text else int(text)
        self._losses.refuse(path, f"{show(value)} is no {kind}.")
        return value

    def _emptied(self, spec: dict[str, Any], path: str) -> None:
        """An empty default is allowed there, whatever else the value has to be."""
        if not isinstance(spec.get("enum", []), list):
            self._losses.refuse(f"{path}.enum", "This must be a list of values.")
            spec.pop("enum")
        if not isinstance(spec.get("pattern", ""), str):
            self._losses.refuse(f"{path}.pattern", "This must be a regular expression.")
            spec.pop("pattern")
        if spec.get("default") == "":
            if "enum" in spec:
                spec["enum"] = [*spec["enum"], ""]
            if spec.get("pattern"):
                spec["pattern"] = f"^$|{spec['pattern']}"


def outcome(text: str, ids: dict[str, str], current: str) -> str | None:
    """CEL for what a step came to, like `review.output.approved == true`; None if it is not that.

    What is not there is not equal to anything, there and here.
    """
    found = _OUTCOME.fullmatch(text.strip())
    if found is None:
        return None
    first, _, rest = found["path"].partition(".")
    if first == "output":
        first, rest = "step", found["path"]
    node = ids.get(current if first == "step" else first)
    if node is None:
        return None
    step, value = f"steps[{json.dumps(node)}]", _unquoted(found["value"])
    if rest == "status" and value in ("complete", "completed") and found["operator"] == "==":
        return f'{step}.status == "completed"'
    # What a task reports is found below its output, beside a summary.
    part, *fields = rest.split(".")
    return None if part != "output" or not fields else _compared(
        f"{step}.output.output", fields, found["operator"], value
    )  # fmt: skip


def _compared(at: str, fields: list[str], operator: str, value: str) -> str | None:
    there = []
    for field in map(json.dumps, fields):
        there.append(f"type({at}) == map && {field} in {at}")
        at = f"{at}[{field}]"
    if operator in ("==", "!="):
        there.append(f"type({at}) in [string, bool, int, double]")
        same = f"{' && '.join(there)} && string({at}) == {json.dumps(value, ensure_ascii=False)}"
        return same if operator == "==" else f"!({same})"
    if not _NUMBER.fullmatch(value):
        return None
    there.append(f"type({at}) in [int, double]")
    return f"{' && '.join(there)} && double({at}) {operator} {float(value)}"


def _unquoted(value: str) -> str:
    value = value.strip()
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value

"""Nested step lists: steps one after the other, with branches, loops and approvals among them."""

from __future__ import annotations

import re
from typing import Any

from stepwell.graph.dialects.conversion import (
    Ids,
    Losses,
    Sequence,
    any_step,
    milliseconds,
    schema_of,
    slug,
)

NAME = "step list"
TYPES = (
    "bash", "tool", "agent", "agent_message", "conditional", "parallel", "approval", "loop",
    "subworkflow",
)  # fmt: skip
# How many steps a run of this dialect may have, unless it says so.
DEFAULT_STEPS = 50
_DOCUMENT = (
    "id", "name", "slug", "title", "description", "tags", "steps", "variables", "constraints",
    "runtime", "version", "enabled", "outputs",
)  # fmt: skip
_COMMON = (
    "id", "name", "type", "outputVariable", "output_variable", "description", "timeout",
    "timeoutMs", "timeout_ms",
)  # fmt: skip
_OPERATORS = {"equals": "eq", "not_equals": "neq", "greater_than": "gt", "less_than": "lt"}
_PLAIN = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*")
_OUTPUT = re.compile(r"(?<![\w.])outputs\.([A-Za-z_]\w*)")
_VARIABLE = re.compile(r"(?<![\w.])variables\.")
_BRACES = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def recognises(data: Any) -> bool:
    return any_step(data, _is_known)


def _is_known(step: Any) -> bool:
    return isinstance(step, dict) and step.get("type") in TYPES


def convert(data: dict[str, Any], losses: Losses) -> dict[str, Any]:
    """The document in the language of this system."""
    return _Converter(losses).document(data)


class _Converter:
    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._ids = Ids(losses)
        # Output variables that steps have set so far, and by which step.
        self._outputs: dict[str, str] = {}

    def document(self, data: dict[str, Any]) -> dict[str, Any]:
        self._losses.unknown(data, _DOCUMENT, "")
        title = str(data.get("title") or data.get("name") or "imported")
        found: dict[str, Any] = {
            "name": slug(str(data.get("slug") or data.get("id") or title)), "title": title,
        }  # fmt: skip
        for key in ("description", "tags"):
            if data.get(key):
                found[key] = data[key]
        if inputs := schema_of(data.get("variables"), "variables", self._losses):
            found["inputs"] = inputs
        found["policy"] = self._policy(data)
        if "version" in data:
            self._losses.add("version", "Versions are counted by the history of the definition.")
        if data.get("enabled") is False:
            self._losses.add("enabled", "A definition is enabled when it is published.")
        level = Sequence()
        self._steps(data["steps"], "step", level, [])
        return {**found, **level.graph(), **self._output(data)}

    def _policy(self, data: dict[str, Any]) -> dict[str, Any]:
        constraints = data.get("constraints") or {}
        policy = (data.get("runtime") or {}).get("policy") or {}
        self._losses.unknown(constraints, ("allowSelfModification", "maxSteps"), "constraints")
        self._losses.unknown(policy, ("maxSteps",), "runtime.policy")
        found: dict[str, Any] = {
            "max_steps": policy.get("maxSteps") or constraints.get("maxSteps") or DEFAULT_STEPS
        }
        if constraints.get("allowSelfModification") is True:
            found["proposals"] = True
        return found

    def _output(self, data: dict[str, Any]) -> dict[str, Any]:
        outputs = data.get("outputs")
        if isinstance(outputs, dict):
            return {"output": self._values(outputs)}
        if self._outputs:
            return {"output": {name: f"@{node}" for name, node in self._outputs.items()}}
        return {}

    # -- steps ---------------------------------------------------------------------------

    def _steps(
        self, steps: Any, prefix: str, level: Sequence, after: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Append steps one behind the other; ids say where they were: `step_0_then_1`."""
        if steps is not None and not isinstance(steps, list):
            self._losses.refuse(prefix, "Steps are a list.")
            steps = []
        for index, step in enumerate(steps or []):
            path = f"{prefix}_{index}"
            if not _is_known(step):
                self._losses.unknown_step(path, step, TYPES)
                continue
            after = self._step(step, path, level, after)
        return after

    def _step(
        self, step: dict[str, Any], path: str, level: Sequence, after: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        named = step.get("id") or step.get("name")
        node_id = self._ids.make(str(named) if named else path, path)
        convert = getattr(self, f"_{step['type']}")
        ends: list[dict[str, Any]] = convert(step, node_id, path, level, after)
        variable = step.get("outputVariable") or step.get("output_variable")
        if variable:
            self._outputs[str(variable)] = node_id
        return ends

    def _node(
        self, step: dict[str, Any], node_id: str, path: str, kind: str, config: dict[str, Any],
        known: tuple[str, ...],
    ) -> dict[str, Any]:  # fmt: skip
        self._losses.unknown(step, (*_COMMON, *known), path)
        node: dict[str, Any] = {"id": node_id, "type": kind, "config": config}
        if step.get("name") and step["name"] != node_id:
            node["title"] = step["name"]
        timeout = milliseconds(step.get("timeoutMs", step.get("timeout_ms")))
        if timeout is None and step.get("timeout") is not None:
            timeout = step["timeout"]
        if timeout is not None and kind != "approval":
            node["timeout"] = timeout
        return node

    def _bash(
        self, step: Any, node_id: str, path: str, level: Sequence, after: Any
    ) -> list[dict[str, Any]]:
        arguments = step.get("arguments") or {}
        given = {"command", "cwd", "timeout", "timeoutMs", "timeout_ms"}
        for name in arguments.keys() - given:
            self._losses.refuse(f"{path}.arguments.{name}", "A command has no such argument here.")
        step = {**{name: arguments[name] for name in arguments.keys() & given}, **step}
        if not step.get("command"):
            self._losses.refuse(path, "There is no command.")
        config = {"command": self._values(step.get("command", ""))}
        if "cwd" in step:
            config["cwd"] = self._values(step["cwd"])
        known = ("command", "cwd", "tool", "arguments")
        return level.add(self._node(step, node_id, path, "shell", config, known), after)

    def _tool(
        self, step: Any, node_id: str, path: str, level: Sequence, after: Any
    ) -> list[dict[str, Any]]:
        arguments = step.get("arguments", step.get("args", step.get("input", {})))
        if step.get("tool") == "bash":
            inner = {key: step[key] for key in step if key not in ("args", "input")}
            return self._bash({**inner, "arguments": arguments}, node_id, path, level, after)
        config = {"tool": step.get("tool"), "arguments": self._values(arguments)}
        known = ("tool", "arguments", "args", "input")
        return level.add(self._node(step, node_id, path, "tool", config, known), after)

    def _agent(
        self, step: Any, node_id: str, path: str, level: Sequence, after: Any
    ) -> list[dict[str, Any]]:
        content = step.get("content") or step.get("message") or step.get("goal") or ""
        kind = step["type"]
        config = {"instruction" if kind == "agent" else "message": self._values(content)}
        known = ["content", "message", "goal"]
        if kind == "agent_message":
            for theirs, ours in (
                ("interrupt", "interrupt"), ("await_response", "await_response"),
                ("await_timeout_ms", "await_timeout"),
            ):  # fmt: skip
                known.append(theirs)
                if theirs in step:
                    value = step[theirs]
                    config[ours] = milliseconds(value) if theirs.endswith("_ms") else value
        return level.add(self._node(step, node_id, path, kind, config, tuple(known)), after)

    _agent_message = _agent

    def _conditional(
        self, step: Any, node_id: str, path: str, level: Sequence, after: Any
    ) -> list[dict[str, Any]]:
        config = {"expression": self._condition(step.get("condition"), f"{path}.condition")}
        node = self._node(step, node_id, path, "condition", config, ("condition", "then", "else"))
        level.add(node, after)
        taken = [{"source": node_id, "condition": "true"}]
        other = [{"source": node_id, "condition": "false"}]
        return [
            *self._steps(step.get("then"), f"{path}_then", level, taken),
            *self._steps(step.get("else"), f"{path}_else", level, other),
        ]

    def _parallel(
        self, step: Any, node_id: str, path: str, level: Sequence, after: Any
    ) -> list[dict[str, Any]]:
        branches = []
        for index, inner in enumerate(step.get("steps") or []):
            body = Sequence()
            self._steps([inner], f"{path}_{index}", body, [])
            branches.append({"id": f"branch_{index}", **body.graph()})
        node = self._node(step, node_id, path, "parallel", {}, ("steps",))
        return level.add({**node, "branches": branches}, after)

    def _loop(
        self, step: Any, node_id: str, path: str, level: Sequence, after: Any
    ) -> list[dict[str, Any]]:
        over = step.get("over")
        if over is None:
            self._losses.refuse(path, "A loop has `over`: a list, or the name of one.")
            over = []
        if isinstance(over, str):
            over = self._reference(over)
        body = Sequence()
        self._steps(step.get("steps"), f"{path}_steps", body, [])
        node = self._node(step, node_id, path, "parallel", {}, ("over", "steps"))
        node["branches"] = [{"id": "body", **body.graph()}]
        node["for_each"] = {"items": self._values(over)}
        return level.add(node, after)

    def _approval(
        self, step: Any, node_id: str, path: str, level: Sequence, after: Any
    ) -> list[dict[str, Any]]:
        prompt = step.get("prompt") or step.get("message") or step.get("description") or node_id
        config: dict[str, Any] = {"prompt": self._values(prompt), "on_deny": "cancel"}
        timeout = milliseconds(step.get("timeoutMs", step.get("timeout_ms"))) or step.get("timeout")
        if timeout is not None:
            config["timeout"] = timeout
        default = step.get("defaultAction", step.get("default_action"))
        if default is not None:
            config["on_timeout"] = default
        known = ("prompt", "message", "defaultAction", "default_action")
        return level.add(self._node(step, node_id, path, "approval", config, known), after)

    def _subworkflow(
        self, step: Any, node_id: str, path: str, level: Sequence, after: Any
    ) -> list[dict[str, Any]]:
        config: dict[str, Any] = {"definition": slug(str(step.get("workflow", "")))}
        given = step.get("variables", step.get("input"))
        if given is not None:
            config["input"] = self._values(given)
        known = ("workflow", "variables", "input")
        return level.add(self._node(step, node_id, path, "run", config, known), after)

    # -- values and conditions -----------------------------------------------------------

    def _values(self, value: Any) -> Any:
        """The value with its references said our way."""
        if isinstance(value, str):
            return _BRACES.sub(lambda match: "{{" + self._path(match[1]) + "}}", value)
        if isinstance(value, dict):
            return {key: self._values(each) for key, each in value.items()}
        return [self._values(each) for each in value] if isinstance(value, list) else value

    def _path(self, written: str) -> str:
        path = _VARIABLE.sub("input.", written.strip())
        return _OUTPUT.sub(lambda match: f"step.{self._set_by(match[1])}.output", path)

    def _set_by(self, variable: str) -> str:
        return self._outputs.get(variable, variable)

    def _reference(self, name: str) -> str:
        """A reference to a variable that is called by its name."""
        first, dot, rest = name.removeprefix("variables.").removeprefix("outputs.").partition(".")
        root = f"step.{self._outputs[first]}.output" if first in self._outputs else f"input.{first}"
        return f"@{root}{dot}{rest}"

    def _condition(self, condition: Any, path: str) -> Any:
        if isinstance(condition, bool):
            return str(condition).lower()
        if isinstance(condition, str) and condition.strip():
            text = condition.strip()
            if inner := _BRACES.fullmatch(text):
                text = inner[1].strip()
            if _PLAIN.fullmatch(text) and text not in ("true", "false"):
                return {"ref": self._reference(text)}
            text = _VARIABLE.sub("input.", text)
            return _OUTPUT.sub(lambda match: f"steps.{self._set_by(match[1])}.output", text)
        if isinstance(condition, dict) and isinstance(condition.get("variable"), str):
            found: dict[str, Any] = {"ref": self._reference(condition["variable"])}
            written = {key: condition[key] for key in condition if key != "variable"}
            if written.keys() == {"operator", "value"}:
                written = {str(written["operator"]): written["value"]}
            if written.keys() <= _OPERATORS.keys():
                return found | {_OPERATORS[key]: value for key, value in written.items()}
        self._losses.refuse(path, f"The condition {condition!r:.100} is not known.")
        return "false"

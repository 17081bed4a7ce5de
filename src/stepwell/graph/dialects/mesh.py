"""Steps wired by references: each has a name, an action and an input; order comes from `@name`."""

from __future__ import annotations

import re
from typing import Any

from stepwell.graph.dialects.conversion import Ids, Losses, milliseconds, slug

NAME = "reference steps"
_DOCUMENT = (
    "id", "title", "name", "description", "steps", "tags", "input_schema", "inputSchema",
    "timeoutMs", "timeout_ms",
)  # fmt: skip
_STEP = ("name", "description", "action", "input", "when", "forEach", "config", "outputSchema")
_ACTION = ("toolName", "code", "return", "transformCode", "connectionId")
_CONFIG = ("maxAttempts", "backoffMs", "timeoutMs")
_REFERENCE = re.compile(r"(?<![\w@])@([A-Za-z_][\w-]*)")


def recognises(data: Any) -> bool:
    steps = data.get("steps") if isinstance(data, dict) else None
    return (
        isinstance(steps, list)
        and bool(steps)
        and all(
            isinstance(step, dict) and "name" in step and isinstance(step.get("action"), dict)
            for step in steps
        )
    )


def convert(data: dict[str, Any], losses: Losses) -> dict[str, Any]:
    """The document in the language of this system."""
    losses.unknown(data, _DOCUMENT, "")
    title = str(data.get("title") or data.get("name") or "imported")
    found: dict[str, Any] = {
        "name": slug(str(data.get("id") or title)), "title": title, "refs": "lenient",
    }  # fmt: skip
    for key in ("description", "tags"):
        if data.get(key):
            found[key] = data[key]
    inputs = data.get("inputSchema", data.get("input_schema"))
    if isinstance(inputs, dict):
        found["inputs"] = inputs
    if timeout := milliseconds(data.get("timeoutMs", data.get("timeout_ms"))):
        found["policy"] = {"timeout": timeout}
    converter = _Converter(losses, data["steps"])
    found["nodes"] = [
        node for index, step in enumerate(data["steps"]) for node in converter.step(step, index)
    ]
    return found


class _Converter:
    def __init__(self, losses: Losses, steps: list[dict[str, Any]]) -> None:
        self._losses = losses
        self._ids = Ids(losses)
        self._names = {
            str(step["name"]): self._ids.make(str(step["name"]), f"steps[{index}].name")
            for index, step in enumerate(steps)
        }

    def step(self, step: dict[str, Any], index: int) -> list[dict[str, Any]]:
        """The nodes of a step: one, or two where the answer of a tool is transformed."""
        path = f"steps[{index}]"
        self._losses.unknown(step, _STEP, path)
        if "outputSchema" in step:
            self._losses.add(f"{path}.outputSchema", "Outputs are not checked against a schema.")
        node: dict[str, Any] = {"id": self._names[str(step["name"])]}
        if step.get("description"):
            node["title"] = step["description"]
        if step.get("when") is not None:
            node["when"] = self._values(step["when"])
        if step.get("forEach") is not None:
            node["for_each"] = self._for_each(step["forEach"], f"{path}.forEach")
        node |= self._settings(step.get("config") or {}, f"{path}.config")
        return self._action(node, step, f"{path}.action")

    def _action(
        self, node: dict[str, Any], step: dict[str, Any], path: str
    ) -> list[dict[str, Any]]:
        action = step["action"]
        self._losses.unknown(action, _ACTION, path)
        given = self._values({} if step.get("input") is None else step["input"])
        if action.get("return"):
            return [{**node, "type": "return", "config": {"value": given}}]
        if "code" in action:
            return [{**node, **_code(action["code"], given)}]
        if "toolName" not in action:
            self._losses.refuse(path, "An action has a toolName, code or return; this has none.")
            return [{**node, "type": "transform", "config": {"value": given}}]
        config: dict[str, Any] = {"tool": action["toolName"], "arguments": given}
        if "connectionId" in action:
            config["server"] = action["connectionId"]
        if "transformCode" not in action:
            return [{**node, "type": "tool", "config": config}]
        # What refers to the step means what the transformation makes of the tool's answer.
        call = self._ids.make(f"{node['id']}_call", path)
        raw = {**node, "id": call, "type": "tool", "config": config}
        shaped: dict[str, Any] = {"id": node["id"], **_code(action["transformCode"], f"@{call}")}
        if "for_each" in node:
            shaped["for_each"] = {**node["for_each"], "items": f"@{call}", "as": "item"}
            shaped["config"]["input"] = "@item"
        if "when" in node:  # there is nothing to transform if the tool was not called
            shaped["when"] = node["when"]
        return [raw, shaped]

    def _for_each(self, each: Any, path: str) -> dict[str, Any]:
        if isinstance(each, str):
            return {"items": self._values(each)}
        self._losses.unknown(each, ("ref", "items", "concurrency", "maxItems"), path)
        found: dict[str, Any] = {"items": self._values(each.get("ref", each.get("items")))}
        for theirs, ours in (("concurrency", "concurrency"), ("maxItems", "max_items")):
            if theirs in each:
                found[ours] = each[theirs]
        return found

    def _settings(self, config: dict[str, Any], path: str) -> dict[str, Any]:
        self._losses.unknown(config, _CONFIG, path)
        found: dict[str, Any] = {}
        if timeout := milliseconds(config.get("timeoutMs")):
            found["timeout"] = timeout
        if "maxAttempts" in config:
            found["retry"] = {"attempts": config["maxAttempts"]}
            if backoff := milliseconds(config.get("backoffMs")):
                found["retry"]["base"] = backoff
        return found

    def _values(self, value: Any) -> Any:
        """The value with references to steps by the ids that they have now."""
        if isinstance(value, str):
            return _REFERENCE.sub(lambda m: f"@{self._names.get(m[1], m[1])}", value)
        if isinstance(value, dict):
            return {key: self._values(each) for key, each in value.items()}
        return [self._values(each) for each in value] if isinstance(value, list) else value


def _code(code: str, given: Any) -> dict[str, Any]:
    return {"type": "code", "config": {"language": "javascript", "code": code, "input": given}}

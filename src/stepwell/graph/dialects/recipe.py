"""Recipes: commands, tasks, pauses and gates, strictly one after the other."""

from __future__ import annotations

from typing import Any

from stepwell.graph.dialects.conversion import Ids, Losses, Sequence, any_step, slug

NAME = "recipe"
# For each type of step: the type of node, and which field becomes which.
_STEPS: dict[str, tuple[str, dict[str, str]]] = {
    "run_command": ("shell", {"command": "command"}),
    "dispatch_task": ("task", {"instruction": "instructions"}),
    "sleep": ("delay", {"seconds": "duration", "duration": "duration"}),
    "human_gate": ("approval", {"prompt": "prompt"}),
}
_DOCUMENT = ("id", "type", "name", "title", "description", "steps", "schedule", "tags")


def recognises(data: Any) -> bool:
    return any_step(data, _is_known)


def _is_known(step: Any) -> bool:
    return isinstance(step, dict) and step.get("type") in _STEPS


def convert(data: dict[str, Any], losses: Losses) -> dict[str, Any]:
    """The document in the language of this system."""
    losses.unknown(data, _DOCUMENT, "")
    title = str(data.get("title") or data.get("name") or "imported")
    found: dict[str, Any] = {"name": slug(str(data.get("name") or title)), "title": title}
    for key in ("description", "tags"):
        if data.get(key):
            found[key] = data[key]
    if data.get("schedule"):
        found["triggers"] = [{"id": "schedule", "type": "schedule", "cron": data["schedule"]}]
    ids, level, after = Ids(losses), Sequence(), list[dict[str, Any]]()
    for index, step in enumerate(data["steps"]):
        path = f"steps[{index}]"
        if not _is_known(step):
            losses.unknown_step(path, step, _STEPS)
            continue
        kind, fields = _STEPS[step["type"]]
        losses.unknown(step, ("type", "id", "name", *fields), path)
        named = step.get("id") or step.get("name")
        node_id = ids.make(str(named) if named else f"{step['type']}_{index}", path)
        config = {ours: step[theirs] for theirs, ours in fields.items() if theirs in step}
        if lines := str(config.get("instructions", "")).splitlines():
            config = {"title": lines[0], **config}
        after = level.add({"id": node_id, "type": kind, "config": config}, after)
    return {**found, **level.graph()}

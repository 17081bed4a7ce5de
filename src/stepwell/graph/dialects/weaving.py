"""Steps of formulas put together: parents, expansions in the place of a step, aspects around it."""

from __future__ import annotations

import fnmatch
import re
from typing import Any

_TARGET = re.compile(r"\{target(?:\.(\w+))?\}")


def merged(parent: dict[str, Any], child: dict[str, Any]) -> dict[str, Any]:
    found = {**parent, **child}
    if parent.get("vars") or child.get("vars"):
        found["vars"] = {**(parent.get("vars") or {}), **(child.get("vars") or {})}
    own = {step.get("id"): step for step in child.get("steps") or []}
    inherited = [own.pop(step.get("id"), step) for step in parent.get("steps") or []]
    if inherited or own:
        found["steps"] = [*inherited, *own.values()]
    return found


def replaced(
    steps: list[dict[str, Any]], place: int, template: list[dict[str, Any]], given: dict[str, Any]
) -> list[dict[str, Any]]:
    """The steps with one of them replaced by those of a template."""
    target = steps[place]

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            text = _TARGET.sub(lambda m: str(target.get(m[1] or "id", "")), value)
            return re.sub(r"\{(\w+)\}", lambda m: str(given[m[1]]) if m[1] in given else m[0], text)
        if isinstance(value, list):
            return [filled(each) for each in value]
        return value

    inner = [{key: filled(value) for key, value in each.items()} for each in template]
    own = {each["id"] for each in inner}
    needed = {need for each in inner for need in each.get("needs") or []}
    for each in inner:  # what begins the expansion needs what the target needed
        if not own & set(each.get("needs") or []):
            each["needs"] = [*(each.get("needs") or []), *(target.get("needs") or [])]
    ends = [each["id"] for each in inner if each["id"] not in needed]
    result = []
    for step in [*steps[:place], *inner, *steps[place + 1 :]]:
        needs = step.get("needs") or []
        if target["id"] in needs and step not in inner:
            others = [need for need in needs if need != target["id"]]
            step = {**step, "needs": [*others, *ends]}
        result.append(step)
    return result


def woven(steps: list[dict[str, Any]], advice: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps with what is to come before and after those that a pattern names."""
    for rule in advice:
        around = rule.get("around") or {}
        before = [*_listed(around.get("before")), *_listed(rule.get("before"))]
        after = [*_listed(rule.get("after")), *_listed(around.get("after"))]
        for target in [s for s in steps if fnmatch.fnmatch(str(s["id"]), str(rule.get("target")))]:
            steps = _surrounded(steps, str(target["id"]), before, after)
    return steps


def _listed(value: Any) -> list[dict[str, Any]]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _surrounded(
    steps: list[dict[str, Any]], target: str, before: list[dict[str, Any]],
    after: list[dict[str, Any]],
) -> list[dict[str, Any]]:  # fmt: skip
    def named(template: dict[str, Any], suffix: str) -> dict[str, Any]:
        text = {
            k: _STEP_NAME.sub(target, v) if isinstance(v, str) else v for k, v in template.items()
        }
        return {**text, "id": text.get("id") or f"{target}-{suffix}"}

    result: list[dict[str, Any]] = []
    for step in steps:
        if step["id"] == target:
            chain = list(step.get("needs") or [])
            for each in (named(one, "before") for one in before):
                result.append({**each, "needs": chain})
                chain = [each["id"]]
            result.append({**step, "needs": chain})
            last = target
            for each in (named(one, "after") for one in after):
                result.append({**each, "needs": [last]})
                last = each["id"]
        elif target in (step.get("needs") or []) and after:
            ends = named(after[-1], "after")["id"]
            needs = [ends if need == target else need for need in step["needs"]]
            result.append({**step, "needs": needs})
        else:
            result.append(step)
    return result


_STEP_NAME = re.compile(r"\{step(?:\.id)?\}|\{target\}")

"""What references see: the input, the results of steps so far, the item at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stepwell.errors import MissingPath

Key = str | int


class StepView(msgspec.Struct, frozen=True):
    """A step that has ended, as references and conditions see it."""

    status: str
    output: Any = None
    error: Any = None

    @property
    def is_null(self) -> bool:
        """Whether everything below its output is null: it was skipped, or its failure tolerated."""
        return self.status != "completed"


class Scope:
    """Values by root, and steps by id; a body sees its own first, then those around it."""

    def __init__(
        self, values: Mapping[str, Any], parent: Scope | None = None, *, lenient: bool = False
    ) -> None:
        self._values = values
        self._parent = parent
        self._lenient: bool = lenient if parent is None else parent._lenient
        self.steps: dict[str, StepView] = {}

    def step(self, step_id: str) -> StepView | None:
        """The step of that id, here or around."""
        scope: Scope | None = self
        while scope is not None:
            if (found := scope.steps.get(step_id)) is not None:
                return found
            scope = scope._parent
        return None

    def has(self, root: str) -> bool:
        return root in self._values or (self._parent is not None and self._parent.has(root))

    def value(self, root: str) -> Any:
        """The value of a root that is there."""
        if root in self._values:
            return self._values[root]
        assert self._parent is not None, root
        return self._parent.value(root)

    def look_up(
        self, root: str, path: tuple[Key, ...], text: str, default: msgspec.Raw | None
    ) -> Any:
        """The value at a path; raises MissingPath if there is none, and no default."""
        if root == "steps":
            step = self.step(str(path[0]))
            if step is None:
                return None  # it never came to be: a branch that was left early
            part = str(path[1])
            if part == "output" and step.is_null:
                return None
            value, rest = getattr(step, part), path[2:]
            if part == "error" and value is None:
                return None
        else:
            value, rest = self.value(root), path
        for position, key in enumerate(rest):
            found, value = _down(value, key)
            if not found:
                if default is not None:
                    return msgspec.json.decode(default)
                if self._lenient:
                    return None
                if root == "secrets":
                    raise MissingPath(
                        f"{text} is missing: there is no secret {key!r}. Store it: `stepwell "
                        f"secrets set {key}`.",
                        path=text,
                    )
                raise MissingPath(_missing(text, rest[:position], key, value), path=text)
        return value


def _down(value: Any, key: Key) -> tuple[bool, Any]:
    """One segment down: whether it is there, and what it is; or what was there instead."""
    if isinstance(value, dict):
        name = str(key)
        return (True, value[name]) if name in value else (False, value)
    if isinstance(value, list) and (isinstance(key, int) or key.isdigit()):
        index = int(key)
        return (True, value[index]) if index < len(value) else (False, value)
    return False, value


def _missing(text: str, before: tuple[Key, ...], key: Key, value: Any) -> str:
    where = f" at {'.'.join(map(str, before))!r}" if before else ""
    if isinstance(value, dict):
        names = ", ".join(sorted(map(str, value))[:10])
        there = f", only {names}" if names else ": nothing is there"
        return f"{text} is missing: there is no {key!r}{where}{there}."
    if isinstance(value, list):
        return f"{text} is missing: the list{where} has {len(value)} items, and no {key!r}."
    kind = "null" if value is None else f"a {type(value).__name__}"
    return f"{text} is missing: what is{where or ' there'} is {kind}, which has no {key!r}."

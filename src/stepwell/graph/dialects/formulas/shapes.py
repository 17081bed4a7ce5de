"""What formulas are written as, read with care: every value may have any form but the right one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from stepwell.graph.dialects.conversion import Losses
from stepwell.graph.reading import MAX_CHARACTERS
from stepwell.kernel.names import show

# Fields of a step that say what happens, in ways that nothing here is like.
_REFUSED = (
    "decision", "check", "retry", "drain", "ralph", "embed", "run", "script", "for_each", "steps",
)  # fmt: skip
# Known fields that are read, and those that change nothing here: what needs nothing runs beside
# the others anyway, and a step with children is the epic that its type says.
_STEP = (
    "id", "title", "description", "notes", "acceptance", "acceptance_criteria", "assignee",
    "needs", "depends_on", "waits_for", "condition", "gate", "loop", "on_complete", "children",
    "expand", "expand_vars", "parallel",
)  # fmt: skip
_PLAIN_TYPES = ("", "task")
_GROUP_TYPES = ("", "task", "epic", "parallel")


class TooMuch(ValueError):
    """A formula would become more than anybody wants."""


class Loop(msgspec.Struct):
    """How often the body of a step is repeated."""

    path: str
    fields: dict[str, Any]
    body: list[Step]


class Step(msgspec.Struct):
    """A step of a formula."""

    id: str
    # Where it stands, for messages.
    path: str
    title: str = ""
    description: str = ""
    acceptance: str = ""
    assignee: str = ""
    type: str = ""
    labels: list[str] = []
    needs: list[str] = []
    waits_for: str = ""
    condition: str = ""
    expand: str = ""
    expand_vars: dict[str, str] = {}
    gate: dict[str, Any] = {}
    on_complete: dict[str, Any] = {}
    loop: Loop | None = None
    children: list[Step] = []

    def inner(self) -> list[Step]:
        """The steps inside of this one."""
        return self.loop.body if self.loop else self.children


class Shapes:
    """Reads values as what they should be; what is something else is refused by its path."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._grown = 0

    def text(self, value: Any, path: str) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        if isinstance(value, int | float):
            return str(value).lower() if isinstance(value, bool) else str(value)
        return str(self._wrong(path, value, "a text", ""))

    def texts(self, value: Any, path: str) -> list[str]:
        """A list of texts; one that stands alone is a list of one."""
        if value is None or isinstance(value, str):
            return [value] if value else []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            return list(self._wrong(path, value, "a list of texts", []))
        return list(dict.fromkeys(value))

    def table(self, value: Any, path: str) -> dict[str, Any]:
        if value is None or isinstance(value, dict):
            return value or {}
        return dict(self._wrong(path, value, "a table", {}))

    def tables(self, value: Any, path: str) -> list[dict[str, Any]]:
        """A list of tables; one that stands alone is a list of one."""
        if value is None or isinstance(value, dict):
            return [value] if value else []
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            return list(self._wrong(path, value, "a list of tables", []))
        return value

    def values(self, value: Any, path: str) -> dict[str, str]:
        """Texts by their names."""
        found = self.table(value, path)
        return {str(key): self.text(each, f"{path}.{key}") for key, each in found.items()}

    def steps(self, value: Any, path: str) -> list[Step]:
        found = self.tables(value, path)
        return [self.step(each, f"{path}[{index}]") for index, each in enumerate(found)]

    def step(self, data: dict[str, Any], path: str) -> Step:
        self._rest(data, path)

        def text(key: str) -> str:
            return self.text(data.get(key), f"{path}.{key}")

        own = text("id")
        if not own:
            self._losses.refuse(f"{path}.id", "A step needs an id.")
        if data.get("loop") and data.get("children"):
            self._losses.refuse(f"{path}.children", "A step has children or a loop, not both.")
        needs = [*self.texts(data.get("needs"), f"{path}.needs"),
                 *self.texts(data.get("depends_on"), f"{path}.depends_on")]  # fmt: skip
        prose = "\n\n".join(filter(None, (text("description"), text("notes"))))
        return Step(
            own, path, text("title"), prose,
            text("acceptance") or text("acceptance_criteria"), text("assignee"), text("type"),
            self.texts(data.get("labels"), f"{path}.labels"), list(dict.fromkeys(needs)),
            text("waits_for"), text("condition").strip(), text("expand"),
            self.values(data.get("expand_vars"), f"{path}.expand_vars"),
            self.table(data.get("gate"), f"{path}.gate"),
            self.table(data.get("on_complete"), f"{path}.on_complete"),
            self._loop(data.get("loop"), f"{path}.loop"),
            self.steps(data.get("children"), f"{path}.children"),
        )  # fmt: skip

    def filled(self, text: str, pattern: re.Pattern[str], value: Callable[[Any], str]) -> str:
        """A text with something else in the place of what a pattern finds.

        Texts that are put into each other can grow beyond all bounds, so that they are measured
        before they are made.
        """
        found = [value(match) for match in pattern.finditer(text)]
        self._grown += sum(map(len, found))
        if self._grown > MAX_CHARACTERS:
            raise TooMuch(f"Its texts would grow beyond {MAX_CHARACTERS:,} characters.")
        rest = iter(found)
        return pattern.sub(lambda _: next(rest), text)

    def _loop(self, value: Any, path: str) -> Loop | None:
        if not (fields := self.table(value, path)):
            return None
        body = self.steps(fields.get("body"), f"{path}.body")
        if not body:
            self._losses.refuse(path, "A loop needs a body of at least one step.")
        return Loop(path, fields, body)

    def _rest(self, data: dict[str, Any], path: str) -> None:
        """Report the fields of a step that nothing is made of."""
        for key in _REFUSED:
            if data.get(key):
                self._losses.refuse(
                    f"{path}.{key}", f"{key!r} says what happens, and has no counterpart here."
                )
        silent = _GROUP_TYPES if data.get("children") else _PLAIN_TYPES
        known = (*_STEP, *_REFUSED, *(("type",) if data.get("type", "") in silent else ()))
        self._losses.unknown(data, known, path)

    def _wrong(self, path: str, value: Any, wanted: str, instead: Any) -> Any:
        self._losses.refuse(path, f"This must be {wanted}, not {show(value)}.")
        return instead

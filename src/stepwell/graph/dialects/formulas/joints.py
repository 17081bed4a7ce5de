"""How the steps of one level hang together: what each needs, and where it begins and ends."""

from __future__ import annotations

import re
from typing import Any

from stepwell.graph.dialects.conversion import Losses
from stepwell.graph.dialects.formulas.shapes import Step

_CHILDREN = re.compile(r"children-of\((.+)\)")
_TURN = re.compile(r"\.iter\d+\.")


# Who needs something, and what it is called.
Need = tuple[str, str]


class Joints:
    """Collects the steps of a level, and then says which edges there are between them.

    Steps need others wherever these stand. An edge cannot go into a group of steps, nor out of
    one: what a step inside needs is what the group needs, and who needs one inside waits for all.
    """

    def __init__(self, steps: list[Step], losses: Losses) -> None:
        self._losses = losses
        self._steps: list[tuple[Step, list[Need]]] = []
        self._first: dict[str, str] = {}
        # Where a step is done, and where also that is done which it bonded on.
        self._done: dict[str, str] = {}
        self._last: dict[str, str] = {}
        self._groups = {name: step.id for step in steps for name in _inside(step)}
        self._conditional = {step.id for step in steps if step.condition}
        self.outside: list[Need] = []

    def add(
        self, step: Step, nodes: list[dict[str, Any]], node_id: str, outside: list[Need]
    ) -> None:
        self._steps.append((step, outside))
        self._first[step.id], self._last[step.id] = nodes[0]["id"], nodes[-1]["id"]
        self._done[step.id] = node_id

    def edges(self) -> list[dict[str, Any]]:
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for step, outside in self._steps:
            for need in step.needs:
                self._connect(step, (step.id, need), self._done, found)
            for who, need in outside:
                if self._connect(step, (who, need), self._done, found):
                    self._losses.add(
                        step.path, f"All of {step.id!r} waits for {need!r}, which {who!r} needs."
                    )
            if step.waits_for:
                self._wait(step, found)
        return list(found.values())

    def _connect(
        self, step: Step, wanted: Need, ends: dict[str, str], found: dict[tuple[str, str], Any]
    ) -> bool:
        need = wanted[1]
        name = self._named(need)
        if name is None:
            self.outside.append(wanted)
            return False
        if name == step.id:
            self._losses.refuse(f"{step.path}.needs", f"{step.id!r} needs itself, as {need!r}.")
            return False
        if name != need:
            self._losses.add(step.path, f"{step.id!r} waits for all of {name!r}, not for {need!r}.")
        edge = {"source": ends[name], "target": self._first[step.id]}
        # Who needs a step that is left out goes on without it.
        more = {"on_skip": "continue"} if name in self._conditional else {}
        found[edge["source"], edge["target"]] = {**edge, **more}
        return True

    def _named(self, need: str) -> str | None:
        """The step of this level that is needed, or the one inside of which that is."""
        if need in self._done:
            return need
        return self._groups.get(_TURN.sub(".iter.", need)) or self._groups.get(need)

    def _wait(self, step: Step, found: dict[tuple[str, str], Any]) -> None:
        """Wait for what another step has bonded on, not only for itself."""
        path = f"{step.path}.waits_for"
        named = _CHILDREN.fullmatch(step.waits_for)
        if named is None and step.waits_for != "all-children":
            self._losses.refuse(path, f"Nothing here waits for {step.waits_for!r}.")
            return
        need = named[1] if named else next(iter(step.needs), None)
        if need is None:
            self._losses.refuse(path, "It does not say whose children it waits for.")
            return
        name = self._named(need)
        if name is not None and self._last[name] == self._done[name] and not any(
            each.inner() for each, _ in self._steps if each.id == name
        ):  # fmt: skip
            self._losses.add(path, f"{need!r} has no children here; it is waited for itself.")
        self._connect(step, (step.id, need), self._last, found)


def _inside(step: Step) -> list[str]:
    """The names by which steps inside of a step are needed from outside."""
    found = []
    for each in step.inner():
        names = [each.id, *_inside(each)]
        found += [f"{step.id}.iter.{name}" for name in names] if step.loop else names
    return found

"""What all dialects convert into, and what they share: losses, ids, chains of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from stepwell.graph.definition import RESERVED, id_of, slug_of
from stepwell.graph.problems import Severity
from stepwell.kernel.names import show

# The text of a sibling document by its name, if there is one.
Load = Callable[[str], str | None]


# Fields by which others say that something is not always done, and what means that it is; names
# without what separates their words.
_GUARDS = {
    **dict.fromkeys(("if", "when", "condition", "runif", "onlyif", "enabled"), True),
    **dict.fromkeys(("unless", "disabled", "skip", "skipif"), False),
}
# Fields by which they say what there is to do, and in which order.
_STRUCTURE = frozenset(
    {"steps", "children", "branches", "body", "then", "else", "iftrue", "iffalse", "loop", "gate",
     "gates", "foreach", "expand", "oncomplete", "needs", "dependson", "waitsfor", "after",
     "before", "branch", "pointcuts"}
)  # fmt: skip
_TYPES = {"int": "integer", "bool": "boolean", "float": "number", "str": "string",
          "list": "array", "dict": "object"}  # fmt: skip


class Loss(msgspec.Struct, frozen=True):
    """Something that could not be carried over."""

    path: str
    message: str
    # Whether what is left means something else, so that nobody should execute it.
    severity: Severity = "warning"


class Losses:
    """Collects losses."""

    def __init__(self) -> None:
        self.found: list[Loss] = []

    def add(self, path: str, message: str) -> None:
        self.found.append(Loss(path, message))

    def refuse(self, path: str, message: str) -> None:
        """Report what cannot be done without."""
        self.found.append(Loss(path, message, "error"))

    def unknown_step(self, path: str, step: Any, known: Iterable[str]) -> None:
        """Report a step that nothing can be made of: without it, the rest means something else."""
        kind = step.get("type") if isinstance(step, dict) else None
        what = f"There is no step of the type {show(kind)}" if kind else "This is no step"
        self.refuse(path, f"{what}; there are {', '.join(sorted(known))}.")

    def unknown(self, data: Mapping[str, Any], known: tuple[str, ...], path: str) -> None:
        """Report the fields of a mapping that nothing is made of."""
        for key, value in data.items():
            where = f"{path}.{key}" if path else key
            plain = str(key).lower().replace("_", "").replace("-", "")
            if key in known:
                continue
            if plain in _GUARDS and value not in (None, _GUARDS[plain]) and path:
                self.refuse(where, f"{key!r} says when this happens, and has no counterpart here.")
            elif plain in _STRUCTURE and value:
                self.refuse(where, f"{key!r} says what happens, and has no counterpart here.")
            else:
                self.add(where, f"{key!r} has no counterpart and was left out.")


def any_step(data: Any, is_known: Callable[[Any], bool]) -> bool:
    """Whether this has a list of steps, of which at least one is known."""
    steps = data.get("steps") if isinstance(data, dict) else None
    return isinstance(steps, list) and any(map(is_known, steps))


class Ids:
    """Ids that are unique over a definition, made of whatever things are called elsewhere."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._taken: set[str] = set()

    def make(self, wanted: str, path: str) -> str:
        """The name itself if it may be an id, else one close to it."""
        base = id_of(wanted) or "step"
        found, number = base, 2
        while found in self._taken or found in RESERVED:
            found, number = f"{base}_{number}", number + 1
        self._taken.add(found)
        if found != wanted:
            self._losses.add(path, f"{wanted!r} is called {found!r} here.")
        return found


class Sequence:
    """Nodes and edges of one level, put together in the order in which they were written."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[dict[str, Any]] = []

    def add(self, node: dict[str, Any], after: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Append a node behind these ends; the ends that the next one comes behind."""
        self.nodes.append(node)
        self.edges += [{**end, "target": node["id"]} for end in after]
        return [{"source": node["id"]}]

    def graph(self) -> dict[str, Any]:
        return {"nodes": self.nodes, **({"edges": self.edges} if self.edges else {})}


def slug(text: str) -> str:
    """A name for a definition."""
    return slug_of(text) or "imported"


def milliseconds(value: Any) -> str | None:
    """A duration given in milliseconds, as one that people can read; texts say their unit."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return None
    return f"{value / 1000:g}s" if value % 1000 == 0 else f"{value:g}ms"


def schema_of(variables: Any, path: str, losses: Losses) -> dict[str, Any] | None:
    """A JSON Schema of variables: names with a default, or with a description of them."""
    if not isinstance(variables, dict) or not variables:
        return None
    properties: dict[str, Any] = {}
    required = []
    for name, spec in variables.items():
        if not isinstance(spec, dict):
            properties[name] = {"default": spec}
            continue
        losses.unknown(spec, _VARIABLE, f"{path}.{name}")
        properties[name] = {
            key: spec[key] for key in ("type", "description", "default", "enum", "pattern")
            if key in spec
        }  # fmt: skip
        if isinstance(kind := spec.get("type"), str):
            properties[name]["type"] = _TYPES.get(kind, kind)
        if spec.get("required") is True and "default" not in spec:
            required.append(name)
    found: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        found["required"] = required
    return found


_VARIABLE = ("type", "description", "default", "enum", "pattern", "required")

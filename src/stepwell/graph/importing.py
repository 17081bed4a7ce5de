"""Reading a document in whichever language it is written."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from stepwell.graph.dialects import formula, mesh, recipe, step_list
from stepwell.graph.dialects.conversion import Load, Loss, Losses
from stepwell.graph.problems import Problems
from stepwell.graph.reading import MAX_CHARACTERS, read
from stepwell.kernel.names import show

# Each part of a dotted key is looked up from the start.
_LONG_KEY = re.compile(r"(?<![\w-])(?:[\w-]++\s*+\.\s*+){100}")
# What a document of this system's own language is called.
OWN = "stepwell"


class Imported(msgspec.Struct):
    """A document in the language of this system, and what did not fit into it."""

    document: Any
    dialect: str
    losses: list[Loss]
    # The line on which each part of the text begins, where it is the text itself that was read.
    lines: Mapping[str, int]


def import_text(text: str, load: Load, problems: Problems) -> Imported | None:
    """Read a text and convert it; None, and a problem, if nobody knows what it is."""
    data, lines = _data(text, problems)
    if not problems.ok:
        return None
    if isinstance(data, dict) and "nodes" in data:
        return Imported(data, OWN, [], lines)
    for dialect in (formula, mesh, recipe, step_list):
        if _recognised(dialect, data):
            return _converted(dialect, data, load, problems)
    has = _shape(data)
    problems.error(
        "", "not_a_definition",
        f"This is neither a definition nor anything that becomes one{has}.",
        "A definition has a name and nodes; step lists, reference steps, recipes and formulas "
        "are converted.",
    )  # fmt: skip
    return None


def _shape(data: Any) -> str:
    """What can be said about data that nobody knows: what it has instead of nodes."""
    if not isinstance(data, dict) or not data:
        return ""
    steps = data.get("steps")
    if isinstance(steps, list):
        kinds = sorted({str(each.get("type")) for each in steps if isinstance(each, dict)})
        return f": its steps are of the types {show(', '.join(kinds[:5]))}" if kinds else ""
    return f": it has {show(', '.join(sorted(map(str, data))[:5]))}"


def _recognised(dialect: Any, data: Any) -> bool:
    try:
        return bool(dialect.recognises(data))
    except (TypeError, AttributeError, LookupError, ValueError):
        return False


def _converted(dialect: Any, data: Any, load: Load, problems: Problems) -> Imported | None:
    """What a dialect makes of data; something in it may have any form but the right one."""
    losses = Losses()
    try:
        more = (load,) if dialect is formula else ()
        return Imported(dialect.convert(data, losses, *more), dialect.NAME, losses.found, {})
    except (TypeError, AttributeError, LookupError, ValueError, RecursionError) as error:
        problems.error(
            "", "bad_document",
            f"This looks like a {dialect.NAME}, but some part of it has another form than it "
            f"should: {str(error)[:200]}.",
        )  # fmt: skip
        return None


def _data(text: str, problems: Problems) -> tuple[Any, Mapping[str, int]]:
    if len(text) <= MAX_CHARACTERS and _looks_like_toml(text):
        try:
            if _LONG_KEY.search(text):
                raise ValueError("a key has more than 100 parts")
            return tomllib.loads(text), {}
        except (ValueError, RecursionError) as error:
            problems.error("", "unreadable", f"The document cannot be read: {error}.")
            return None, {}
    reading = read(text, problems)
    return (None, {}) if reading is None else (reading.data, reading.lines)


def _looks_like_toml(text: str) -> bool:
    """Whether the first line that says something is one of TOML's."""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            before, equals, _ = stripped.partition("=")
            table = (
                stripped.startswith("[") and stripped.endswith("]") and not stripped[1:2].isdigit()
            )
            return (
                bool(equals) and before.strip().replace("_", "").replace("-", "").isalnum()
            ) or (table and stripped.strip("[]").replace(".", "").replace("_", "").isalnum())
    return False

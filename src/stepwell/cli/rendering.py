"""Results of operations for people: a table for a list, a line for each field otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from stepwell.cli.output import compact, cut, moment, table

# What is wider than a screen is no table any more.
MOST_COLUMNS = 7


def lines_of(shown: Mapping[str, Any]) -> list[str]:
    """A result as surfaces show it, as lines."""
    items = shown.get("items")
    if not isinstance(items, list):
        return _fields(shown)
    lines = _rows(items) if items else ["None."]
    if more := shown.get("next_cursor"):
        lines.append(f"More: --cursor {more}")
    return lines


def _fields(record: Mapping[str, Any]) -> list[str]:
    if len(record) == 1:
        [value] = record.values()
        return [value if isinstance(value, str) else compact(value)]
    width = max(map(len, record), default=0)
    return [f"{name.ljust(width)}  {_text(value)}".rstrip() for name, value in record.items()]


def _rows(items: Sequence[Any]) -> list[str]:
    if not all(isinstance(each, Mapping) for each in items):
        return [_text(each) for each in items]
    # What tells nothing, being empty everywhere, or what fills the screen, is left to --json.
    names = [
        name
        for name in items[0]
        if any(each.get(name) not in (None, "", [], {}) for each in items)
        and not any(isinstance(each.get(name), Mapping | list) for each in items)
    ][:MOST_COLUMNS]
    heads = [name.removesuffix("_at").replace("_", " ") for name in names]
    return table(heads, [[cut(_text(each.get(name))) for name in names] for each in items])


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return moment(value)
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else compact(value)

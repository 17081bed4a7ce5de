"""What commands write: JSON documents for programs, tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

WIDEST = 60


def emit(document: Any) -> None:
    """One JSON document, on one line."""
    click.echo(compact(document))


def compact(value: Any) -> str:
    """A value as JSON text."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def brief(value: Any, widest: int = WIDEST) -> str:
    """A value as JSON text, cut off where it would fill the screen."""
    return cut(compact(value), widest)


def cut(text: str, widest: int = WIDEST) -> str:
    """A text, cut off where it would fill the screen."""
    return text if len(text) <= widest else text[: widest - 1] + "…"


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines with aligned columns."""
    cells = [list(heads), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def moment(at: datetime | None) -> str:
    """A time in UTC, to the second."""
    return "–" if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"


def fire_lines(fires: Sequence[datetime], before: datetime) -> list[str]:
    """A line for each; where the clock has been changed since the one before, it says so."""
    lines = []
    for at in fires:
        line = f"  {at:%a %Y-%m-%d %H:%M:%S} {_offset(at)} {at.tzinfo}"
        if at.utcoffset() != before.utcoffset():
            line += f"  (the clock was changed: {_offset(before)} before)"
        lines.append(line)
        before = at
    return lines


def _offset(at: datetime) -> str:
    return at.isoformat()[-6:]


def span(seconds: float) -> str:
    """A length of time in the unit that suits it."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days"


def took(started_at: datetime | None, ended_at: datetime | None) -> str:
    if started_at is None or ended_at is None:
        return "–"
    return span((ended_at - started_at).total_seconds())


def count(number: int, noun: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

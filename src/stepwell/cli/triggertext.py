"""Triggers as text for people: a list of them, and one with all that is known of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stepwell.cli.output import WIDEST, compact, cut, moment, table
from stepwell.errors import TimesMissed
from stepwell.record import Upcoming

# Refusals that say themselves how many there are.
_COUNTED = (TimesMissed.code,)


def list_lines(triggers: Sequence[dict[str, Any]]) -> list[str]:
    """Triggers as a table, and below each schedule its sentence."""
    rows = [
        (
            f"{each['definition']}/{each['name']}", each["type"], each["status"],
            _short(each["next"][0] if each["next"] else None), moment(each["last_fired_at"]),
            cut(each["last_error"] or "", WIDEST),
        )
        for each in triggers
    ]  # fmt: skip
    heads = ("trigger", "type", "status", "next", "last fired", "last error")
    if not rows:
        return ["No triggers."]
    head, *lines = table(heads, rows)
    told = [
        [line, f"  {each['description']}"] if each["type"] == "schedule" else [line]
        for line, each in zip(lines, triggers, strict=True)
    ]
    return [head, *(line for lines in told for line in lines)]


def upcoming_lines(schedules: Sequence[Upcoming]) -> Iterator[str]:
    """A line for each schedule: what it waits for, and when it fires next."""
    for each in schedules:
        soon = f" Next: {_short(each.next[0])}" if each.next else ""
        yield f"  {each.trigger}: {each.description}{soon}"


def show_lines(trigger: dict[str, Any]) -> Iterator[str]:
    """A trigger with everything that is known of it."""
    yield f"{trigger['definition']}/{trigger['name']} ({trigger['type']}, {trigger['id']})"
    yield f"  {trigger['status']}: {trigger['description']}"
    if trigger["why"]:
        yield f"  {trigger['why']}"
    fired = trigger["last_fired_at"] and moment(trigger["last_fired_at"])
    status, run = trigger.get("last_run_status"), trigger["last_run_id"]
    for label, value in (
        ("config", compact(trigger["config"])), ("requests to", trigger["webhook_url"]),
        ("next", "\n        ".join(map(_short, trigger["next"]))), ("last fired", fired),
        ("last run", f"{run} ({status})" if run and status else run),
        ("last error", trigger["last_error"]),
    ):  # fmt: skip
        if value:
            yield f"  {label}: {value}"
    for each in trigger.get("refusals", ()):
        often = each["count"] > 1 and each["code"] not in _COUNTED
        times = f" ({each['count']} times)" if often else ""
        yield f"  refused {moment(each['refused_at'])}: {each['code']}: {each['message']}{times}"


def _short(at: str | None) -> str:
    """A time in ISO 8601 to the second, with its offset."""
    return "–" if at is None else f"{at[:10]} {at[11:19]} {at[-6:]}"

"""Triggers as they are written in a document: whether they have the form that they must have."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cronsim import CronSim, CronSimError

from stepwell.graph.fields import Fields
from stepwell.graph.problems import Problems, below

TYPES = ("manual", "schedule", "webhook", "event")
# What cron expressions of these names mean.
NAMED = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}  # fmt: skip
_WAYS = ("cron", "every", "at")
# Any moment will do to see whether an expression can be read.
_THEN = datetime(2026, 1, 1, tzinfo=UTC)


def check_trigger(trigger: Mapping[str, Any], path: str, problems: Problems) -> None:
    """Note what is wrong with a trigger."""
    kind = trigger.get("type")
    if not isinstance(kind, str):
        problems.error(below(path, "type"), "missing_field", "A trigger has a type.")
    elif kind not in TYPES:
        problems.error(
            below(path, "type"), "unknown_type", f"There is no trigger type {kind!r}.",
            problems.did_you_mean(kind, TYPES) or f"There are {', '.join(TYPES)}.",
        )  # fmt: skip
    elif kind == "schedule":
        _check_schedule(trigger, path, problems)


def _check_schedule(trigger: Mapping[str, Any], path: str, problems: Problems) -> None:
    given = [way for way in _WAYS if trigger.get(way) is not None]
    if len(given) != 1:
        problems.error(
            path, "bad_field" if given else "missing_field",
            f"A schedule has one of {', '.join(_WAYS)}.",
        )  # fmt: skip
    for zone in ("timezone", "tz"):
        if zone in trigger:
            problems.error(
                below(path, zone), "unknown_field", "A trigger has no time zone of its own.",
                "Write timezone beside the definition's name.",
            )  # fmt: skip
    if "cron" in given and (why := cron_problem(trigger["cron"])):
        problems.error(
            below(path, "cron"), "bad_cron", why, 'Write five fields like "0 2 * * 1-5".'
        )
    Fields(problems).duration(trigger, "every", path)


def cron_problem(expression: Any) -> str:
    """What is wrong with a cron expression; nothing if it can be read."""
    if not isinstance(expression, str):
        return f"A cron expression is a text, not {expression!r:.100}."
    plain = NAMED.get(expression.strip().lower(), expression)
    if len(plain.split()) != 5:
        return f"{expression!r:.100} does not have five fields."
    try:
        CronSim(plain.replace("?", "*"), _THEN)
    except (CronSimError, ValueError) as error:
        return f"{expression!r:.100} cannot be read: {error}."
    return ""

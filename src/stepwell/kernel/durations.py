"""Durations as people write them: `1h30m`, ISO 8601, seconds, or a timedelta."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

from stepwell.errors import InvalidDuration, InvalidInput
from stepwell.kernel.names import show

Duration = str | int | float | timedelta

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*")
_ISO = re.compile(
    r"P(?:(?P<w>\d+(?:\.\d+)?)W)?(?:(?P<d>\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(?P<h>\d+(?:\.\d+)?)H)?(?:(?P<m>\d+(?:\.\d+)?)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
)
# A thousand years: past that the sum with a date leaves what stores can hold.
MAX_SECONDS = 1000 * 365 * 86_400
MAX_TEXT = 100


def seconds(value: Duration, what: str = "duration") -> float:
    """The duration in seconds; raises InvalidDuration naming `what`."""
    if isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _invalid(value, what)
    elif isinstance(value, int | float):
        result = float(value) if abs(value) <= MAX_SECONDS else math.inf
    else:
        result = _parse(value, what)
    if not 0 <= result <= MAX_SECONDS:
        raise InvalidDuration(
            f"{what}: {show(value)} must lie between 0 and 1000 years.", value=value
        )
    return result


def lease_seconds(lease: Duration, what: str = "lease") -> float:
    """A lease of a worker, in seconds."""
    found = seconds(lease, what)
    if found < 1:
        raise InvalidInput(f"{what} must be at least one second, not {lease!r}.")
    return found


def check_deadline(value: Duration | datetime, what: str = "deadline") -> None:
    """Refuse what is neither a duration nor a time."""
    if isinstance(value, datetime):
        return
    try:
        seconds(value, what)
    except InvalidDuration as error:
        raise InvalidDuration(
            f"{error.message} A deadline may also be a time: a datetime in Python, "
            "2026-01-31T12:00:00Z on the command line.",
            value=value,
        ) from None


def _parse(text: str, what: str) -> float:
    stripped = text.strip()
    if len(stripped) > MAX_TEXT:
        raise _invalid(text, what)
    if match := _ISO.fullmatch(stripped):
        parts = {unit: amount for unit, amount in match.groupdict().items() if amount is not None}
        if parts and not stripped.endswith("T"):
            return sum(float(amount) * _UNITS[unit] for unit, amount in parts.items())
    total, end = 0.0, 0
    for match in _PART.finditer(stripped):
        if match.start() != end:
            break
        total, end = total + float(match[1]) * _UNITS[match[2]], match.end()
    if not stripped or end != len(stripped):
        raise _invalid(text, what)
    return total


def _invalid(value: object, what: str) -> InvalidDuration:
    return InvalidDuration(
        f"{what}: {show(value)} is not a duration. "
        'Write "90s", "1h30m", "7d", ISO 8601 like "PT5M", or a number of seconds.',
        value=value,
    )

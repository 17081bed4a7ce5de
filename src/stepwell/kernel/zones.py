"""Time zones: what their clocks show, and when a clock shows what it shows twice or never."""

from __future__ import annotations

import difflib
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from stepwell.errors import ScheduleInvalid
from stepwell.kernel.clock import LAST, SECOND, moment, to_micros
from stepwell.kernel.names import show

MAX_TEXT = 100
# Two days before dates end: until then every clock can show the time.
LAST_SHOWN = LAST - 2 * 86_400 * SECOND
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  walls have no zone


@cache
def zone_names() -> frozenset[str]:
    """All time zones; to find them takes a look into hundreds of files.

    Those that are another one on each machine, or none, are not among them.
    """
    return frozenset(available_timezones()) - {"localtime", "Factory", "posixrules"}


def is_zone(name: Any) -> bool:
    return isinstance(name, str) and (name == "UTC" or name in zone_names())


def zone_hint(name: Any) -> str:
    """The zone that is meant perhaps, or how zones are written."""
    if closest := difflib.get_close_matches(str(name)[:MAX_TEXT], zone_names(), 1, 0.6):
        return f"Did you mean {closest[0]!r}?"
    return 'Write it like "Europe/Berlin".'


def zone_named(name: str) -> ZoneInfo:
    if not is_zone(name):
        hint = zone_hint(name)
        raise ScheduleInvalid(f"There is no time zone {show(name)}. {hint}", hint=hint)
    return ZoneInfo(name)


def local(at: int, zone: ZoneInfo) -> datetime:
    return moment(at).astimezone(zone)


def read_local(text: str, zone: ZoneInfo) -> int:
    """A time in ISO 8601; without an offset it is what the zone's clock shows.

    If it shows that twice, the first time; if never, as much later as the clock goes forward.
    Raises ValueError if it is no time.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"it has {len(text):,} characters")
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("it is not in ISO 8601") from None
    found = to_micros(at if at.tzinfo is not None else at.replace(tzinfo=zone, fold=0))
    if found > LAST_SHOWN:
        raise ValueError("dates end with the year 9999")
    return found


# What a clock shows is called a wall below, in seconds since 1970 as if it were UTC.


def offset(wall: int, zone: ZoneInfo, fold: int) -> int:
    """Seconds that the clock is ahead of UTC; `fold` as in PEP 495."""
    shown = _EPOCH + timedelta(seconds=wall)
    found = shown.replace(tzinfo=zone, fold=fold).utcoffset()
    assert found is not None
    return found.days * 86_400 + found.seconds


def midnight(day: date) -> int:
    """The wall with which a day begins."""
    return (day.toordinal() - _EPOCH.toordinal()) * 86_400


def moments(wall: int, zone: ZoneInfo) -> list[int]:
    """When the clock shows it, in seconds since the epoch: once, twice, or never."""
    before, after = offset(wall, zone, 0), offset(wall, zone, 1)
    if before == after:
        return [wall - before]
    return [wall - before, wall - after] if before > after else []


def first_moment(wall: int, zone: ZoneInfo) -> int:
    """When the clock first shows it, or, if it never does, is put forward past it."""
    found = moments(wall, zone)
    return found[0] if found else _change(wall, zone)


def last_moment(wall: int, zone: ZoneInfo) -> int:
    """The same, for the last time."""
    found = moments(wall, zone)
    return found[-1] if found else _change(wall, zone)


def _change(wall: int, zone: ZoneInfo) -> int:
    """The moment at which the clock is put forward past `wall`."""
    before, after = offset(wall, zone, 0), offset(wall, zone, 1)
    early, late = wall - after, wall - before  # early is before the change, late is not
    while late - early > 1:
        middle = (early + late) // 2
        shown = datetime.fromtimestamp(middle, UTC).astimezone(zone).utcoffset()
        if shown == timedelta(seconds=before):
            early = middle
        else:
            late = middle
    return late


def is_even(day: date, zone: ZoneInfo) -> bool:
    """Whether the clock is not changed on that day, nor at its beginning or end."""
    begin = midnight(day)
    offsets = {offset(wall, zone, fold) for wall in (begin, begin + 86_400) for fold in (0, 1)}
    return len(offsets) == 1

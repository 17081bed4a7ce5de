"""Cron expressions: which are understood, and at which moments they fire in a time zone.

`cronsim` reads the fields and knows the days. Clocks that change are handled here, as Debian's cron
does: an expression whose minute or hour begins with `*` follows the clock, so a time that is left
out is left out and one that comes twice fires twice. Any other one means fixed times, each of which
fires exactly once: right after the change if it was left out, the first time if it comes twice.
"""

from __future__ import annotations

import difflib
import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from stepwell.errors import ScheduleInvalid
from stepwell.kernel import zones
from stepwell.kernel.clock import SECOND
from stepwell.kernel.names import show, with_article

# What expressions of these names mean.
NAMED = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}  # fmt: skip
MAX_TEXT = 200
# The fields in their order, and what they may be.
_FIELDS = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day of month": "1 to 31, L for the last one, or LW for the last one from Monday to Friday",
    "month": "1 to 12 or JAN to DEC",
    "day of week": "0 to 7 (both are Sunday) or SUN to SAT; 1#2 is the second Monday, 5L the last "
    "Friday",
}
_DAY_FIELDS = (2, 4)
_USUAL = f'Write five fields like "0 2 * * 1-5" ({", ".join(_FIELDS)}), or a name like "@daily".'
# Where the search begins for the first time that an expression fires; any moment would do.
_THEN = datetime(2026, 1, 1)  # noqa: DTZ001  walls have no zone
# Before and after these years the neighbours of a day may not be dates.
_FIRST_YEAR, _LAST_YEAR = 1969, 9998
_END = zones.midnight(date(_LAST_YEAR, 12, 31)) * SECOND
_MINUTE = 60 * SECOND
_ONLY_ONE = re.compile(r"\b0*(\w+)-0*\1/0*[1-9]\d*\b", re.ASCII)
_EVERY_DAY = "0 0 * * *"
_COMPARED_DAYS, _COMPARED_YEARS = 400, 40


class Cron(msgspec.Struct, frozen=True):
    """An expression that can be read and does fire."""

    # Five fields, in capitals, with a single space between them.
    text: str
    # Minutes since midnight, in order.
    times: tuple[int, ...]
    # The expression for midnight on the same days.
    days: str
    # Whether it means fixed times, rather than following the clock.
    fixed: bool

    def after(self, at: int, zone: ZoneInfo) -> Iterator[int]:
        """When it fires later than that, in order."""
        if at >= _END:
            return
        today = zones.local(max(at, 0), zone).date()
        # Around a change, what belongs to yesterday may still come.
        begin = today if zones.is_even(today, zone) else today - timedelta(days=1)
        kept: list[int] = []
        for day in self._days(begin, forward=True):
            if not kept and zones.is_even(day, zone):
                start = _start(day, zone)
                split = bisect_right(self.times, (at - start) // _MINUTE)
                yield from (start + minute * _MINUTE for minute in self.times[split:])
                continue
            kept = sorted({*kept, *(tick for tick in self._ticks(day, zone) if tick > at)})
            # Nothing of a later day comes before the first time that its midnight is shown.
            bound = zones.first_moment(zones.midnight(day) + 86_400, zone) * SECOND
            split = bisect_left(kept, bound)
            yield from kept[:split]
            kept = kept[split:]
        yield from kept

    def until(self, at: int, zone: ZoneInfo) -> Iterator[int]:
        """When it fired by then, the latest first, back to 1969."""
        today = zones.local(min(max(at, 0), _END), zone).date()
        begin = today if zones.is_even(today, zone) else today + timedelta(days=1)
        kept: list[int] = []
        last = at + 1
        for day in self._days(begin, forward=False):
            if not kept and zones.is_even(day, zone):
                start = _start(day, zone)
                split = bisect_right(self.times, (at - start) // _MINUTE)
                for minute in reversed(self.times[:split]):
                    yield (last := start + minute * _MINUTE)
                continue
            kept = sorted({*kept, *(tick for tick in self._ticks(day, zone) if tick < last)})
            # Nothing of an earlier day comes after the last time that this midnight is shown; at
            # that moment at most what was put off, for which `last` stands already.
            bound = zones.last_moment(zones.midnight(day), zone) * SECOND
            split = bisect_left(kept, bound)
            for tick in reversed(kept[split:]):
                yield (last := tick)
            kept = kept[:split]
        yield from reversed(kept)

    def _days(self, begin: date, *, forward: bool) -> Iterator[date]:
        """The days on which it fires, beginning with that one."""
        if self.days == _EVERY_DAY:
            ordinals = itertools.count(begin.toordinal(), 1 if forward else -1)
            yield from itertools.takewhile(_in_time, map(date.fromordinal, ordinals))
            return
        near = datetime.combine(begin, time()) + timedelta(seconds=-1 if forward else 1)
        try:
            for found in CronSim(self.days, near, reverse=not forward):
                if not _in_time(found):
                    return
                yield found.date()
        except (OverflowError, ValueError):  # beyond the years that dates have
            return

    def _ticks(self, day: date, zone: ZoneInfo) -> list[int]:
        """When it fires on a day, in the order of what the clock shows."""
        midnight = zones.midnight(day)
        walls = [midnight + minute * 60 for minute in self.times]
        if self.fixed:
            return [zones.first_moment(wall, zone) * SECOND for wall in walls]
        return [at * SECOND for wall in walls for at in zones.moments(wall, zone)]

    def shortest_seconds(self) -> int:
        """The least that lies between two times it fires, by a clock that is not changed.

        As many days are compared as it takes: those that follow repeat them.
        """
        gaps = [later - earlier for earlier, later in itertools.pairwise(self.times)]
        days = itertools.islice(self._days(_THEN.date(), forward=True), _COMPARED_DAYS)
        nights: int | None = None
        for earlier, later in itertools.pairwise(days):
            apart = (later - earlier).days
            nights = apart if nights is None else min(nights, apart)
            if nights == 1 or later.year > _THEN.year + _COMPARED_YEARS:
                break
        if nights is not None:
            gaps.append(nights * 24 * 60 - self.times[-1] + self.times[0])
        return min(gaps, default=24 * 60) * 60


def _in_time(day: date) -> bool:
    return _FIRST_YEAR <= day.year <= _LAST_YEAR


def _start(day: date, zone: ZoneInfo) -> int:
    """When a day begins on which the clock is not changed."""
    wall = zones.midnight(day)
    return (wall - zones.offset(wall, zone, 0)) * SECOND


def read_cron(expression: Any) -> Cron:
    """The expression; raises ScheduleInvalid with what is wrong, and `details["hint"]`."""
    if not isinstance(expression, str):
        raise _invalid(f"A cron expression is a text, not {show(expression)}.", _USUAL)
    if len(expression) > MAX_TEXT:
        raise _invalid(
            f"A cron expression has at most {MAX_TEXT} characters, not {len(expression):,}.", _USUAL
        )
    return _read(expression)


@lru_cache(maxsize=10_000)
def _read(expression: str) -> Cron:
    fields = _fields(expression)
    for index, (name, allowed) in enumerate(_FIELDS.items()):
        alone = ["*"] * len(_FIELDS)
        alone[index] = fields[index]
        try:
            CronSim(" ".join(alone), _THEN)
        except (CronSimError, ValueError):
            raise _invalid(
                f"The {name} of the cron expression {expression!r} cannot be {fields[index]!r}.",
                f"{with_article(name)} is {allowed}; also a range 1-5, a list 1,3, a step */2, or "
                "* for all.",
            ) from None
    try:
        found = CronSim(" ".join(fields), _THEN)
        next(found)
    except (CronSimError, StopIteration):
        raise _invalid(
            f"The cron expression {expression!r} never fires: no such day comes.",
            "Compare the day of month with the month and the day of week.",
        ) from None
    times = sorted(hour * 60 + minute for hour in found.hours for minute in found.minutes)
    minute, hour, *days = fields
    return Cron(
        " ".join(fields), tuple(times), " ".join(("0", "0", *days)),
        fixed=not minute.startswith("*") and not hour.startswith("*"),
    )  # fmt: skip


def _fields(expression: str) -> list[str]:
    """The five fields, as cronsim reads them."""
    text = expression.strip().upper()
    if not text:
        raise _invalid("The cron expression is empty.", _USUAL)
    if text == "@REBOOT":
        raise _invalid(
            "'@reboot' is no cron expression here: there is no machine that starts.",
            f"Write one of {', '.join(NAMED)}.",
        )
    if text.startswith("@"):
        name = text.lower()
        if name not in NAMED:
            closest = difflib.get_close_matches(name, NAMED, 1, 0.6)
            hint = f"Did you mean {closest[0]!r}?" if closest else f"There are {', '.join(NAMED)}."
            raise _invalid(f"There is no cron name {expression.strip()!r}.", hint)
        text = NAMED[name]
    fields = text.split()
    if len(fields) != len(_FIELDS):
        seconds = len(fields) in (6, 7)
        raise _invalid(
            f"The cron expression {expression!r} has {len(fields)} fields, not five.",
            'There are no fields for seconds and years; "every: 30s" is for what is more frequent '
            "than once a minute." if seconds else _USUAL,
        )  # fmt: skip
    for index in _DAY_FIELDS:
        fields[index] = "*" if fields[index] == "?" else fields[index]
    # cronsim takes the range 3-3/5 for 3/5, which goes on to the end.
    return [_ONLY_ONE.sub(r"\1", field) for field in fields]


def _invalid(message: str, hint: str) -> ScheduleInvalid:
    return ScheduleInvalid(message, hint=hint)

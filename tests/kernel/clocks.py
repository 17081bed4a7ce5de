"""An oracle for cron: looks at a clock every minute, and asks of each whether it was meant.

It shares nothing with what it judges: it reads expressions by itself, and time zones come from
converting moments to local time, never the other way round.
"""

from __future__ import annotations

import calendar
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache
from zoneinfo import ZoneInfo

MICROS = 60_000_000
DAY = 24 * 60
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]


@dataclass
class Watched:
    """What a clock showed in every minute of a stretch of time; all in minutes."""

    begin: int
    end: int
    # By time of day: when it was shown, and on which day.
    shown: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    # Those of the minutes in which it showed what it had shown before.
    repeated: set[int] = field(default_factory=set)
    # As `shown`, for what was never shown: when the clock was put forward past it.
    left_out: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def once(self, time: int) -> list[tuple[int, int]]:
        """Every local time exactly once: when it was first shown, or else right after."""
        first = [(at, day) for at, day in self.shown[time] if at not in self.repeated]
        return first + self.left_out[time]


@cache
def watch(zone: str, begin: datetime, end: datetime) -> Watched:
    """Look at the clock every minute."""
    clock = ZoneInfo(zone)
    found = Watched(int(begin.timestamp()) // 60, int(end.timestamp()) // 60)
    latest = 0
    for minute in range(found.begin, found.end):
        at = datetime.fromtimestamp(minute * 60, clock)
        wall = at.toordinal() * DAY + at.hour * 60 + at.minute
        found.shown[wall % DAY].append((minute, wall // DAY))
        if wall != latest + 1 and latest:
            for never in range(latest + 1, wall):
                found.left_out[never % DAY].append((minute, never // DAY))
            if wall <= latest:
                found.repeated.add(minute)
        latest = max(latest, wall)
    return found


def years(zone: str, first: int, last: int) -> Watched:
    return watch(zone, datetime(first, 1, 1, tzinfo=UTC), datetime(last + 1, 1, 1, tzinfo=UTC))


def fires(expression: str, watched: Watched) -> list[int]:
    """When the expression fires, in microseconds."""
    minute, hour, day, month, weekday = expression.upper().replace("?", "*").split()
    # A job with a star for its minute or hour goes by what the clock shows.
    follows = minute[0] == "*" or hour[0] == "*"
    when = watched.shown.__getitem__ if follows else watched.once
    times = [h * 60 + m for h in values(hour, 0, 23) for m in values(minute, 0, 59)]
    return sorted(
        {
            at * MICROS
            for time in times
            for at, ordinal in when(time)
            if on_day(day, month, weekday, ordinal)
        }
    )


@cache
def on_day(day: str, month: str, weekday: str, ordinal: int) -> bool:
    shown = date.fromordinal(ordinal)
    if shown.month not in values(month, 1, 12):
        return False
    by_day = any(is_day(part, shown) for part in day.split(","))
    by_weekday = any(is_weekday(part, shown) for part in weekday.split(","))
    if day[0] == "*" or weekday[0] == "*":
        return by_day and by_weekday
    return by_day or by_weekday


def is_day(part: str, shown: date) -> bool:
    last = calendar.monthrange(shown.year, shown.month)[1]
    if part == "L":
        return shown.day == last
    if part == "LW":
        while date(shown.year, shown.month, last).isoweekday() > 5:
            last -= 1
        return shown.day == last
    return shown.day in values(part, 1, 31)


def is_weekday(part: str, shown: date) -> bool:
    today = shown.isoweekday() % 7
    if part.endswith("L"):
        last = calendar.monthrange(shown.year, shown.month)[1]
        return int(part[:-1]) % 7 == today and shown.day > last - 7
    if "#" in part:
        name, nth = part.split("#")
        return number(name) % 7 == today and (shown.day - 1) // 7 + 1 == int(nth)
    return today in {each % 7 for each in values(part, 0, 7)}


@cache
def values(text: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            begin, end = least, most
        elif last:
            begin, end = number(first), number(last)
        else:
            begin = number(first)
            end = most if step else begin
        found.update(range(begin, end + 1, int(step or 1)))
    return frozenset(found)


def number(text: str) -> int:
    if text in WEEKDAYS:
        return WEEKDAYS.index(text)
    return MONTHS.index(text) + 1 if text in MONTHS else int(text)

"""Schedules in words: one sentence by which people see whether it is what they meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from cronsim.explain import explain

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("", "January", "February", "March", "April", "May", "June", "July", "August",
           "September", "October", "November", "December")  # fmt: skip
_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
_NUMBERS = re.compile(r"\d+(,\d+)*")
_HOURS = re.compile(r"(\d+)(?:-(\d+))?")
_NTH = re.compile(r"(\w+)#([1-5])")
# More times of a day than these are not listed.
MOST_TIMES = 6


def every_sentence(seconds: float) -> str:
    """`Every 15 minutes.`"""
    parts = []
    rest = round(seconds * 1000) / 1000
    for unit, size in _UNITS[:-1]:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count:g} {unit}{'s' * (count > 1)}")
    if rest:
        parts.append(f"{rest:g} second{'s' * (rest != 1)}")
    return f"Every {parts[0].removeprefix('1 ') if len(parts) == 1 else ' '.join(parts)}."


def cron_sentence(text: str, zone: str) -> str:
    """`At 02:00, Monday to Friday, in Europe/Berlin.` for five fields in capitals."""
    minute, hour, day, month, weekday = text.split()
    time, days = _time(minute, hour), _days(day, weekday)
    months = "" if month == "*" else _spans(month, _month)
    if time is None or days is None or months is None:  # cronsim has words for everything
        return f"{explain(text)}, in {zone}."
    if months and "of the month" in days:
        days = days.replace("of the month", f"of {months}")
    elif months:
        days = f"{days or 'every day'} in {months}"
    elif not days and time.startswith("At ") and hour != "*":
        days = "every day"
    return ", ".join(part for part in (time, days, f"in {zone}") if part) + "."


def _time(minute: str, hour: str) -> str | None:
    """The times of a day; None if they are not of a usual shape."""
    minute, hour = _within(minute, 60), _within(hour, 24)
    minutes, hours, span = _numbers(minute), _numbers(hour), _HOURS.fullmatch(hour)
    first, last = (int(span[1]), int(span[2] or span[1])) if span else (0, 0)
    if step := _even_step(minute, 60):
        each = "Every minute" if step == 1 else f"Every {step} minutes"
        if hour == "*":
            return each
        return f"{each} from {first:02}:00 to {last:02}:{60 - step:02}" if span else None
    if minutes is None:
        return None
    if hour == "*":
        past = f"At {_listed([str(each) for each in minutes])} minutes past every hour"
        return {"0": "Every hour", "1": "At 1 minute past every hour"}.get(minute, past)
    if hours is not None and len(minutes) * len(hours) <= MOST_TIMES:
        return f"At {_listed([f'{h:02}:{m:02}' for h in hours for m in minutes])}"
    if len(minutes) == 1 and span:
        return f"Every hour from {first:02}:{minutes[0]:02} to {last:02}:{minutes[0]:02}"
    if len(minutes) == 1 and (step := _even_step(hour, 24)):
        return f"Every {step} hours from 00:{minutes[0]:02}"
    return None


def _days(day: str, weekday: str) -> str | None:
    """The days; empty for all, None if they are not of a usual shape."""
    of_month = "" if day == "*" else _days_of_month(day)
    of_week = "" if weekday == "*" else _spans(weekday, _weekday)
    if of_month is None or of_week is None:
        return None
    if of_week.startswith("the ") or (of_month and of_week):
        of_week = f"on {of_week}"
    # Either will do, if both are given.
    return " or ".join(part for part in (of_month, of_week) if part)


def _days_of_month(day: str) -> str | None:
    if day == "L":
        return "on the last day of the month"
    if day == "LW":
        return "on the last day from Monday to Friday of the month"
    spans = _spans(day, _ordinal)
    return None if spans is None else f"on the {spans} of the month"


def _spans(field: str, name: Callable[[str], str | None]) -> str | None:
    """A list of values and ranges; None if there is anything else in it."""
    found = []
    for part in field.split(","):
        ends = [name(end) for end in part.split("-")]
        if None in ends:
            return None
        found.append(" to ".join(end for end in ends if end))
    return _listed(list(dict.fromkeys(found)))


def _month(text: str) -> str | None:
    return _named(text, _MONTHS)


def _weekday(text: str) -> str | None:
    if nth := _NTH.fullmatch(text):
        day = _named(nth[1], _WEEKDAYS)
        return day and f"the {_ordinal(nth[2])} {day} of the month"
    if text.endswith("L"):
        return f"the last {_named(text[:-1], _WEEKDAYS)} of the month"
    return _named(text, _WEEKDAYS)


def _named(text: str, names: Sequence[str]) -> str | None:
    """The name that a number or the first three letters stand for."""
    if text.isdecimal():
        return names[int(text)]
    return next((name for name in names if name and name[:3].upper() == text), None)


def _ordinal(text: str) -> str | None:
    if not text.isdecimal():
        return None
    number = int(text)
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _numbers(field: str) -> list[int] | None:
    if not _NUMBERS.fullmatch(field):
        return None
    return sorted({int(each) for each in field.split(",")})


def _within(field: str, whole: int) -> str:
    """A step that does not come out even is a list: `*/25` is `0,25,50`, `*/90` only `0`."""
    step = field.removeprefix("*/")
    if step == field or not step.isdecimal() or whole % int(step) == 0:
        return field
    return ",".join(map(str, range(0, whole, int(step))))


def _even_step(field: str, whole: int) -> int | None:
    """What `*/5` goes by, if it goes on evenly past the end; 1 for `*`."""
    if field == "*":
        return 1
    found = field.removeprefix("*/")
    even = found != field and found.isdecimal() and whole % int(found) == 0
    return int(found) if even else None


def _listed(parts: Sequence[str]) -> str:
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last

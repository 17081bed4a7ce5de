"""Schedules in words: one sentence by which people see whether it is what they meant.

Each field of a cron expression is first read as the values it stands for, so that `*/60`, `0-0` and
`00` are told like `0`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from cronsim.explain import explain

_WEEKDAYS = ("", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("", "January", "February", "March", "April", "May", "June", "July", "August",
           "September", "October", "November", "December")  # fmt: skip
_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
_PART = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?")
_NTH = re.compile(r"(\w+)#([1-5])|(\d+)L")
_LAST = {"L": "last day", "LW": "last day from Monday to Friday"}
# More times of a day than these are not listed, nor more that follow each other evenly.
MOST_TIMES, MOST_EVEN = 6, 3
# So many that follow each other are told as a range.
RANGE = 3


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
    time = _time(_values(minute, 0, 59), _values(hour, 0, 23))
    if time is None:  # cronsim has words for everything
        return f"{explain(text)}, in {zone}."
    months = _values(month, 1, 12, _MONTHS)
    within = "" if len(months) == 12 else _spans(months, _MONTHS.__getitem__)
    days = _days(_Days.read(day, 1, 31), _Days.read(weekday, 1, 7, _WEEKDAYS), within)
    if not days and time.startswith("At ") and "every hour" not in time:
        days = "every day"
    return ", ".join(part for part in (time, days, f"in {zone}") if part) + "."


# -- the times of a day --------------------------------------------------------------------


def _time(minutes: list[int], hours: list[int]) -> str | None:
    """The times of a day; None if they are too odd to be told."""
    even, hourly = _even(minutes, 60), len(minutes) == 1
    goes_on = _even(hours, 24) if hourly else even
    most = MOST_EVEN if goes_on else MOST_TIMES
    if len(minutes) * len(hours) <= most:
        return f"At {_listed([f'{h:02}:{m:02}' for h in hours for m in minutes])}"
    if even and not hourly:
        each = "Every minute" if even == 1 else f"Every {even} minutes"
        return _in_hours(each, minutes, hours)
    if hourly:
        return _hourly(minutes[0], hours)
    if minutes[-1] - minutes[0] == len(minutes) - 1 and len(minutes) >= RANGE:
        past = f"Every minute from {minutes[0]} to {minutes[-1]} past"
    else:
        past = f"At {_listed([str(each) for each in minutes])} minutes past"
    if len(hours) == 24:
        return f"{past} every hour"
    if len(_runs(hours)) == 1:
        return f"{past} the hour, from {_span(hours, minutes)}"
    step = _even(hours, 24)
    return None if step is None else f"{past} every {_ordinal(step)} hour from 00:00"


def _hourly(minute: int, hours: list[int]) -> str:
    """One minute of many hours."""
    if len(hours) == 24:
        past = f"At {minute} minute{'s' * (minute > 1)} past every hour"
        return past if minute else "Every hour"
    if step := _even(hours, 24):
        return f"Every {step} hours from 00:{minute:02}"
    if len(steps := {b - a for a, b in pairwise(hours)}) == 1:
        each = "hour" if steps == {1} else f"{steps.pop()} hours"
        return f"Every {each} from {_span(hours, [minute])}"
    runs = _runs(hours)
    long = [f"from {_span(run, [minute])}" for run in runs if len(run) >= RANGE]
    if not long:
        return f"At {_listed([f'{hour:02}:{minute:02}' for hour in hours])}"
    short = [f"at {hour:02}:{minute:02}" for run in runs if len(run) < RANGE for hour in run]
    return f"Every hour {_listed([*long, *short])}"


def _in_hours(each: str, minutes: list[int], hours: list[int]) -> str:
    """What happens evenly within some hours."""
    if len(hours) == 24:
        return each
    if step := _even(hours, 24):
        return f"{each} of every {_ordinal(step)} hour from 00:00"
    return f"{each} {_listed([f'from {_span(run, minutes)}' for run in _runs(hours)])}"


def _span(hours: list[int], minutes: list[int]) -> str:
    return f"{hours[0]:02}:{minutes[0]:02} to {hours[-1]:02}:{minutes[-1]:02}"


# -- the days ------------------------------------------------------------------------------


class _Days(NamedTuple):
    """A field that says days: values, what has words of its own, and whether it begins with *."""

    values: list[int]
    special: list[str]
    open: bool
    all: bool

    @classmethod
    def read(cls, field: str, first: int, last: int, names: Sequence[str] = ()) -> _Days:
        parts = dict.fromkeys(field.split(","))
        special = [part for part in parts if part in _LAST or _NTH.fullmatch(part)]
        plain = ",".join(part for part in parts if part not in special)
        values = _values(plain, first, last, names) if plain else []
        return cls(values, special, field.startswith("*"), len(values) == last - first + 1)


def _days(of_month: _Days, of_week: _Days, months: str) -> str:
    """On which days it is, in these months; empty for all days of all."""
    both = of_month.open or of_week.open
    limited = [each for each in (of_month, of_week) if not each.all]
    if not limited or (len(limited) == 1 and not both):  # either will do, and one always does
        return f"every day in {months}" if months else ""
    if len(limited) == 2:
        said = f"{_of_month(of_month)} or {_of_week(of_week, 'from')}"
        if both:
            said = f"{_of_month(of_month)} if it is {_one_of_week(of_week)}"
        return f"{said}, only in {months}" if months else said
    said = _of_week(of_week) if of_month.all else _of_month(of_month)
    if not months:
        return said
    inside = said.replace("of the month", f"of {months}")
    return f"{said} in {months}" if inside == said else inside


def _of_month(days: _Days) -> str:
    values, last = days.values, [_LAST[each] for each in days.special]
    if len(values) > MOST_TIMES and values == list(range(1, 32, step := values[1] - values[0])):
        every = f"every {_ordinal(step)} day of the month from the 1st"
        return f"on {' and the '.join([every, *last])}"
    spans = [_spans(values, _ordinal)] if values else []
    return f"on the {' and the '.join([*spans, *last])} of the month"


def _of_week(days: _Days, before_range: str = "") -> str:
    runs = _around(days.values)
    found = [each for run in runs for each in _run(run, _WEEKDAYS.__getitem__)]
    if len(runs) == 1 and len(runs[0]) >= RANGE and not days.special:
        return f"{before_range} {found[0]}".strip()
    return f"on {_listed([*found, *_nths(days)])}"


def _one_of_week(days: _Days) -> str:
    found = [f"a {_WEEKDAYS[each]}" for each in days.values]
    return _listed([*found, *_nths(days)], "or")


def _nths(days: _Days) -> list[str]:
    """`the 2nd Monday of the month`"""
    found = []
    for each in days.special:
        nth = _NTH.fullmatch(each)
        assert nth is not None
        which = _ordinal(int(nth[2])) if nth[2] else "last"
        found.append(f"the {which} {_WEEKDAYS[_number(nth[1] or nth[3], _WEEKDAYS) or 7]}")
    return [*found[:-1], f"{found[-1]} of the month"] if found else []


def _around(values: list[int]) -> list[list[int]]:
    """The days of a week that follow each other, also from Sunday to Monday."""
    runs = _runs(values)
    if len(runs) < 2 or runs[0][0] != 1 or runs[-1][-1] != 7:
        return runs
    joined = [*runs[-1], *runs[0]]
    return runs if len(joined) < RANGE else [joined, *runs[1:-1]]


# -- fields --------------------------------------------------------------------------------


def _values(field: str, first: int, last: int, names: Sequence[str] = ()) -> list[int]:
    """All that a field stands for, in order; 0 is Sunday, as 7 is."""
    found: set[int] = set()
    for part in field.split(","):
        match = _PART.fullmatch(part)
        assert match is not None, "it was read before"
        begin = first if match[1] else _number(match[2], names)
        end = last if match[1] or (match[4] and not match[3]) else begin
        end = _number(match[3], names) if match[3] else end
        if names is _WEEKDAYS and match[1]:  # the week of cron begins on Sunday
            begin, end = 0, 6
        found.update(range(begin, end + 1, int(match[4] or 1)))
    if names is _WEEKDAYS:
        found = {each or 7 for each in found}
    return sorted(found)


def _number(text: str, names: Sequence[str]) -> int:
    if text.isdecimal():
        return int(text)
    found = next(n for n, name in enumerate(names) if name and name[:3].upper() == text)
    return 0 if names is _WEEKDAYS and found == 7 else found


def _even(values: list[int], whole: int) -> int | None:
    """By what several values go on evenly past the end, from 0: 5 for `*/5`, 1 for all."""
    step = whole // len(values)
    is_even = len(values) > 1 and whole % step == 0 and values == list(range(0, whole, step))
    return step if is_even else None


def _runs(values: list[int]) -> list[list[int]]:
    """Values that follow each other, together."""
    runs: list[list[int]] = []
    for each in values:
        if runs and runs[-1][-1] + 1 == each:
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs


def _run(run: list[int], name: Callable[[int], str]) -> list[str]:
    """What follows each other, as a range if that is shorter."""
    if len(run) < RANGE:
        return [name(each) for each in run]
    return [f"{name(run[0])} to {name(run[-1])}"]


def _spans(values: list[int], name: Callable[[int], str]) -> str:
    return _listed([each for run in _runs(values) for each in _run(run, name)])


def _ordinal(number: int) -> str:
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _listed(parts: Sequence[str], join: str = "and") -> str:
    *others, last = parts
    return f"{', '.join(others)} {join} {last}" if others else last

"""Schedules in words: one sentence by which people see whether it is what they meant.

A cron expression is told by the values that cronsim reads from it, which are those it fires at. So
`*/60`, `0-0` and `00` are told like `0`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from cronsim import CronSim

_WEEKDAYS = ("", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("", "January", "February", "March", "April", "May", "June", "July", "August",
           "September", "October", "November", "December")  # fmt: skip
_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
_LAST = {CronSim.LAST: "last day", CronSim.LAST_WEEKDAY: "last day from Monday to Friday"}
# It has to begin somewhere; nothing is asked of it but what it has read.
_ANY = datetime(2026, 1, 1)  # noqa: DTZ001
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
    read = CronSim(text, _ANY)
    time, months = _time(sorted(read.minutes), sorted(read.hours)), sorted(read.months)
    within = "" if len(months) == 12 else _spans(months, _MONTHS.__getitem__)
    days = _days(_Days.of_month(read), _Days.of_week(read), within, both=read.day_and)
    if not days and time.startswith("At ") and "every hour" not in time:
        days = "every day"
    return ", ".join(part for part in (time, days, f"in {zone}") if part) + "."


# -- the times of a day --------------------------------------------------------------------


def _time(minutes: list[int], hours: list[int]) -> str:
    """The times of a day."""
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
    if step is None:
        return f"{past} the hours {_listed([str(each) for each in hours])}"
    return f"{past} every {_ordinal(step)} hour from 00:00"


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
    """A field that says days: values, and what has words of its own."""

    values: list[int]
    special: list[str]
    all: bool

    @classmethod
    def of_month(cls, read: CronSim) -> _Days:
        values = sorted(read.days - _LAST.keys())
        special = [words for last, words in _LAST.items() if last in read.days]
        return cls(values, special, len(values) == 31)

    @classmethod
    def of_week(cls, read: CronSim) -> _Days:
        values = sorted({each or 7 for each in read.weekdays if isinstance(each, int)})
        nths = {(each[0] or 7, each[1]) for each in read.weekdays if isinstance(each, tuple)}
        return cls(values, _nths(sorted(nths)), len(values) == 7)


def _days(of_month: _Days, of_week: _Days, months: str, *, both: bool) -> str:
    """On which days it is, in these months; empty for all days of all."""
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
    values, last = days.values, days.special
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
    return f"on {_listed([*found, *days.special])}"


def _one_of_week(days: _Days) -> str:
    found = [f"a {_WEEKDAYS[each]}" for each in days.values]
    return _listed([*found, *days.special], "or")


def _nths(days: list[tuple[int, int]]) -> list[str]:
    """`the 2nd Monday of the month`"""
    found = [
        f"the {'last' if nth == CronSim.LAST else _ordinal(nth)} {_WEEKDAYS[day]}"
        for day, nth in days
    ]
    return [*found[:-1], f"{found[-1]} of the month"] if found else []


def _around(values: list[int]) -> list[list[int]]:
    """The days of a week that follow each other, also from Sunday to Monday."""
    runs = _runs(values)
    if len(runs) < 2 or runs[0][0] != 1 or runs[-1][-1] != 7:
        return runs
    joined = [*runs[-1], *runs[0]]
    return runs if len(joined) < RANGE else [joined, *runs[1:-1]]


# -- values --------------------------------------------------------------------------------


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

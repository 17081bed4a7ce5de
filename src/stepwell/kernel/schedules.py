"""Schedules: when something is started by the clock, and what becomes of times that were missed.

A schedule *fires* at *ticks*: by a cron expression, in even steps, or once. Whoever keeps a
schedule keeps a cursor with it, the moment up to which ticks have been dealt with; `due` says which
ticks between cursor and now are to be started, and the cursor moves to now. A tick that is no older
than the schedule's grace is on time, and started whatever happens; with older ones its
misfire policy decides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

import msgspec

from stepwell.errors import InvalidInput, ScheduleInvalid
from stepwell.kernel.clock import SECOND
from stepwell.kernel.cron import read_cron
from stepwell.kernel.durations import Duration, seconds
from stepwell.kernel.names import show
from stepwell.kernel.wording import cron_sentence, every_sentence
from stepwell.kernel.zones import LAST_SHOWN, is_zone, local, read_local, zone_hint, zone_named

Misfire = Literal["skip", "latest", "all"]
# What a schedule can be given by; exactly one of them.
WAYS = ("cron", "every", "at")
# The fields of a trigger that make its schedule.
FIELDS = (*WAYS, "misfire", "limit", "grace")
MAX_LIMIT = 1000
# Ticks that grace may reach back over: all of them are started at once after a long pause.
MAX_ON_TIME = 10_000
# Missed ticks of a cron expression are counted one by one, so not all.
MOST_COUNTED = 1000


class ScheduleProblem(msgspec.Struct, frozen=True):
    """What is wrong with one field."""

    # Empty if it is about the whole.
    field: str
    code: str
    message: str
    hint: str = ""


class Due(msgspec.Struct, frozen=True):
    """What is to be done about the time that has passed since the cursor."""

    # The ticks to start runs for, oldest first.
    fires: list[int]
    # How many were passed over; at least so many if `at_least`.
    missed: int
    at_least: bool
    # The first tick that is still to come; None if there is none.
    next_at: int | None


class Schedule(msgspec.Struct, frozen=True):
    """When something fires; raises ScheduleInvalid if it cannot be."""

    cron: str | None = None
    every: str | int | float | None = None
    # ISO 8601; what the zone's clock shows, unless there is an offset.
    at: str | None = None
    # Its IANA name.
    zone: str = "UTC"
    misfire: Misfire = "skip"
    # How many missed ticks `all` starts.
    limit: int = 10
    grace: str | int | float = "60s"
    # With `every`: the first tick; the others follow in even steps.
    anchor: int = 0

    def __post_init__(self) -> None:
        given = {field: getattr(self, field) for field in FIELDS}
        if found := schedule_problems(given, self.zone):
            message = " ".join(f"{each.message} {each.hint}".strip() for each in found)
            raise ScheduleInvalid(message, problems=msgspec.to_builtins(found))

    @classmethod
    def read(cls, config: Mapping[str, Any], zone: str, anchor: int) -> Schedule:
        """The schedule of a trigger; the trigger's other fields are not looked at."""
        given = {field: config[field] for field in FIELDS if config.get(field) is not None}
        return cls(**given, zone=zone, anchor=anchor)

    def has_times_of(self, other: Schedule) -> bool:
        """Whether it has the same ticks, whatever each does about those that are missed."""
        return (self.cron, self.every, self.at, self.zone, self.anchor) == (
            other.cron, other.every, other.at, other.zone, other.anchor
        )  # fmt: skip

    def next_after(self, at: int) -> int | None:
        """The first tick that is later than `at`."""
        return next(self._after(at), None)

    def next_fires(self, after: int, count: int) -> list[int]:
        """So many ticks that are later than `after`, fewer if there are no more."""
        return list(islice(self._after(after), count))

    def due(self, cursor: int, now: int) -> Due:
        """What is to be started at `now`, if all ticks up to `cursor` have been dealt with."""
        on_time_from = now - _micros(self.grace)
        ticks, at_least = self._passed(cursor, now, on_time_from)
        split = bisect_left(ticks, on_time_from)
        late, on_time = ticks[:split], ticks[split:]
        wanted = {"skip": 0, "latest": 0 if on_time else 1, "all": self.limit}[self.misfire]
        begin = max(0, len(late) - wanted)
        return Due([*late[begin:], *on_time], begin, at_least, self.next_after(max(cursor, now)))

    def shortest_interval(self) -> float:
        """Seconds between the two ticks that are closest; without end if there is only one.

        For cron it is by a clock that is not changed: when it is, two may come closer for once.
        """
        if self.cron is not None:
            return float(read_cron(self.cron).shortest_seconds())
        return seconds(self.every) if self.every is not None else float("inf")

    def described(self) -> str:
        """It in a sentence."""
        if self.cron is not None:
            return cron_sentence(read_cron(self.cron).text, self.zone)
        if self.every is not None:
            return every_sentence(seconds(self.every))
        at = local(self._once(), self._zone)
        shown = f"{at:%Y-%m-%d %H:%M:%S}" if at.second else f"{at:%Y-%m-%d %H:%M}"
        return f"Once, at {shown} in {self.zone}."

    @property
    def _zone(self) -> ZoneInfo:
        return zone_named(self.zone)

    def _once(self) -> int:
        assert self.at is not None
        return read_local(self.at, self._zone)

    def _even(self, after: int, until: int) -> range:
        """The ticks of `every` or `at` with after < tick <= until: a range takes no room."""
        if self.every is None:
            at = self._once()
            return range(at, at + 1 if after < at <= until else at)
        step = _micros(self.every)
        first = self.anchor + max(0, (after - self.anchor) // step + 1) * step
        return range(first, max(first, until + 1), step)

    def _after(self, at: int) -> Iterator[int]:
        if self.cron is not None:
            return read_cron(self.cron).after(at, self._zone)
        return iter(self._even(at, LAST_SHOWN))

    def _passed(self, cursor: int, now: int, on_time_from: int) -> tuple[Sequence[int], bool]:
        """The ticks with cursor < tick <= now; and whether there are more that are older."""
        if self.cron is None:
            return self._even(cursor, now), False
        found: list[int] = []
        late = 0
        for tick in read_cron(self.cron).until(now, self._zone):
            if tick <= cursor:
                break
            late += tick < on_time_from
            if late > self.limit + MOST_COUNTED:
                return found[::-1], True
            found.append(tick)
        return found[::-1], False


def _micros(duration: Duration) -> int:
    return round(seconds(duration) * SECOND)


def schedule_problems(config: Mapping[str, Any], zone: str) -> list[ScheduleProblem]:
    """All that is wrong with the fields of a schedule; other fields are not looked at."""
    found: list[ScheduleProblem] = []
    given = [way for way in WAYS if config.get(way) is not None]
    if len(given) != 1:
        code = "bad_field" if given else "missing_field"
        them = f", not {' and '.join(given)}" if given else ""
        found.append(ScheduleProblem("", code, f"A schedule has one of {', '.join(WAYS)}{them}."))
    if not is_zone(zone):
        message = f"There is no time zone {show(zone)}."
        found.append(ScheduleProblem("timezone", "unknown_timezone", message, zone_hint(zone)))
        zone = "UTC"  # will do to check the rest
    for field in FIELDS:
        value = config.get(field)
        # Only the ways of giving one may be said to be nothing.
        given_it = value is not None or (field in config and field not in WAYS)
        if given_it and (problem := _CHECKS[field](value, zone)):
            found.append(problem)
    if not found and (problem := _too_much_grace(config)):
        found.append(problem)
    return found


def _check_cron(value: Any, _: str) -> ScheduleProblem | None:
    try:
        read_cron(value)
    except ScheduleInvalid as error:
        return ScheduleProblem("cron", "bad_cron", error.message, error.details["hint"])
    return None


def _check_every(value: Any, _: str) -> ScheduleProblem | None:
    found = _check_duration("every", value)
    if found is None and seconds(value) < 1:
        message = f"every: {show(value)} is less than one second."
        return ScheduleProblem("every", "bad_duration", message, 'Write it like "15m".')
    return found


def _check_at(value: Any, zone: str) -> ScheduleProblem | None:
    hint = 'Write it like "2027-01-31T09:00", or with an offset: "2027-01-31T09:00+01:00".'
    if not isinstance(value, str):
        return ScheduleProblem("at", "bad_time", f"at is a text, not {show(value)}.", hint)
    try:
        read_local(value, zone_named(zone))
    except (ValueError, InvalidInput) as error:
        message = f"at: {show(value)} is no time: {str(error).rstrip('.')}."
        return ScheduleProblem("at", "bad_time", message, hint)
    return None


def _check_misfire(value: Any, _: str) -> ScheduleProblem | None:
    if value in get_args(Misfire):
        return None
    message = f"misfire is skip, latest or all, not {show(value)}."
    return ScheduleProblem("misfire", "bad_field", message)


def _check_limit(value: Any, _: str) -> ScheduleProblem | None:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_LIMIT:
        return None
    message = f"limit is a whole number from 1 to {MAX_LIMIT:,}, not {show(value)}."
    return ScheduleProblem("limit", "bad_field", message)


def _check_grace(value: Any, _: str) -> ScheduleProblem | None:
    return _check_duration("grace", value)


def _check_duration(field: str, value: Any) -> ScheduleProblem | None:
    try:
        seconds(value, field)
    except InvalidInput as error:
        return ScheduleProblem(field, "bad_duration", error.message)
    return None


_CHECKS: Mapping[str, Callable[[Any, str], ScheduleProblem | None]] = {
    "cron": _check_cron, "every": _check_every, "at": _check_at,
    "misfire": _check_misfire, "limit": _check_limit, "grace": _check_grace,
}  # fmt: skip


def _too_much_grace(config: Mapping[str, Any]) -> ScheduleProblem | None:
    """Refuse grace for more ticks than can be started at once."""
    grace = config.get("grace")
    if grace is None or config.get("at") is not None:
        return None
    every = config.get("every")
    apart = 60.0 if every is None else seconds(every)  # no cron expression fires more often
    if seconds(grace) <= apart * MAX_ON_TIME:
        return None
    apart = apart if every is not None else read_cron(config["cron"]).shortest_seconds()
    if seconds(grace) <= apart * MAX_ON_TIME:
        return None
    message = f"grace: in {show(grace)} there may be more than {MAX_ON_TIME:,} ticks, all on time."
    hint = "Shorten it, and write misfire: all with a limit."
    return ScheduleProblem("grace", "bad_field", message, hint)

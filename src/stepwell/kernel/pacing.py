"""What a start may have to wait for, or be refused by, besides limits: times and numbers.

A *throttle* lets so many runs begin in any stretch of time of that length; those above it queue
until it is their turn. A *debounce* waits until starts of one key have been quiet for a while, and
makes one run of them, with the last input. A *quota* is a number that is used up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from stepwell.errors import InvalidDuration, QuotaExceeded
from stepwell.kernel.clock import SECOND
from stepwell.kernel.durations import seconds

# What people write of each, in a policy and at a start.
FIELDS = {"throttle": ("limit", "per", "key"), "debounce": ("wait", "max", "key")}
# How long a debounce puts a run off at the most, by how long it waits, unless said.
LONGEST = 10
MOST_TURNS = 100_000
MAX_PRIORITY = 32_000


class Throttle(msgspec.Struct, frozen=True):
    """At most `limit` runs with this key begin in any `period`, in microseconds."""

    key: str
    limit: int
    period: int


class Debounce(msgspec.Struct, frozen=True):
    """Runs with this key begin once nothing has come for `wait`, or `longest` after the first."""

    key: str
    wait: int
    longest: int


class Quota(msgspec.Struct, frozen=True):
    """A number that starts use up one by one, and what is said once it is reached."""

    key: str
    most: int
    message: str
    # Of the refusal: which limit of which plan it is, and its value.
    facts: dict[str, Any]

    def refusal(self) -> QuotaExceeded:
        return QuotaExceeded(self.message, **self.facts)


def put_off(debounce: Debounce, now: int, first_at: int, due_at: int | None) -> int | None:
    """When a debounced run is due once more has come; one that only waits for room stays so."""
    if due_at is None or due_at <= now:
        return due_at
    return max(min(now + debounce.wait, first_at + debounce.longest), now)


class Fault(NamedTuple):
    """What is wrong with a field of a policy."""

    field: str
    code: str
    message: str


def faults_of(what: str, given: Mapping[str, Any]) -> list[Fault]:
    """All that is wrong with the fields of a throttle or a debounce but for unknown ones."""
    found = []
    if not isinstance(given.get("key", ""), str | None):
        found.append(Fault("key", "bad_field", 'key is a text, like "@input.customer".'))
    if what == "throttle":
        limit = given.get("limit")
        if limit is None:
            found.append(Fault("limit", "missing_field", "A throttle has a limit."))
        elif isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_TURNS:
            said = f"limit is a whole number from 1 to {MOST_TURNS:,}, not {limit!r:.100}."
            found.append(Fault("limit", "bad_field", said))
        return found + _faulty_duration(given, "per")
    found += _faulty_duration(given, "wait")
    if given.get("max") is not None:
        found += _faulty_duration(given, "max")
        if not found and seconds(given["max"]) < seconds(given["wait"]):
            said = "A debounce waits at most as long as its max."
            found.append(Fault("max", "bad_field", said))
    return found


def _faulty_duration(given: Mapping[str, Any], field: str) -> list[Fault]:
    if given.get(field) is None:
        return [Fault(field, "missing_field", f"There must be a {field}.")]
    try:
        long = seconds(given[field], field)
    except InvalidDuration as error:
        return [Fault(field, "bad_duration", error.message)]
    if int(long * SECOND) == 0:
        return [Fault(field, "bad_duration", f"{field} is longer than nothing.")]
    return []


def longest_wait(debounce: Mapping[str, Any]) -> Any:
    """How long it waits at the most after the first."""
    longest = debounce.get("max")
    return LONGEST * seconds(debounce["wait"]) if longest is None else longest


def faulty_priority(value: Any) -> str | None:
    """What is wrong with a priority, if anything is."""
    if type(value) is int and abs(value) <= MAX_PRIORITY:
        return None
    return f"priority is a whole number up to ±{MAX_PRIORITY}, not {value!r:.100}."

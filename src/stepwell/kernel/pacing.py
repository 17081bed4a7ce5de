"""What a start may have to wait for, or be refused by, besides limits: times and numbers.

A *throttle* lets so many runs begin in any stretch of time of that length; those above it queue
until it is their turn. A *debounce* waits until starts of one key have been quiet for a while, and
makes one run of them, with the last input. A *quota* is a number that is used up.
"""

from __future__ import annotations

import msgspec


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


def put_off(debounce: Debounce, now: int, first_at: int, due_at: int | None) -> int | None:
    """When a debounced run is due once more has come; one that only waits for room stays so."""
    if due_at is None or due_at <= now:
        return due_at
    return max(min(now + debounce.wait, first_at + debounce.longest), now)

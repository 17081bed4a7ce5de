"""What a definition says of how many, for runs of it that are queued: others stand behind them.

Only what the definition itself has said is changed. What else a run is filed under was given to it
at its start, and is its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stepwell.kernel.limits import UNLIMITED, key_limit
from stepwell.record import Amendment


class Repaced(NamedTuple):
    """Rows of `limits` whose keys are in a range: which, and what is to be in them."""

    where: str
    sets: str
    first: str
    end: str


# Throttles, whose keys may be hashes.
THROTTLES = ("throttle:", "throttle;")
# Runs of the definition $2 in the workspace $1 that are queued. SQLite needs the index's own words.
QUEUED = """workspace_id = $1 AND definition = $2 AND status = 'pending'
    AND status <> 'completed' AND limited"""

_WAITING = "NOT admitted AND capacity IS NOT NULL"


def repaced(workspace_id: str, amendment: Amendment) -> list[Repaced]:
    """What an amendment changes in queues; nothing if the definition says what it has said."""
    if (now := amendment.paces) is None:
        return []
    return [
        *_slots(workspace_id, amendment.definition.name, now.concurrency_limit,
                {each.concurrency_limit for each in amendment.paces_before}),
        *_turns((now.throttle_limit, now.throttle_period),
                {(each.throttle_limit, each.throttle_period) for each in amendment.paces_before}),
    ]  # fmt: skip


def _slots(
    workspace_id: str, name: str, now: int | None, before: Iterable[int | None]
) -> list[Repaced]:
    wanted = UNLIMITED if now is None else now
    others = {UNLIMITED if each is None else each for each in before} - {wanted}
    if not others:
        return []
    said = ", ".join(map(str, sorted(others)))
    where = f"{_WAITING} AND period IS NULL AND capacity IN ({said})"
    # A key begins with the name, or if it is a hash, with what a hash keeps of that.
    keys = [key_limit(workspace_id, each) for each in sorted({name, name[:50]})]
    return [Repaced(where, f"capacity = {wanted}", f"{key}:", f"{key};") for key in keys]


def _turns(
    now: tuple[int | None, int | None], before: Iterable[tuple[int | None, int | None]]
) -> list[Repaced]:
    others = set(before) - {now}
    if not others:
        return []
    # One that was taken away has left a period that means nothing.
    said = [
        f"capacity = {UNLIMITED}"
        if limit is None
        else f"(capacity = {limit} AND period = {period})"
        for limit, period in sorted(others, key=str)
    ]
    where = f"{_WAITING} AND period IS NOT NULL AND ({' OR '.join(said)})"
    limit, period = now
    sets = f"capacity = {UNLIMITED}" if limit is None else f"capacity = {limit}, period = {period}"
    return [Repaced(where, sets, *THROTTLES)]

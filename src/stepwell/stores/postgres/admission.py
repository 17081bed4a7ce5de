"""Admitting picked runs on PostgreSQL: each takes its slots, or queues behind a full limit."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from stepwell.kernel.changes import Committed
from stepwell.stores.postgres.limits import (
    ANSWERABLE,
    Key,
    room_taken,
    take_turns,
    wake_queued,
)
from stepwell.stores.postgres.locking import try_lock

# By their ids, what runs need room in, and of how much.
Own = dict[str, list[tuple[Key, int]]]


async def admit(
    db: asyncpg.Connection, run_ids: Sequence[str], now: int, done: Committed
) -> tuple[list[str], bool]:
    """Of these locked runs, in this order, those that got their slots and turns.

    Also whether some were passed over because another batch is at work on their limits.
    """
    called_for, own = await _limits(db, run_ids)
    locked = await try_lock(db, {key for limits in own.values() for (key, _), _ in limits})
    keys = {each for limits in own.values() for each, _ in limits if each[0] in locked}
    taken = await room_taken(db, keys, now)
    more = dict.fromkeys(locked, 0)  # what these runs take, or give back
    admitted: list[str] = []
    turns: list[tuple[str, int, str]] = []
    blocked: dict[str, str] = {}
    wanted: dict[str, None] = {}  # limits that somebody may have to be called for
    passed_over = False
    for run_id in run_ids:
        limits, call = own.get(run_id, []), called_for[run_id]
        if any(key not in locked for (key, _), _ in limits):
            passed_over = True
            continue
        if call in more:
            more[call] -= 1  # being called up counted as one of the limit's slots
        full = next((each for each, most in limits if taken[each] + more[each[0]] >= most), None)
        if full is None:
            admitted.append(run_id)
            for (key, period), _ in limits:
                more[key] += 1
                if period is not None:
                    turns.append((key, period, run_id))
                    wanted[key] = None
        else:
            blocked[run_id] = full[0]
            if full[1] is not None:
                wanted[full[0]] = None
            if call in more and call != full[0]:
                wanted[call] = None  # its call goes to the next in line
    await _write(db, admitted, blocked)
    if turns:
        await take_turns(db, turns, now)
    if wanted:
        await wake_queued(db, list(wanted), now, done)
    return admitted, passed_over


async def _limits(
    db: asyncpg.Connection, run_ids: Sequence[str]
) -> tuple[dict[str, str | None], Own]:
    """For each run the limit that counts its call, and the limits in which it needs a slot."""
    rows = await db.fetch(
        f"""SELECT r.id, CASE WHEN {ANSWERABLE} THEN r.blocked_on END, l.limit_key, l.capacity,
               l.period
           FROM runs r LEFT JOIN LATERAL (
               SELECT limit_key, capacity, period FROM limits WHERE run_id = r.id AND slot = r.id
                  AND capacity IS NOT NULL AND NOT admitted OFFSET 0) l ON true
           WHERE r.id = ANY($1) ORDER BY l.limit_key""",
        run_ids,
    )
    called_for: dict[str, str | None] = {}
    own: Own = {}
    for run_id, blocked_on, key, capacity, period in rows:
        called_for[run_id] = blocked_on
        if key is not None:
            own.setdefault(run_id, []).append(((key, period), capacity))
    return called_for, own


async def _write(db: asyncpg.Connection, admitted: Sequence[str], blocked: dict[str, str]) -> None:
    if admitted:
        await db.fetch("UPDATE limits SET admitted = true WHERE run_id = ANY($1)", admitted)
        await db.fetch("UPDATE runs SET blocked_on = NULL WHERE id = ANY($1)", admitted)
    if blocked:
        await db.fetch(
            """UPDATE runs r SET due_at = NULL, blocked_on = g.limit_key
               FROM unnest($1::text[], $2::text[]) AS g (id, limit_key)
               WHERE r.id = ANY($1) AND r.id = g.id""",
            list(blocked),
            list(blocked.values()),
        )

"""Admitting picked runs on PostgreSQL: each takes its slots, or queues behind a full limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from stepwell.kernel.changes import Committed
from stepwell.stores.postgres.limits import (
    ANSWERABLE,
    Key,
    Rank,
    Room,
    rooms_of,
    take_turns,
    wake_queued,
)
from stepwell.stores.postgres.locking import try_lock


class _Asking(NamedTuple):
    """A run that is about to begin."""

    rank: Rank
    # The limit that counts its call, if it was called.
    call: str | None
    # What it needs room in, and of how much.
    limits: list[tuple[Key, int]]


async def admit(
    db: asyncpg.Connection, run_ids: Sequence[str], now: int, done: Committed
) -> tuple[list[str], bool]:
    """Of these locked runs, in this order, those that got their slots and turns.

    Also whether some were passed over because another batch is at work on their limits.
    """
    asking = await _asking(db, run_ids)
    locked = await try_lock(db, {key for each in asking.values() for (key, _), _ in each.limits})
    keys = {each for a in asking.values() for each, _ in a.limits if each[0] in locked}
    rooms = await rooms_of(db, keys, now)
    by_name: dict[str | None, list[Room]] = {key: [] for key in locked}
    for each in keys:
        by_name[each[0]].append(rooms[each])
    admitted: list[str] = []
    turns: list[tuple[str, int, str]] = []
    blocked: dict[str, str] = {}
    wanted: dict[str, None] = {}  # limits that somebody may have to be called for
    passed_over = False
    for run_id in run_ids:
        rank, call, limits = asking[run_id]
        if any(key not in locked for (key, _), _ in limits):
            passed_over = True
            continue
        for room in by_name.get(call, ()):
            room.answer(rank)  # being called up counted as one of the limit's slots
        full = next((e for e, most in limits if rooms[e].taken_before(rank) >= most), None)
        if full is None:
            admitted.append(run_id)
            for (key, period), _ in limits:
                for room in by_name[key]:
                    room.take()
                if period is not None:
                    turns.append((key, period, run_id))
                    wanted[key] = None
        else:
            blocked[run_id] = full[0]
            if full[1] is not None:
                wanted[full[0]] = None
            if call is not None and call in by_name and call != full[0]:
                wanted[call] = None  # its call goes to the next in line
    await _write(db, admitted, blocked)
    if turns:
        await take_turns(db, turns, now)
    if wanted:
        await wake_queued(db, list(wanted), now, done)
    return admitted, passed_over


async def _asking(db: asyncpg.Connection, run_ids: Sequence[str]) -> dict[str, _Asking]:
    """These runs, with the limits in which each needs a slot."""
    rows = await db.fetch(
        f"""SELECT r.id, r.priority, CASE WHEN {ANSWERABLE} THEN r.blocked_on END, l.limit_key,
               l.capacity, l.period
           FROM runs r LEFT JOIN LATERAL (
               SELECT limit_key, capacity, period FROM limits WHERE run_id = r.id AND slot = r.id
                  AND capacity IS NOT NULL AND NOT admitted OFFSET 0) l ON true
           WHERE r.id = ANY($1) ORDER BY l.limit_key""",
        run_ids,
    )
    found: dict[str, _Asking] = {}
    for run_id, priority, call, key, capacity, period in rows:
        asking = found.setdefault(run_id, _Asking((-priority, run_id), call, []))
        if key is not None:
            asking.limits.append(((key, period), capacity))
    return found


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

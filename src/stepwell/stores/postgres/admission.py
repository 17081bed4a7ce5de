"""Admitting picked runs on PostgreSQL: each takes its slots, or queues behind a full limit."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from stepwell.kernel.changes import Committed
from stepwell.stores.postgres.limits import ANSWERABLE, slots_taken, wake_queued
from stepwell.stores.postgres.locking import limit_name

Own = dict[str, list[tuple[str, int]]]


async def admit(
    db: asyncpg.Connection, run_ids: Sequence[str], now: int, done: Committed
) -> tuple[list[str], bool]:
    """Of these locked runs, in this order, those that got their slots.

    Also whether some were passed over because another batch is at work on their limits.
    """
    called_for, own = await _limits(db, run_ids)
    locked = await _try_locks(db, {key for limits in own.values() for key, _ in limits})
    taken = await slots_taken(db, locked)
    admitted: list[str] = []
    blocked: dict[str, str] = {}
    free: set[str] = set()
    passed_over = False
    for run_id in run_ids:
        limits, call = own.get(run_id, []), called_for[run_id]
        if any(key not in locked for key, _ in limits):
            passed_over = True
            continue
        if call in taken:
            taken[call] -= 1  # being called up counted as one of the limit's slots
        full = next((key for key, capacity in limits if taken[key] >= capacity), None)
        if full is None:
            admitted.append(run_id)
            for key, _ in limits:
                taken[key] += 1
        else:
            blocked[run_id] = full
            if call in taken and call != full:
                free.add(call)  # its call goes to the next in line
    await _write(db, admitted, blocked)
    if free:
        await wake_queued(db, free, now, done)
    return admitted, passed_over


async def _limits(
    db: asyncpg.Connection, run_ids: Sequence[str]
) -> tuple[dict[str, str | None], Own]:
    """For each run the limit that counts its call, and the limits in which it needs a slot."""
    rows = await db.fetch(
        f"""SELECT r.id, CASE WHEN {ANSWERABLE} THEN r.blocked_on END, l.limit_key, l.capacity
           FROM runs r LEFT JOIN LATERAL (
               SELECT limit_key, capacity FROM limits WHERE run_id = r.id AND slot = r.id
                  AND capacity IS NOT NULL AND NOT admitted OFFSET 0) l ON true
           WHERE r.id = ANY($1) ORDER BY l.limit_key""",
        run_ids,
    )
    called_for: dict[str, str | None] = {}
    own: Own = {}
    for run_id, blocked_on, key, capacity in rows:
        called_for[run_id] = blocked_on
        if key is not None:
            own.setdefault(run_id, []).append((key, capacity))
    return called_for, own


async def _try_locks(db: asyncpg.Connection, keys: set[str]) -> set[str]:
    """Lock limits, as far as that is possible at once: to wait here would be out of order."""
    rows = await db.fetch(
        """SELECT k.key FROM unnest($1::text[], $2::text[]) AS k (key, name)
           WHERE pg_try_advisory_xact_lock(hashtextextended(k.name, 0))""",
        list(keys),
        [limit_name(key) for key in keys],
    )
    return {row[0] for row in rows}


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

"""Concurrency limits on PostgreSQL: counting slots and calling up queued runs.

Whoever calls these holds the lock on the name of each limit, so that counts stay true.
"""

from __future__ import annotations

from collections.abc import Collection

import asyncpg

from stepwell.kernel.changes import Committed

# Whether some worker could execute the run `r`; only such a run is called up, and a call that
# nobody is left to answer holds no slot.
ANSWERABLE = """(r.workspace_id, r.program) IN (
        SELECT w.workspace_id, jsonb_array_elements_text(w.programs::jsonb) FROM workers w)"""

# Slots in use: those of runs at work, and those of runs called up but not yet claimed.
TAKEN = f"""(SELECT count(DISTINCT l.slot) FROM limits l
             WHERE l.limit_key = k.key AND l.admitted AND l.capacity IS NOT NULL)
          + (SELECT count(*) FROM runs r
             WHERE r.blocked_on = k.key AND r.due_at IS NOT NULL AND {ANSWERABLE})"""

# What the first run in the queue says the limit's capacity is.
CAPACITY = f"""(SELECT (SELECT capacity FROM limits WHERE run_id = r.id AND limit_key = k.key)
                FROM runs r WHERE r.blocked_on = k.key AND r.due_at IS NULL AND {ANSWERABLE}
                ORDER BY r.priority DESC, r.id LIMIT 1)"""


async def slots_taken(db: asyncpg.Connection, keys: Collection[str]) -> dict[str, int]:
    rows = await db.fetch(f"SELECT k.key, {TAKEN} FROM unnest($1::text[]) AS k (key)", list(keys))
    return {row[0]: row[1] for row in rows}


async def wake_queued(
    db: asyncpg.Connection, keys: Collection[str], now: int, done: Committed
) -> None:
    """Make as many queued runs due as each limit has room for, best first."""
    rows = await db.fetch(
        f"""SELECT k.key, {TAKEN}, {CAPACITY} FROM unnest($1::text[]) AS k (key)""", list(keys)
    )
    called: list[str] = []
    for key, taken, capacity in rows:
        if capacity is not None and taken < capacity:
            called += await _first_in_queue(db, key, taken, capacity - taken)
    if called:
        await db.fetch(
            "UPDATE runs SET due_at = least(created_at, $2) WHERE id = ANY($1)", called, now
        )
        done.due = True


async def _first_in_queue(db: asyncpg.Connection, key: str, taken: int, room: int) -> list[str]:
    # A queued run that somebody has locked is passed over: waiting here would be out of order.
    rows = await db.fetch(
        f"""SELECT r.id, (SELECT capacity FROM limits WHERE run_id = r.id AND limit_key = $1)
           FROM runs r WHERE r.blocked_on = $1 AND r.due_at IS NULL AND {ANSWERABLE}
           ORDER BY r.priority DESC, r.id LIMIT $2 FOR UPDATE OF r SKIP LOCKED""",
        key,
        room,
    )
    called: list[str] = []
    for run_id, capacity in rows:
        if taken + len(called) >= capacity:
            break
        called.append(run_id)
    return called

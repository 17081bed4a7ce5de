"""Deleting from PostgreSQL what is old: runs with all that belongs to them, and events."""

from __future__ import annotations

import asyncpg

from stepwell.stores.rules import COUNT_OF_A_RUN, OF_A_RUN


async def prune(db: asyncpg.Connection, now: int, limit: int, rows: int) -> int:
    async with db.transaction():
        old = await _old_runs(db, now, limit, rows)
        for own in OF_A_RUN:
            await db.execute(f"DELETE FROM {own} run_id = ANY($1)", old)
        await db.execute("DELETE FROM runs WHERE id = ANY($1)", old)
    return len(old)


async def _old_runs(db: asyncpg.Connection, now: int, limit: int, rows: int) -> list[str]:
    """Lock the runs that go next: as many as have so many rows between them, but at least one."""
    old: list[str] = []
    # A few at a time: once they are enough, the rows of further runs are not even counted.
    async for run_id, own in db.cursor(
        f"""SELECT id, {COUNT_OF_A_RUN}
            FROM runs r WHERE prune_at <= $1 AND NOT EXISTS (
                SELECT FROM runs p WHERE p.id = r.parent_run_id AND p.completed_at IS NULL)
            ORDER BY prune_at LIMIT $2 FOR UPDATE SKIP LOCKED""",
        now,
        limit,
        prefetch=10,
    ):
        rows -= own
        if old and rows < 0:
            break
        old.append(run_id)
    return old


async def prune_events(db: asyncpg.Connection, before: int, limit: int) -> int:
    rows = await db.fetch(
        """DELETE FROM events WHERE id = ANY(ARRAY(
               SELECT id FROM events WHERE run_id IS NULL AND created_at < $1 AND pending IS NULL
               ORDER BY created_at LIMIT $2)) RETURNING id""",
        before,
        limit,
    )
    return len(rows)

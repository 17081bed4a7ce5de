"""Deleting from SQLite what is old: runs with all that belongs to them, and events."""

from __future__ import annotations

import apsw

from stepwell.stores.rules import COUNT_OF_A_RUN, OF_A_RUN
from stepwell.stores.sqlite.rows import pack, run, writing


def prune(db: apsw.Connection, now: int, limit: int, rows: int) -> int:
    with writing(db):
        old = _old_runs(db, now, limit, rows)
        ids = pack(old)
        for own in OF_A_RUN:
            run(db, f"DELETE FROM {own} run_id IN (SELECT value FROM json_each(?))", ids)
        run(db, "DELETE FROM runs WHERE id IN (SELECT value FROM json_each(?))", ids)
    return len(old)


def _old_runs(db: apsw.Connection, now: int, limit: int, rows: int) -> list[str]:
    """The runs that go next: as many as have so many rows between them, but at least one."""
    old: list[str] = []
    # Row by row: once they are enough, the rows of further runs are not even counted.
    for run_id, own in db.execute(
        f"""SELECT id, {COUNT_OF_A_RUN}
            FROM runs r WHERE prune_at <= ? AND NOT EXISTS (
                SELECT 1 FROM runs WHERE id = r.parent_run_id AND completed_at IS NULL)
            ORDER BY prune_at LIMIT ?""",
        (now, limit),
    ):
        rows -= own
        if old and rows < 0:
            break
        old.append(run_id)
    return old


def prune_events(db: apsw.Connection, before: int, limit: int) -> int:
    run(
        db,
        """DELETE FROM events WHERE id IN (
               SELECT id FROM events WHERE run_id IS NULL AND created_at < ? AND pending IS NULL
               ORDER BY created_at LIMIT ?)""",
        before,
        limit,
    )
    return db.changes()

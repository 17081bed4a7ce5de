"""How runs end on SQLite, and what that sets free: parents, queued runs, waits."""

from __future__ import annotations

from typing import Any

import apsw

from stepwell.kernel.changes import Committed
from stepwell.kernel.outcomes import Ending, child_result
from stepwell.kernel.states import OPEN, quoted
from stepwell.stores.sqlite.limits import wake_queued
from stepwell.stores.sqlite.rows import one, pack, run, run_rows, unpack


def finish(db: apsw.Connection, endings: list[Ending], done: Committed) -> None:
    """End these runs. Steps and waits that were still open are skipped."""
    if not endings:
        return
    run_rows(
        db,
        """WITH e (id, status, at) AS (VALUES {rows})
           UPDATE runs SET status = e.status, completed_at = e.at, owner = NULL,
               due_at = NULL, expires_at = NULL, blocked_on = NULL,
               prune_at = e.at + retention_seconds * 1000000
           FROM e WHERE runs.id = e.id""",
        [(e.run_id, e.status, e.completed_at) for e in endings],
    )
    bodies = [(e.run_id, "output", e.output) for e in endings if e.output is not None]
    bodies += [(e.run_id, "error", e.error) for e in endings if e.error is not None]
    run_rows(db, "INSERT OR REPLACE INTO payloads (run_id, kind, body) VALUES {rows}", bodies)
    ids = pack([ending.run_id for ending in endings])
    done.ended.extend(ending.run_id for ending in endings)
    # Most runs leave nothing behind; one look is cheaper than finding that out five times.
    found = one(
        db,
        f"""WITH e (id) AS MATERIALIZED (SELECT value FROM json_each(?))
            SELECT EXISTS (SELECT 1 FROM waits WHERE run_id IN e),
                EXISTS (SELECT 1 FROM steps WHERE run_id IN e AND status IN ({quoted(OPEN)})),
                EXISTS (SELECT 1 FROM waits WHERE child_run_id IN e AND ended_at IS NULL),
                EXISTS (SELECT 1 FROM limits WHERE run_id IN e)""",
        ids,
    )
    assert found is not None
    waits, open_steps, awaited, limited = found
    if waits:
        _drop_waits(db, ids)
    if open_steps:
        run(
            db,
            f"""UPDATE steps SET status = 'skipped'
               WHERE run_id IN (SELECT value FROM json_each(?))
                 AND status IN ({quoted(OPEN)})""",
            ids,
        )
    if awaited:
        _tell_parents(db, endings, ids, done)
    if limited:
        _free_slots(db, ids, endings[-1].completed_at, done)


def _drop_waits(db: apsw.Connection, ids: str) -> None:
    run(
        db,
        """INSERT OR IGNORE INTO steps
           SELECT run_id, key, seq, 0, kind, 'skipped', 1, '"' || child_run_id || '"', NULL,
               created_at, NULL
           FROM waits WHERE run_id IN (SELECT value FROM json_each(?))""",
        ids,
    )
    run(db, "DELETE FROM waits WHERE run_id IN (SELECT value FROM json_each(?))", ids)


def _tell_parents(db: apsw.Connection, endings: list[Ending], ids: str, done: Committed) -> None:
    waiting = unpack(
        db,
        """SELECT json_group_array(json_array(w.run_id, w.key, w.child_run_id))
           FROM json_each(?) c
           CROSS JOIN waits w ON w.child_run_id = c.value AND w.ended_at IS NULL""",
        ids,
    )
    by_id = {ending.run_id: ending for ending in endings}
    results = [
        [run_id, key, child_result(e.status, e.output, e.error), e.completed_at]
        for run_id, key, child in waiting
        for e in [by_id[child]]
    ]
    end_waits(db, results, done)


def end_waits(db: apsw.Connection, results: list[list[Any]], done: Committed) -> None:
    """End waits (run, key, result, when) and make their runs due."""
    if not results:
        return
    rows = pack(results)
    run(
        db,
        """UPDATE waits SET result = e.value->>2, ended_at = e.value->>3
           FROM json_each(?) e WHERE waits.run_id = e.value->>0 AND waits.key = e.value->>1""",
        rows,
    )
    run(
        db,
        """UPDATE runs SET due_at = e.value->>3 FROM json_each(?) e
           WHERE runs.id = e.value->>0 AND runs.status IN ('running', 'waiting')
             AND (runs.due_at IS NULL OR runs.due_at > e.value->>3)""",
        rows,
    )
    done.due = True


def _free_slots(db: apsw.Connection, ids: str, now: int, done: Committed) -> None:
    keys = unpack(
        db,
        """SELECT json_group_array(DISTINCT l.limit_key) FROM json_each(?) e
           CROSS JOIN limits l ON l.run_id = e.value""",
        ids,
    )
    run(db, "DELETE FROM limits WHERE run_id IN (SELECT value FROM json_each(?))", ids)
    for key in keys:
        wake_queued(db, key, now, done)

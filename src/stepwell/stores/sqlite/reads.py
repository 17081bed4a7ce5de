"""Reading from SQLite: runs, steps, workers and what explains them."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from operator import itemgetter

import apsw

from stepwell.kernel.explaining import RunFacts
from stepwell.kernel.outcomes import read_error
from stepwell.kernel.run import Run, Step, WorkerInfo
from stepwell.kernel.views import (
    attempts_by_key,
    run_from_row,
    step_from_row,
    step_from_wait,
    wait_fact,
    worker_from_row,
)
from stepwell.record import VersionRow
from stepwell.store import Found, RunFilter, RunOutline
from stepwell.stores.finding import COUNTS, RUN, Finding, counted, lanes
from stepwell.stores.sqlite.limits import slots_taken, turn_after
from stepwell.stores.sqlite.rows import all_rows, numbered, one, pack, reading, unpack


def get_run(db: apsw.Connection, workspace_id: str, run_id: str) -> Run | None:
    row = one(db, f"{RUN} FROM runs r WHERE r.id = ? AND r.workspace_id = ?", run_id, workspace_id)
    return None if row is None else run_from_row(row)


def started(db: apsw.Connection, workspace_id: str, definition: str, key: str) -> str | None:
    row = one(
        db,
        """SELECT id FROM runs
           WHERE workspace_id = ?1 AND definition = ?2 AND idempotency_key = ?3
           UNION ALL SELECT run_id FROM absorbed
           WHERE workspace_id = ?1 AND definition = ?2 AND idempotency_key = ?3 LIMIT 1""",
        workspace_id,
        definition,
        key,
    )
    return None if row is None else row[0]


def ended(db: apsw.Connection, run_ids: Sequence[str]) -> list[str]:
    return unpack(
        db,
        """SELECT json_group_array(value) FROM json_each(?) WHERE NOT EXISTS (
               SELECT 1 FROM runs WHERE id = value AND completed_at IS NULL)""",
        pack(list(run_ids)),
    )


def lost(db: apsw.Connection, held: Sequence[tuple[str, str, int]]) -> list[str]:
    return unpack(
        db,
        """SELECT json_group_array(h.value->>0) FROM json_each(?) h WHERE NOT EXISTS (
               SELECT 1 FROM runs WHERE id = h.value->>0
                  AND owner = h.value->>1 AND fence = h.value->>2)""",
        pack(list(held)),
    )


def list_runs(db: apsw.Connection, where: RunFilter) -> Found:
    # Newest first is the order of the ids. An index that does not give that order, or has all that
    # is of a definition, would have SQLite go through very many: the plus keeps it from that.
    found = Finding(where)
    each = (db.execute(numbered(lane.sql), lane.values) for lane in lanes(where, aside="+"))
    for row in heapq.merge(*each, key=itemgetter(0), reverse=True):
        if not found.take(run_from_row(row)):
            break
    return found.found


def count_runs(db: apsw.Connection, workspace_id: str) -> dict[str, dict[str, int]]:
    return counted(all_rows(db, numbered(COUNTS), workspace_id))


def outlines(db: apsw.Connection, run_ids: Sequence[str]) -> list[RunOutline]:
    found = all_rows(
        db,
        """SELECT id, definition, version, status, created_at, completed_at, trigger FROM runs
           WHERE id IN (SELECT value FROM json_each(?))""",
        pack(list(run_ids)),
    )
    return [RunOutline(*row) for row in found]


def unclaimed(db: apsw.Connection, workspace_id: str, before: int) -> tuple[int, str | None]:
    row = one(
        db,
        """SELECT count(*), min(id) FROM runs
           WHERE workspace_id = ? AND due_at <= ? AND owner IS NULL""",
        workspace_id,
        before,
    )
    assert row is not None
    return row[0], row[1]


def steps(db: apsw.Connection, run_id: str) -> list[Step]:
    with reading(db):
        failures = attempts_by_key(
            all_rows(
                db,
                """SELECT key, number, error, started_at, failed_at FROM attempts
                   WHERE run_id = ? ORDER BY key, number""",
                run_id,
            )
        )
        recorded = all_rows(
            db,
            """SELECT seq, key, kind, status, attempts, output, error, started_at, completed_at
               FROM steps WHERE run_id = ? AND kind <> 'now'""",
            run_id,
        )
        waits = all_rows(
            db,
            """SELECT seq, key, kind, created_at, ended_at, about FROM waits
               WHERE run_id = ?1 AND key NOT IN (SELECT key FROM steps WHERE run_id = ?1)""",
            run_id,
        )
    found = [(row[0], step_from_row(row[1:], failures)) for row in recorded]
    found += [(row[0], step_from_wait(row[1:])) for row in waits]
    return [step for _, step in sorted(found, key=lambda pair: pair[0])]


def workers(db: apsw.Connection, workspace_id: str, now: int) -> list[WorkerInfo]:
    rows = all_rows(
        db,
        """SELECT id, host, pid, concurrency, programs, started_at, heartbeat_at, expires_at
           FROM workers WHERE workspace_id = ? ORDER BY started_at, id""",
        workspace_id,
    )
    return [worker_from_row(row, now) for row in rows]


def version(
    db: apsw.Connection, workspace_id: str, name: str, version: int | None
) -> VersionRow | None:
    row = one(
        db,
        """SELECT v.name, v.version, v.kind, v.program, v.retention_seconds,
                  v.max_concurrent_runs, v.deadline_seconds, v.revision, coalesce(d.enabled, 1),
                  v.label, v.max_queued_runs
           FROM versions v LEFT JOIN definitions d
             ON d.workspace_id = v.workspace_id AND d.name = v.name
           WHERE v.workspace_id = ?1 AND v.name = ?2 AND (?3 IS NULL OR v.version = ?3)
           ORDER BY v.version DESC LIMIT 1""",
        workspace_id,
        name,
        version,
    )
    return None if row is None else VersionRow(*row)


def definition_names(db: apsw.Connection, workspace_id: str) -> list[str]:
    sql = "SELECT DISTINCT name FROM versions WHERE workspace_id = ? ORDER BY name"
    return [row[0] for row in all_rows(db, sql, workspace_id)]


def facts(db: apsw.Connection, workspace_id: str, run_id: str, now: int) -> RunFacts | None:
    with reading(db):
        row = one(
            db,
            """SELECT id, definition, version, program, status, due_at, owner, blocked_on, priority,
                      (SELECT body FROM payloads WHERE run_id = r.id AND kind = 'error'), paced_by
               FROM runs r WHERE id = ? AND workspace_id = ?""",
            run_id,
            workspace_id,
        )
        if row is None:
            return None
        blocked_on, priority = row[7], row[8]
        capacity = one(
            db,
            "SELECT capacity, period FROM limits WHERE run_id = ? AND limit_key = ?",
            run_id,
            blocked_on,
        )
        taken = 0 if blocked_on is None else slots_taken(db, blocked_on)
        holders = all_rows(
            db,
            """SELECT DISTINCT slot FROM limits WHERE limit_key = ? AND admitted = 1
                AND capacity IS NOT NULL LIMIT 20""",
            blocked_on,
        )
        ahead = one(
            db,
            """SELECT count(*) FROM runs WHERE blocked_on = ?1
                AND (priority > ?2 OR (priority = ?2 AND id < ?3))""",
            blocked_on,
            priority,
            run_id,
        )
        turn_at = None
        if capacity is not None and capacity[1] is not None and ahead is not None:
            turn_at = turn_after(db, blocked_on, capacity[0], capacity[1], ahead[0], now)
        running = all_rows(
            db,
            "SELECT key FROM steps WHERE run_id = ? AND status = 'running' ORDER BY seq LIMIT 10",
            run_id,
        )
        waits = all_rows(
            db,
            """SELECT key, kind, due_at, event, match, child_run_id, about FROM waits
               WHERE run_id = ? AND ended_at IS NULL ORDER BY seq LIMIT 100""",
            run_id,
        )
        found = workers(db, workspace_id, now)
    return RunFacts(
        run_id=row[0],
        definition=row[1],
        version=row[2],
        program=row[3],
        status=row[4],
        now=now,
        due_at=row[5],
        owner=row[6],
        blocked_on=blocked_on,
        limit_capacity=capacity[0] if capacity else None,
        limit_taken=taken,
        limit_holders=[holder[0] for holder in holders],
        queued_ahead=ahead[0] if ahead else 0,
        running_steps=[step[0] for step in running],
        waits=[wait_fact(w) for w in waits],
        workers=found,
        error=read_error(row[9]),
        paced_by=row[10],
        turn_at=turn_at,
    )

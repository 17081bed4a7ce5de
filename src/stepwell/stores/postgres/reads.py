"""Reading from PostgreSQL: runs, steps, workers and what explains them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import asyncpg
import msgspec
from asyncpg.transaction import Transaction

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
from stepwell.stores.postgres.columns import Columns, pack_texts, packable, texts
from stepwell.stores.postgres.limits import TAKEN, turn_after

_HELD = Columns("id text", "owner text", "fence integer")


def _snapshot(db: asyncpg.Connection) -> Transaction:
    """A transaction in which all statements see the same state of the database."""
    return db.transaction(isolation="repeatable_read", readonly=True)


async def get_runs(
    db: asyncpg.Connection, wanted: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Run]:
    """Runs by workspace and id."""
    rows = await db.fetch(
        f"{RUN}, r.workspace_id FROM runs r WHERE r.id = ANY($1)", [run_id for _, run_id in wanted]
    )
    return {(row["workspace_id"], row["id"]): run_from_row(row[:-1]) for row in rows}


async def started(
    db: asyncpg.Connection, workspace_id: str, definition: str, key: str
) -> str | None:
    found: str | None = await db.fetchval(
        """SELECT id FROM runs
           WHERE workspace_id = $1 AND definition = $2 AND idempotency_key = $3
           UNION ALL SELECT run_id FROM absorbed
           WHERE workspace_id = $1 AND definition = $2 AND idempotency_key = $3 LIMIT 1""",
        workspace_id,
        definition,
        key,
    )
    return found


async def ended(db: asyncpg.Connection, run_ids: Sequence[str]) -> list[str]:
    rows = await db.fetch(
        f"""SELECT g.id FROM unnest({texts("$1")}) AS g (id) WHERE NOT EXISTS (
                SELECT FROM runs r WHERE r.id = g.id AND r.completed_at IS NULL)""",
        pack_texts(run_ids),
    )
    return [row[0] for row in rows]


async def lost(db: asyncpg.Connection, held: Sequence[tuple[str, str, int]]) -> list[str]:
    if not held:
        return []
    rows = await db.fetch(
        f"""SELECT g.id FROM ({_HELD.sql}) g
            WHERE NOT EXISTS (SELECT FROM runs r WHERE r.id = g.id AND r.owner = g.owner
                                 AND r.fence = g.fence)""",
        *_HELD.pack(held),
    )
    return [row[0] for row in rows]


async def list_runs(db: asyncpg.Connection, where: RunFilter) -> Found:
    if not all(text is None or packable(text) for text in (where.definition, where.before_id)):
        return Found([], None)
    found, size = Finding(where), where.limit + 1
    while True:
        rows = [
            row
            for sql, values in lanes(where)
            for row in await db.fetch(f"{sql} LIMIT {size}", *values)
        ]
        page = sorted(rows, key=itemgetter(0), reverse=True)[:size]
        if not all(found.take(run_from_row(tuple(row))) for row in page) or len(rows) < size:
            return found.found
        where = msgspec.structs.replace(where, before_id=page[-1][0])


async def count_runs(db: asyncpg.Connection, workspace_id: str) -> dict[str, dict[str, int]]:
    return counted(map(tuple, await db.fetch(COUNTS, workspace_id)))


async def outlines(db: asyncpg.Connection, run_ids: Sequence[str]) -> list[RunOutline]:
    rows = await db.fetch(
        """SELECT id, definition, version, status, created_at, completed_at, trigger FROM runs
           WHERE id = ANY($1::text[])""",
        list(run_ids),
    )
    return [RunOutline(*row) for row in rows]


async def unclaimed(
    db: asyncpg.Connection, workspace_id: str, before: int
) -> tuple[int, str | None]:
    row = await db.fetchrow(
        """SELECT count(*), min(id) FROM runs
           WHERE workspace_id = $1 AND due_at <= $2 AND owner IS NULL""",
        workspace_id,
        before,
    )
    assert row is not None
    return row[0], row[1]


async def steps(db: asyncpg.Connection, run_id: str) -> list[Step]:
    async with _snapshot(db):
        failed = await db.fetch(
            """SELECT key, number, error, started_at, failed_at FROM attempts
               WHERE run_id = $1 ORDER BY key, number""",
            run_id,
        )
        failures = attempts_by_key(map(tuple, failed))
        recorded = await db.fetch(
            """SELECT seq, key, kind, status, attempts, output, error, started_at, completed_at
               FROM steps WHERE run_id = $1 AND kind <> 'now'""",
            run_id,
        )
        waits = await db.fetch(
            """SELECT w.seq, w.key, w.kind, w.created_at, w.ended_at, w.about FROM waits w
               WHERE w.run_id = $1 AND NOT EXISTS (
                   SELECT FROM steps s WHERE s.run_id = w.run_id AND s.key = w.key)""",
            run_id,
        )
    found = [(row[0], step_from_row(row[1:], failures)) for row in recorded]
    found += [(row[0], step_from_wait(row[1:])) for row in waits]
    return [step for _, step in sorted(found, key=lambda pair: pair[0])]


async def workers(db: asyncpg.Connection, workspace_id: str, now: int) -> list[WorkerInfo]:
    rows = await db.fetch(
        """SELECT id, host, pid, concurrency, programs, started_at, heartbeat_at, expires_at
           FROM workers WHERE workspace_id = $1 ORDER BY started_at, id""",
        workspace_id,
    )
    return [worker_from_row(tuple(row), now) for row in rows]


async def version(
    db: asyncpg.Connection, workspace_id: str, name: str, version: int | None
) -> VersionRow | None:
    row = await db.fetchrow(
        """SELECT v.name, v.version, v.kind, v.program, v.retention_seconds,
                  v.max_concurrent_runs, v.deadline_seconds, v.revision, coalesce(d.enabled, true),
                  v.label, v.max_queued_runs
           FROM versions v LEFT JOIN definitions d
             ON d.workspace_id = v.workspace_id AND d.name = v.name
           WHERE v.workspace_id = $1 AND v.name = $2 AND ($3::integer IS NULL OR v.version = $3)
           ORDER BY v.version DESC LIMIT 1""",
        workspace_id,
        name,
        version,
    )
    return None if row is None else VersionRow(*row)


async def definition_names(db: asyncpg.Connection, workspace_id: str) -> list[str]:
    rows = await db.fetch(
        "SELECT DISTINCT name FROM versions WHERE workspace_id = $1 ORDER BY name", workspace_id
    )
    return [row[0] for row in rows]


async def facts(
    db: asyncpg.Connection, workspace_id: str, run_id: str, now: int
) -> RunFacts | None:
    async with _snapshot(db):
        row = await db.fetchrow(
            f"""SELECT r.id, r.definition, r.version, r.program, r.status, r.due_at, r.owner,
                      r.blocked_on, l.capacity,
                      (SELECT array_agg(slot) FROM (
                          SELECT DISTINCT slot FROM limits WHERE limit_key = r.blocked_on
                             AND admitted AND capacity IS NOT NULL ORDER BY slot LIMIT 20) s),
                      (SELECT count(*) FROM runs q WHERE q.blocked_on = r.blocked_on
                          AND (q.priority > r.priority OR q.priority = r.priority AND q.id < r.id)),
                      (SELECT body FROM payloads WHERE run_id = r.id AND kind = 'error'), {TAKEN},
                      r.paced_by, l.period
               FROM runs r CROSS JOIN LATERAL (SELECT r.blocked_on AS key) k
               LEFT JOIN limits l ON l.run_id = r.id AND l.limit_key = r.blocked_on
               WHERE r.id = $1 AND r.workspace_id = $2""",
            run_id,
            workspace_id,
        )
        if row is None:
            return None
        turn_at = None
        if row[14] is not None:
            turn_at = await turn_after(db, row[7], row[8], row[14], row[10], now)
        running = await db.fetch(
            "SELECT key FROM steps WHERE run_id = $1 AND status = 'running' ORDER BY seq LIMIT 10",
            run_id,
        )
        waits = await db.fetch(
            """SELECT key, kind, due_at, event, match, child_run_id, about FROM waits
               WHERE run_id = $1 AND ended_at IS NULL ORDER BY seq LIMIT 100""",
            run_id,
        )
        found = await workers(db, workspace_id, now)
    return RunFacts(
        run_id=row[0],
        definition=row[1],
        version=row[2],
        program=row[3],
        status=row[4],
        now=now,
        due_at=row[5],
        owner=row[6],
        blocked_on=row[7],
        limit_capacity=row[8],
        limit_taken=row[12],
        limit_holders=row[9] or [],
        queued_ahead=row[10],
        running_steps=[step[0] for step in running],
        waits=[wait_fact(tuple(w)) for w in waits],
        workers=found,
        error=read_error(row[11]),
        paced_by=row[13],
        turn_at=turn_at,
    )

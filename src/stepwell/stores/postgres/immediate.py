"""A start on an idle system: the run is inserted as held by the worker that asks for work."""

from __future__ import annotations

import asyncpg

from stepwell.kernel.changes import Claimed, ClaimRuns, StartRun
from stepwell.kernel.claiming import taken_at_once
from stepwell.stores.postgres.claim import ANYTHING_DUE, LANES, LEASED, NEXT_AT


async def start_and_take(
    db: asyncpg.Connection, change: StartRun, ask: ClaimRuns
) -> tuple[bool, Claimed | None]:
    """Start the run and claim it in one statement, if nothing else waits for this worker.

    Returns whether the run is new, and what the claim gave; None if it has yet to be made.
    """
    row = await db.fetchrow(
        f"""WITH RECURSIVE {LANES}, lease AS MATERIALIZED (
                SELECT FROM workers WHERE id = $1 AND expires_at > $2 FOR KEY SHARE
            ), chance AS MATERIALIZED (
                SELECT EXISTS (SELECT FROM lease) AND NOT ({ANYTHING_DUE}) AS taken
            ), run AS (
                INSERT INTO runs (id, workspace_id, definition, version, program, priority,
                    idempotency_key, concurrency_key, concurrency_limit, key_base, created_at,
                    deadline_at, retention_seconds, status, owner, fence, due_at, started_at,
                    claimed_at, expires_at, revision, trigger)
                SELECT $5, $3, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
                    CASE WHEN taken THEN 'running' ELSE 'pending' END,
                    CASE WHEN taken THEN $1 END, CASE WHEN taken THEN 1 ELSE 0 END,
                    CASE WHEN taken THEN NULL ELSE $18::bigint END,
                    CASE WHEN taken THEN $2 END, CASE WHEN taken THEN $2 END,
                    CASE WHEN taken THEN $16 ELSE $19::bigint END, $20, $21
                FROM chance WHERE NOT EXISTS (SELECT FROM absorbed WHERE workspace_id = $3
                                                 AND definition = $7 AND idempotency_key = $11)
                ON CONFLICT DO NOTHING RETURNING owner IS NOT NULL AS taken
            ), body AS (
                -- Of a new run alone: nobody would take away what belongs to none.
                INSERT INTO payloads (run_id, kind, body) SELECT $5, 'input', $6::text FROM run
                ON CONFLICT DO NOTHING
            ), filed AS (
                INSERT INTO terms (run_id, workspace_id, term)
                SELECT $5, $3, unnest($22::bigint[]) FROM run ON CONFLICT DO NOTHING
            )
            SELECT (SELECT taken FROM run), {LEASED}, {NEXT_AT}""",
        ask.worker_id, ask.now, ask.workspace_id, ask.programs, change.id, change.input,
        change.definition, change.version, change.program, change.priority,
        change.idempotency_key, change.concurrency_key, change.concurrency_limit,
        change.key_base, change.created_at, change.deadline_at, change.retention_seconds,
        change.due_at, change.expires_at, change.revision, change.trigger,
        change.terms,
    )  # fmt: skip
    assert row is not None
    taken, leased, next_at = row
    if not taken:
        lost = Claimed([], None, lease_lost=True)
        return taken is not None, None if taken is None or leased else lost
    return True, taken_at_once(change, next_at)

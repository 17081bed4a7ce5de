"""A start on an idle system: the run is inserted as held by the worker that asks for work."""

from __future__ import annotations

import apsw

from stepwell.kernel.changes import Claimed, ClaimRuns, StartRun
from stepwell.kernel.claiming import taken_at_once
from stepwell.stores.sqlite.claim import first_due, live_lanes
from stepwell.stores.sqlite.rows import one, pack, run
from stepwell.stores.sqlite.terms import file_terms


def start_and_take(db: apsw.Connection, change: StartRun, ask: ClaimRuns) -> Claimed | None:
    """Start the run as one that the worker holds, if nothing else waits for this worker.

    None if the two have to be applied one after the other; nothing was written then.
    """
    found = one(
        db,
        """SELECT EXISTS (SELECT 1 FROM workers WHERE id = ?3 AND expires_at > ?4)
                  AND NOT EXISTS (SELECT 1 FROM runs WHERE owner = ?3 AND due_at <= ?4),
               (SELECT min(expires_at) FROM runs WHERE expires_at IS NOT NULL),
               EXISTS (SELECT 1 FROM json_each(?2) p WHERE EXISTS (
                   SELECT 1 FROM runs r WHERE r.workspace_id = ?1 AND r.program = p.value
                      AND r.due_at IS NOT NULL))""",
        ask.workspace_id,
        pack(ask.programs),
        ask.worker_id,
        ask.now,
    )
    assert found is not None
    free, expires_at, live = found
    due_at = first_due(db, ask, live_lanes(db, ask), after=-1) if live else None
    if not free or (due_at is not None and due_at <= ask.now):
        return None
    run(
        db,
        """INSERT OR IGNORE INTO runs (id, workspace_id, definition, version, program, status,
               priority, owner, fence, idempotency_key, concurrency_key, concurrency_limit,
               key_base, created_at, started_at, claimed_at, deadline_at, expires_at,
               retention_seconds, revision, trigger)
           SELECT ?1, ?2, ?3, ?4, ?5, 'running', ?6, ?7, 1, ?8, ?9, ?10, ?11, ?12, ?13, ?13,
               ?14, ?14, ?15, ?16, ?17
           WHERE NOT EXISTS (SELECT 1 FROM absorbed WHERE workspace_id = ?2 AND definition = ?3
                                AND idempotency_key = ?8)""",
        change.id, change.workspace_id, change.definition, change.version, change.program,
        change.priority, ask.worker_id, change.idempotency_key, change.concurrency_key,
        change.concurrency_limit, change.key_base, change.created_at, ask.now,
        change.deadline_at, change.retention_seconds, change.revision, change.trigger,
    )  # fmt: skip
    if db.changes() == 0:
        return None
    run(db, "INSERT INTO payloads VALUES (?, 'input', ?)", change.id, change.input)
    file_terms(db, [change])
    times = [at for at in (expires_at, due_at) if at is not None]
    return taken_at_once(change, min(times, default=None))

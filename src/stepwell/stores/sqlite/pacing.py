"""Pacing starts on SQLite: debounces and quotas."""

from __future__ import annotations

import apsw

from stepwell.errors import QuotaExceeded
from stepwell.kernel.changes import Committed, StartRun
from stepwell.kernel.pacing import put_off
from stepwell.stores.sqlite.rows import one, run


def absorb(db: apsw.Connection, change: StartRun, done: Committed) -> tuple[str, bool] | None:
    """Let a run that waits for its key to be quiet take over the input; None if there is none."""
    debounce = change.debounce
    assert debounce is not None
    start = (change.workspace_id, change.definition, change.idempotency_key)
    earlier = one(
        db,
        """SELECT run_id FROM absorbed
           WHERE workspace_id = ? AND definition = ? AND idempotency_key = ?""",
        *start,
    )
    if earlier is not None:
        return earlier[0], False
    found = one(
        db,
        """SELECT id, created_at, due_at FROM runs WHERE paced_by = ? AND status = 'pending'
           ORDER BY id DESC LIMIT 1""",
        debounce.key,
    )
    if found is None:
        return None
    run_id, first_at, due_at = found
    # The input was checked for the version that is current now.
    run(
        db,
        """UPDATE runs SET due_at = ?, trigger = ?, version = ?, program = ?, revision = ?
           WHERE id = ?""",
        put_off(debounce, change.created_at, first_at, due_at),
        change.trigger,
        change.version,
        change.program,
        change.revision,
        run_id,
    )
    run(
        db,
        "UPDATE payloads SET body = ? WHERE run_id = ? AND kind = 'input'",
        change.input,
        run_id,
    )
    if change.idempotency_key is not None:
        run(db, "INSERT INTO absorbed VALUES (?, ?, ?, ?)", *start, run_id)
    done.due = True
    return run_id, False


def pace(db: apsw.Connection, change: StartRun) -> None:
    """Say what a new run was put off by, and count it."""
    if (debounce := change.debounce) is not None:
        run(db, "UPDATE runs SET paced_by = ? WHERE id = ?", debounce.key, change.id)
    if (quota := change.quota) is not None:
        run(
            db,
            """INSERT INTO usage (key, used) VALUES (?1, 1)
               ON CONFLICT (key) DO UPDATE SET used = used + 1 WHERE used < ?2""",
            quota.key,
            quota.most,
        )
        if db.changes() == 0:
            raise QuotaExceeded(quota.message, limit=quota.most)

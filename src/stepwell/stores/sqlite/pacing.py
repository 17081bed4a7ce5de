"""Pacing starts on SQLite: debounces and quotas."""

from __future__ import annotations

import apsw

from stepwell.kernel.changes import Committed, StartRun
from stepwell.kernel.pacing import put_off
from stepwell.stores.sqlite.limits import file_under, wake_queued
from stepwell.stores.sqlite.rows import all_rows, one, pack, run
from stepwell.stores.sqlite.terms import refile


def any_absorbed(db: apsw.Connection, starts: list[StartRun]) -> bool:
    """Whether debounced runs have taken over some of these starts before."""
    keys = [
        (change.workspace_id, change.definition, change.idempotency_key)
        for change in starts
        if change.idempotency_key is not None
    ]
    found = keys and one(
        db,
        """SELECT 1 FROM json_each(?) g CROSS JOIN absorbed a ON a.workspace_id = g.value ->> 0
              AND a.definition = g.value ->> 1 AND a.idempotency_key = g.value ->> 2 LIMIT 1""",
        pack(keys),
    )
    return bool(found)


def absorbed_by(db: apsw.Connection, change: StartRun) -> str | None:
    """The debounced run that has taken over this start before."""
    found = change.idempotency_key is not None and one(
        db,
        """SELECT run_id FROM absorbed
           WHERE workspace_id = ? AND definition = ? AND idempotency_key = ?""",
        change.workspace_id,
        change.definition,
        change.idempotency_key,
    )
    return found[0] if found else None


def absorb(db: apsw.Connection, change: StartRun, done: Committed) -> tuple[str, bool] | None:
    """Let a run that waits for its key to be quiet take over a start; None if there is none."""
    debounce = change.debounce
    assert debounce is not None
    start = (change.workspace_id, change.definition, change.idempotency_key)
    found = one(
        db,
        """SELECT id, created_at, due_at, blocked_on FROM runs
           WHERE paced_by = ? AND status = 'pending' ORDER BY id DESC LIMIT 1""",
        debounce.key,
    )
    if found is None:
        return None
    now = change.created_at
    run_id, first_at, due_at, blocked_on = found
    due_at, queues_for = put_off(debounce, now, first_at, due_at), blocked_on
    limits = all_rows(db, "SELECT limit_key, capacity FROM limits WHERE run_id = ?", run_id)
    if set(limits) != set(change.limits):
        run(db, "DELETE FROM limits WHERE run_id = ?", run_id)
        file_under(db, run_id, change)
        if blocked_on is not None:  # it stands in line anew, where it has to now
            due_at, queues_for = now, None
    # All that comes of the input; what was there before it stays: id, key and time of creation.
    run(
        db,
        """UPDATE runs SET due_at = ?, blocked_on = ?, trigger = ?, version = ?, program = ?,
               revision = ?, priority = ?, limited = ?, concurrency_key = ?,
               concurrency_limit = ?, deadline_at = ?, expires_at = ?, retention_seconds = ?
           WHERE id = ?""",
        due_at, queues_for, change.trigger, change.version, change.program, change.revision,
        change.priority, bool(change.limits), change.concurrency_key, change.concurrency_limit,
        change.deadline_at, change.expires_if_due(due_at), change.retention_seconds, run_id,
    )  # fmt: skip
    if queues_for != blocked_on:
        wake_queued(db, blocked_on, now, done)
    run(
        db,
        "UPDATE payloads SET body = ? WHERE run_id = ? AND kind = 'input'",
        change.input,
        run_id,
    )
    refile(db, run_id, change)
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
            """INSERT INTO usage (key, used) SELECT ?1, 1 WHERE ?2 > 0
               ON CONFLICT (key) DO UPDATE SET used = used + 1 WHERE used < ?2""",
            quota.key,
            quota.most,
        )
        if db.changes() == 0:
            raise quota.refusal()

"""Pacing starts on PostgreSQL: debounces and quotas.

Whoever looks at a key has its name locked, so that those who come at the same time come one after
the other; a run that may absorb a start is locked too, lest it be claimed meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import asyncpg

from stepwell.kernel.changes import Committed, StartRun
from stepwell.kernel.pacing import put_off
from stepwell.stores.postgres.limits import file_under, wake_queued
from stepwell.stores.postgres.locking import limit_name, try_lock


def names_of(starts: Collection[StartRun]) -> list[str]:
    """The names that are locked before runs are started."""
    found = [each for s in starts for each in (s.debounce, s.quota) if each is not None]
    names = [f"stepwell:pace:{each.key}" for each in found]
    return names + [limit_name(s.throttle.key) for s in starts if s.throttle is not None]


async def absorbing(db: asyncpg.Connection, starts: Iterable[StartRun]) -> list[str]:
    """Runs that may absorb these starts."""
    keys = [s.debounce.key for s in starts if s.debounce is not None]
    rows = await db.fetch(
        "SELECT id FROM runs WHERE paced_by = ANY($1) AND status = 'pending'", keys
    )
    return [row[0] for row in rows]


async def absorb(
    db: asyncpg.Connection, change: StartRun, done: Committed
) -> tuple[str, bool] | None:
    """Let a run that waits for its key to be quiet take over a start; None if there is none."""
    debounce = change.debounce
    assert debounce is not None
    start = (change.workspace_id, change.definition, change.idempotency_key)
    earlier: str | None = await db.fetchval(
        """SELECT run_id FROM absorbed
           WHERE workspace_id = $1 AND definition = $2 AND idempotency_key = $3""",
        *start,
    )
    if earlier is not None:
        return earlier, False
    found = await db.fetchrow(
        """SELECT id, created_at, due_at, blocked_on FROM runs
           WHERE paced_by = $1 AND status = 'pending' ORDER BY id DESC LIMIT 1""",
        debounce.key,
    )
    if found is None:
        return None
    now = change.created_at
    run_id, first_at, was_due_at, blocked_on = found
    due_at, queues_for = put_off(debounce, now, first_at, was_due_at), blocked_on
    rows = await db.fetch("SELECT limit_key, capacity FROM limits WHERE run_id = $1", run_id)
    if {(row[0], row[1]) for row in rows} != set(change.limits):
        await db.execute("DELETE FROM limits WHERE run_id = $1", run_id)
        await file_under(db, [(run_id, change)])
        if blocked_on is not None:  # it stands in line anew, where it has to now
            due_at, queues_for = now, None
    # All that comes of the input; what was there before it stays: id, key and time of creation.
    await db.execute(
        """UPDATE runs SET due_at = $1, blocked_on = $2, trigger = $3, version = $4, program = $5,
               revision = $6, priority = $7, limited = $8, concurrency_key = $9,
               concurrency_limit = $10, deadline_at = $11, expires_at = $12,
               retention_seconds = $13
           WHERE id = $14""",
        due_at, queues_for, change.trigger, change.version, change.program, change.revision,
        change.priority, bool(change.limits), change.concurrency_key, change.concurrency_limit,
        change.deadline_at, change.expires_if_due(due_at), change.retention_seconds, run_id,
    )  # fmt: skip
    # Its call goes to the next in line; at the next sweep if somebody has the limit locked, for to
    # wait here would be out of order.
    called = queues_for != blocked_on and was_due_at is not None
    if called and await try_lock(db, [blocked_on]):
        await wake_queued(db, [blocked_on], now, done)
    await db.execute(
        "UPDATE payloads SET body = $1 WHERE run_id = $2 AND kind = 'input'",
        change.input,
        run_id,
    )
    await db.execute("DELETE FROM terms WHERE run_id = $1", run_id)
    await db.execute(
        "INSERT INTO terms (run_id, workspace_id, term) SELECT $1, $2, unnest($3::bigint[])",
        run_id, change.workspace_id, change.terms,
    )  # fmt: skip
    if change.idempotency_key is not None:
        await db.execute(
            "INSERT INTO absorbed VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING", *start, run_id
        )
    done.due = True
    return run_id, False


async def pace(db: asyncpg.Connection, created: Sequence[StartRun]) -> None:
    """Say what new runs were put off by, and count them."""
    for change in created:
        if (debounce := change.debounce) is not None:
            await db.execute("UPDATE runs SET paced_by = $1 WHERE id = $2", debounce.key, change.id)
        if (quota := change.quota) is not None:
            used = await db.fetchval(
                """INSERT INTO usage (key, used) SELECT $1, 1 WHERE $2 > 0
                   ON CONFLICT (key) DO UPDATE SET used = usage.used + 1 WHERE usage.used < $2
                   RETURNING used""",
                quota.key,
                quota.most,
            )
            if used is None:
                raise quota.refusal()

"""Admitting runs on PostgreSQL: idempotent starts, forks, and their place in limits."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import asyncpg

from stepwell.errors import InvalidInput, StoreUnavailable
from stepwell.kernel.changes import Committed, StartRun
from stepwell.kernel.names import no_such_run
from stepwell.kernel.states import REPLAYED, quoted
from stepwell.stores.postgres.columns import Columns
from stepwell.stores.postgres.limits import check_queues, file_under, wake_queued
from stepwell.stores.postgres.pacing import absorb, pace
from stepwell.stores.rules import (
    AWAITED_CHILD,
    INTERRUPTED,
    STATUS_IN_FORK,
    TIMED_BY_PARENT,
    TO_BE_STARTED,
    USABLE,
    child_of,
    dead_child,
    end_of_keeping,
)

_STARTS = Columns(
    "id text", "workspace_id text", "definition text", "version integer", "program text",
    "priority integer", "due_at bigint", "limited boolean", "idempotency_key text",
    "concurrency_key text", "concurrency_limit integer", "parent_run_id text",
    "forked_from text", "key_base text", "created_at bigint", "deadline_at bigint",
    "expires_at bigint", "retention_seconds bigint", "input text", "revision text", "trigger text",
)  # fmt: skip
_TERMS = Columns("run_id text", "workspace_id text", "term bigint", first=22)


async def start_runs(
    db: asyncpg.Connection, found: list[tuple[int, StartRun]], done: Committed
) -> None:
    """Insert runs. Outcomes: the id of each, and whether it is new."""
    if any(change.debounce or change.max_queued is not None for _, change in found):
        # One after the other: each may be absorbed by the one before, or find its queue full by it.
        for index, change in found:
            absorbed = None
            if change.debounce is not None and not await _is_known(db, change):
                absorbed = await absorb(db, change, done)
            if absorbed is None:
                await _start_runs(db, [(index, change)], done)
            else:
                done.outcomes[index] = absorbed
    else:
        await _start_runs(db, found, done)


async def _is_known(db: asyncpg.Connection, change: StartRun) -> bool:
    """Whether the run, or one with its idempotency key, is there already."""
    found: bool = await db.fetchval(
        """SELECT EXISTS (SELECT FROM runs WHERE id = $1 OR (
              workspace_id = $2 AND definition = $3 AND idempotency_key = $4))""",
        change.id, change.workspace_id, change.definition, change.idempotency_key,
    )  # fmt: skip
    return found


async def _start_runs(
    db: asyncpg.Connection, found: list[tuple[int, StartRun]], done: Committed
) -> None:
    starts = [change for _, change in found]
    new = await insert(db, starts)
    others = await earlier(db, [change for change in starts if change.id not in new])
    for index, change in found:
        run_id = others.get(change.id, change.id)
        done.outcomes[index] = (run_id, run_id == change.id)
    created = [change for change in starts if change.id in new]
    for change in created:
        if change.fork_from_step is not None or change.fork_for_retry:
            await _copy_journal(db, change)
    await pace(db, created)
    keys = await enter_limits(db, created)
    if keys:
        await wake_queued(db, keys, max(change.created_at for change in created), done)
    done.due = True


async def insert(db: asyncpg.Connection, starts: Sequence[StartRun]) -> set[str]:
    """Insert the runs that are not there yet; the ids of those that were inserted.

    A key that came to a debounced run is there too, whether or not this start is debounced.
    """
    # Two batches with the same idempotency keys must come to them in the same order.
    ordered = sorted(starts, key=lambda s: (s.definition, s.idempotency_key or ""))
    rows = await db.fetch(
        f"""WITH given AS MATERIALIZED ({_STARTS.sql}), bodies AS (
               INSERT INTO stepwell.payloads (run_id, kind, body)
               SELECT id, 'input', input FROM given ON CONFLICT DO NOTHING
           ), filed AS (
               INSERT INTO stepwell.terms (run_id, workspace_id, term)
               {_TERMS.sql} ON CONFLICT DO NOTHING
           )
           INSERT INTO stepwell.runs (id, workspace_id, definition, version, program, status,
               priority, due_at, limited, idempotency_key, concurrency_key, concurrency_limit,
               parent_run_id, forked_from, key_base, created_at, deadline_at, expires_at,
               retention_seconds, revision, trigger)
           SELECT id, workspace_id, definition, version, program, 'pending', priority, due_at,
               limited, idempotency_key, concurrency_key, concurrency_limit, parent_run_id,
               forked_from, key_base, created_at, deadline_at, expires_at, retention_seconds,
               revision, trigger
           FROM given g WHERE (
               SELECT true FROM stepwell.absorbed a WHERE a.workspace_id = g.workspace_id
                  AND a.definition = g.definition AND a.idempotency_key = g.idempotency_key
               ) IS NULL -- not as a join, which would change the order
           ON CONFLICT DO NOTHING RETURNING id""",
        *_STARTS.pack(
            [
                (
                    s.id, s.workspace_id, s.definition, s.version, s.program, s.priority,
                    s.due_at, bool(s.filed), s.idempotency_key, s.concurrency_key,
                    s.concurrency_limit, s.parent_run_id, s.forked_from, s.key_base,
                    s.created_at, s.deadline_at, s.expires_at, s.retention_seconds, s.input,
                    s.revision, s.trigger,
                )
                for s in ordered
            ]
        ),
        *_TERMS.pack([(s.id, s.workspace_id, term) for s in ordered for term in s.terms]),
    )  # fmt: skip
    return {row[0] for row in rows}


async def earlier(db: asyncpg.Connection, starts: Sequence[StartRun]) -> dict[str, str]:
    """For starts that inserted nothing, the run that was there before, by the id they had."""
    if not starts:
        return {}
    # The id itself in conflict: this start was sent before, and its acknowledgement lost.
    rows = await db.fetch(
        """SELECT g.id, coalesce(
               (SELECT r.id FROM stepwell.runs r WHERE r.id = g.id),
               (SELECT r.id FROM stepwell.runs r WHERE r.workspace_id = g.workspace_id
                   AND r.definition = g.definition AND r.idempotency_key = g.idempotency_key),
               (SELECT a.run_id FROM stepwell.absorbed a WHERE a.workspace_id = g.workspace_id
                   AND a.definition = g.definition AND a.idempotency_key = g.idempotency_key))
           FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
               AS g (id, workspace_id, definition, idempotency_key)""",
        *zip(
            *[(s.id, s.workspace_id, s.definition, s.idempotency_key) for s in starts], strict=True
        ),
    )
    found = {row[0]: row[1] for row in rows}
    if None in found.values():
        raise StoreUnavailable("A run with the same idempotency key was just deleted.")
    strays = [own_id for own_id, run_id in found.items() if own_id != run_id]
    for own in ("payloads", "terms"):
        await db.fetch(f"DELETE FROM stepwell.{own} WHERE run_id = ANY($1)", strays)
    return found


async def enter_limits(
    db: asyncpg.Connection, starts: Sequence[StartRun], later: Collection[str] = ()
) -> Collection[str]:
    """File new runs under their limits; the limits in whose queues they now stand.

    A child shares the slots above it that are in use. The runs `later`, and those that are not due
    yet, take their place in the queue, if they must, when a worker comes to them.
    """
    children = [s for s in starts if s.parent_run_id is not None]
    if children:
        await db.fetch(
            """INSERT INTO stepwell.limits (run_id, limit_key, capacity, slot, admitted)
               SELECT g.id, l.limit_key, NULL, l.slot, true
               FROM unnest($1::text[], $2::text[]) AS g (id, parent_run_id)
               CROSS JOIN LATERAL (
                   SELECT limit_key, slot FROM stepwell.limits
                   WHERE run_id = g.parent_run_id OFFSET 0) l
               WHERE (SELECT true FROM stepwell.limits t WHERE t.limit_key = l.limit_key
                         AND t.slot = l.slot AND t.admitted AND t.capacity IS NOT NULL LIMIT 1)""",
            [s.id for s in children],
            [s.parent_run_id for s in children],
        )
    for s in starts:
        if s.max_queued is not None:
            await check_queues(db, s, s.max_queued)
    own = await file_under(db, [(s.id, s) for s in starts])
    queued: dict[str, str] = {}
    for s in starts:
        first = next((key for key, *_ in s.filed if (s.id, key) in own), None)
        if s.id not in later and first is not None and s.due_at <= s.created_at:
            queued[s.id] = first
    if queued:
        await db.fetch(
            """UPDATE runs r SET due_at = NULL, blocked_on = g.limit_key
               FROM unnest($1::text[], $2::text[]) AS g (id, limit_key)
               WHERE r.id = ANY($1) AND r.id = g.id""",
            list(queued),
            list(queued.values()),
        )
    return set(queued.values())


_CHILD = child_of("c.trigger::jsonb ->> 'step'")
_DEAD_CHILD = dead_child("$2", "$3")


async def _copy_journal(db: asyncpg.Connection, change: StartRun) -> None:
    """Give a fork the journal of its origin, up to the step it leaves out."""
    # Locked, lest it be pruned before it is copied.
    if not await db.fetchval(
        "SELECT true FROM runs WHERE id = $1 FOR KEY SHARE", change.forked_from
    ):
        raise no_such_run(change.forked_from)
    if change.fork_for_retry:
        # A retry keeps all that was done, and drops the failure that ended the run.
        condition = f"""((s.status IN ({quoted(REPLAYED - {"failed"})}) OR {INTERRUPTED}
                OR {AWAITED_CHILD} OR {_CHILD} IS NOT NULL)
                AND s.key IS DISTINCT FROM $3)
            OR (s.status = 'failed' AND s.position < {end_of_keeping("$2", "$3")})"""
    else:
        condition = f"""(s.status IN ({quoted(REPLAYED)}) OR {INTERRUPTED}) AND s.seq <
            (SELECT seq FROM (SELECT seq FROM steps WHERE run_id = $2 AND key = $3
             UNION ALL SELECT seq FROM waits WHERE run_id = $2 AND key = $3) f LIMIT 1)"""
    await db.fetch(
        f"""INSERT INTO steps SELECT $1, s.key, s.seq, s.position, s.kind, {STATUS_IN_FORK},
                s.attempts, coalesce(s.output, '"' || {_CHILD} || '"'), s.error, s.started_at,
                s.completed_at
            FROM steps s WHERE s.run_id = $2 AND s.kind <> 'node' AND ({condition})""",
        change.id,
        change.forked_from,
        change.fork_from_step,
    )
    if change.fork_for_retry:
        await db.fetch(
            f"UPDATE steps AS s SET {TO_BE_STARTED} WHERE s.run_id = $1 AND {_DEAD_CHILD}",
            change.id,
            change.forked_from,
            change.fork_from_step,
        )
        # It finds its other children again, and they are kept while it lives.
        await db.fetch(
            f"""UPDATE runs SET deadline_at = $1, expires_at = $1
                WHERE parent_run_id = $2 AND {USABLE} AND {TIMED_BY_PARENT}""",
            change.deadline_at,
            change.forked_from,
        )
        await db.fetch(
            f"UPDATE runs SET parent_run_id = $1 WHERE parent_run_id = $2 AND {USABLE}",
            change.id,
            change.forked_from,
        )


async def adoptable(db: asyncpg.Connection, run_ids: Sequence[str | None]) -> list[str]:
    """The children that retries of these runs take over; whoever retries one locks those."""
    rows = await db.fetch(
        f"SELECT id FROM runs WHERE parent_run_id = ANY($1) AND {USABLE}", run_ids
    )
    return [row[0] for row in rows]


async def start_in(db: asyncpg.Connection, change: StartRun) -> tuple[str, bool]:
    """Start a run on the caller's connection, whose search path is not ours.

    No lock on limits is taken: the caller's transaction may last, and workers would stand still.
    """
    if change.is_paced or change.max_queued is not None:
        raise InvalidInput(
            "start(connection=…) is not for what a throttle, a debounce, a plan or max_queued_runs "
            "counts: others would wait until the transaction ends."
        )
    new = await insert(db, [change])
    if change.id in new:
        await enter_limits(db, [change], later=[change.id])
        # Heard only when the caller's transaction commits.
        await db.execute("SELECT pg_notify('stepwell', '')")
        return change.id, True
    run_id = (await earlier(db, [change]))[change.id]
    return run_id, run_id == change.id

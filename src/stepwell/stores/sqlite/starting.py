"""Admitting runs on SQLite: idempotent starts, forks, and their place in limits."""

from __future__ import annotations

import apsw

from stepwell.kernel.changes import Committed, StartRun
from stepwell.kernel.names import no_such_run
from stepwell.kernel.states import REPLAYED, quoted
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
from stepwell.stores.sqlite.limits import ANSWERABLE, check_queues, file_under, wake_queued
from stepwell.stores.sqlite.pacing import absorb, absorbed_by, any_absorbed, pace
from stepwell.stores.sqlite.rows import one, pack, run, run_rows, unpack
from stepwell.stores.sqlite.terms import file_terms


def start(db: apsw.Connection, starts: list[StartRun], done: Committed) -> list[tuple[str, bool]]:
    """Insert runs; the id of each, and whether it is new."""
    apart = any(change.debounce or change.max_queued is not None for change in starts)
    if not apart and not any_absorbed(db, starts):
        return _insert(db, starts, done)
    # One after the other: each may be absorbed by the one before, or find its queue full by it.
    found = []
    for change in starts:
        absorbed = None
        if (earlier := absorbed_by(db, change)) is not None:
            absorbed = earlier, False
        elif change.debounce is not None and not _is_known(db, change):
            absorbed = absorb(db, change, done)
        found.append(absorbed or _insert(db, [change], done)[0])
    return found


def _is_known(db: apsw.Connection, change: StartRun) -> bool:
    """Whether the run, or one with its idempotency key, is there already."""
    found = one(
        db,
        """SELECT 1 FROM runs WHERE id = ?1 OR (
              workspace_id = ?2 AND definition = ?3 AND idempotency_key = ?4)""",
        change.id,
        change.workspace_id,
        change.definition,
        change.idempotency_key,
    )
    return found is not None


def _insert(db: apsw.Connection, starts: list[StartRun], done: Committed) -> list[tuple[str, bool]]:
    # A start whose acknowledgement was lost is sent again: its run is there already.
    new = set(
        unpack(
            db,
            """SELECT json_group_array(value) FROM json_each(?)
               WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = value)""",
            pack([s.id for s in starts]),
        )
    )
    run_rows(
        db,
        """INSERT OR IGNORE INTO runs (id, workspace_id, definition, version, program, status,
               priority, due_at, limited, idempotency_key, concurrency_key, concurrency_limit,
               parent_run_id, forked_from, key_base, created_at, deadline_at, expires_at,
               retention_seconds, revision, trigger) VALUES {rows}""",
        [
            (
                s.id, s.workspace_id, s.definition, s.version, s.program, "pending", s.priority,
                s.due_at, bool(s.filed), s.idempotency_key, s.concurrency_key,
                s.concurrency_limit, s.parent_run_id, s.forked_from, s.key_base, s.created_at,
                s.deadline_at, s.expires_at, s.retention_seconds, s.revision, s.trigger,
            )
            for s in starts
        ],
    )  # fmt: skip
    run_rows(
        db,
        """WITH s (id, body) AS (VALUES {rows})
           INSERT OR IGNORE INTO payloads (run_id, kind, body)
           SELECT id, 'input', body FROM s WHERE EXISTS (SELECT 1 FROM runs WHERE id = s.id)""",
        [(s.id, s.input) for s in starts],
    )
    file_terms(db, starts)
    outcomes = []
    entered: dict[str, None] = {}
    for change, run_id in zip(starts, _with_their_keys(db, starts), strict=True):
        created = run_id == change.id
        if created and change.id in new:
            if change.fork_from_step is not None or change.fork_for_retry:
                _copy_journal(db, change)
            if change.is_paced:
                pace(db, change)
            if change.parent_run_id is not None or change.filed:
                entered |= _enter_limits(db, change)
        outcomes.append((run_id, created))
    for limit_key in entered:
        wake_queued(db, limit_key, starts[-1].created_at, done)
    done.due = True
    return outcomes


def _with_their_keys(db: apsw.Connection, starts: list[StartRun]) -> list[str]:
    """The ids of the runs that starts have led to: another's, if that has the same key."""
    if all(change.idempotency_key is None for change in starts):
        return [change.id for change in starts]
    found = unpack(
        db,
        """SELECT json_group_array(id) FROM (
               SELECT CASE WHEN g.value->>3 IS NULL THEN g.value->>0 ELSE (
                   SELECT id FROM runs WHERE workspace_id = g.value->>1
                      AND definition = g.value->>2 AND idempotency_key = g.value->>3) END AS id
               FROM json_each(?) g ORDER BY g.key)""",
        pack([(s.id, s.workspace_id, s.definition, s.idempotency_key) for s in starts]),
    )
    assert None not in found
    return found


def _enter_limits(db: apsw.Connection, change: StartRun) -> dict[str, None]:
    """File the run under its limits; the one in whose queue it now stands, and may be first.

    A child shares the slots above it that are in use. What is due later takes its place in the
    queue, if it must, when it is due.
    """
    run(
        db,
        """INSERT INTO limits (run_id, limit_key, capacity, slot, admitted)
           SELECT ?, limit_key, NULL, slot, 1 FROM limits l WHERE run_id = ? AND EXISTS (
               SELECT 1 FROM limits t WHERE t.limit_key = l.limit_key AND t.slot = l.slot
                  AND t.admitted = 1 AND t.capacity IS NOT NULL)""",
        change.id,
        change.parent_run_id,
    )
    if change.max_queued is not None:
        check_queues(db, change, change.max_queued)
    own = file_under(db, change.id, change)
    if not own or change.due_at > change.created_at:
        return {}
    run(db, "UPDATE runs SET due_at = NULL, blocked_on = ? WHERE id = ?", own[0], change.id)
    # Only the newcomer can be the one to be called; to find that out takes a look at it alone.
    called = one(db, f"SELECT 1 FROM runs r WHERE r.id = ? AND {ANSWERABLE}", change.id)
    return {} if called is None else {own[0]: None}


_CHILD = child_of("c.trigger ->> 'step'")
_DEAD_CHILD = dead_child("?2", "?3")


def _copy_journal(db: apsw.Connection, change: StartRun) -> None:
    """Give a fork the journal of its origin, up to the step it leaves out."""
    if one(db, "SELECT 1 FROM runs WHERE id = ?", change.forked_from) is None:
        raise no_such_run(change.forked_from)
    if change.fork_for_retry:
        # A retry keeps all that was done, and drops the failure that ended the run.
        condition = f"""((s.status IN ({quoted(REPLAYED - {"failed"})}) OR {INTERRUPTED}
                    OR {AWAITED_CHILD} OR {_CHILD} IS NOT NULL)
                AND s.key IS NOT ?3)
            OR (s.status = 'failed' AND s.position < {end_of_keeping("?2", "?3")})"""
    else:
        condition = f"""(s.status IN ({quoted(REPLAYED)}) OR {INTERRUPTED}) AND s.seq <
            (SELECT seq FROM steps WHERE run_id = ?2 AND key = ?3
             UNION ALL SELECT seq FROM waits WHERE run_id = ?2 AND key = ?3 LIMIT 1)"""
    run(
        db,
        f"""INSERT INTO steps SELECT ?1, s.key, s.seq, s.position, s.kind, {STATUS_IN_FORK},
                s.attempts, coalesce(s.output, '"' || {_CHILD} || '"'), s.error, s.started_at,
                s.completed_at
            FROM steps s WHERE s.run_id = ?2 AND s.kind <> 'node' AND ({condition})""",
        change.id,
        change.forked_from,
        change.fork_from_step,
    )
    if change.fork_for_retry:
        run(
            db,
            f"UPDATE steps AS s SET {TO_BE_STARTED} WHERE s.run_id = ?1 AND {_DEAD_CHILD}",
            change.id,
            change.forked_from,
            change.fork_from_step,
        )
        # It finds its other children again, and they are kept while it lives.
        run(
            db,
            f"""UPDATE runs SET deadline_at = ?1, expires_at = ?1
                WHERE parent_run_id = ?2 AND {USABLE} AND {TIMED_BY_PARENT}""",
            change.deadline_at,
            change.forked_from,
        )
        run(
            db,
            f"UPDATE runs SET parent_run_id = ? WHERE parent_run_id = ? AND {USABLE}",
            change.id,
            change.forked_from,
        )

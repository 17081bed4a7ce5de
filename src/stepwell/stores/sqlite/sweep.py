"""Sweeping on SQLite: what dead workers, deadlines and limits that were freed have left behind."""

from __future__ import annotations

import apsw

from stepwell.kernel.changes import Committed
from stepwell.kernel.crashes import Stopped, judge
from stepwell.kernel.outcomes import Ending, crash_loop_error, deadline_error, ttl_error
from stepwell.kernel.states import REPLAYED, quoted
from stepwell.stores.rules import MOST_DEAD, QUEUES, SWEEP_LIMIT
from stepwell.stores.sqlite.ending import finish
from stepwell.stores.sqlite.limits import CAPACITY, TAKEN, wake_queued
from stepwell.stores.sqlite.rows import all_rows, pack, run

# Queued runs that whoever has a slot of their limit waits for, or is a child of, by way of others
# maybe. None of them might ever be called up, so they share that slot: runs of one tree do so from
# their start, but not those that a retry or a fork found at work. SQLite joins in the order of a
# CROSS JOIN.
_STARVED = f"""WITH RECURSIVE {QUEUES}, holders (key, slot, id) AS MATERIALIZED (
       SELECT l.limit_key, l.slot, l.run_id FROM queues q CROSS JOIN limits l
       WHERE l.limit_key = q.key AND l.admitted = 1 AND l.capacity IS NOT NULL
   ), awaited (key, slot, id) AS (
       SELECT key, slot, id FROM holders
       UNION
       SELECT a.key, a.slot, w.child_run_id FROM awaited a CROSS JOIN waits w
       WHERE w.run_id = a.id AND w.child_run_id IS NOT NULL AND w.ended_at IS NULL
   ), parents (key, slot, id) AS (
       SELECT key, slot, id FROM holders
       UNION
       SELECT p.key, p.slot, r.parent_run_id FROM parents p CROSS JOIN runs r
       WHERE r.id = p.id AND r.parent_run_id IS NOT NULL)
   SELECT r.id, a.key, a.slot
   FROM (SELECT * FROM awaited UNION SELECT * FROM parents) a CROSS JOIN runs r
   WHERE r.id = a.id AND r.blocked_on = a.key AND r.due_at IS NULL LIMIT ?"""


def sweep(db: apsw.Connection, now: int, done: Committed) -> bool:
    """Make everything due that nobody is at any more, and end what is late. Was that all?"""
    taken_over = _take_over(db, now, done)
    _expire(db, now, done)
    return _unblock(db, now, done) and taken_over


def _take_over(db: apsw.Connection, now: int, done: Committed) -> bool:
    """Make the runs of workers whose lease has passed due again. Were these all?"""
    dead = all_rows(
        db,
        """SELECT id FROM workers WHERE expires_at <= ?
           UNION SELECT owner FROM runs WHERE owner IS NOT NULL
              AND owner NOT IN (SELECT id FROM workers) LIMIT ?""",
        now,
        MOST_DEAD,
    )
    all_of_them = len(dead) < MOST_DEAD
    for (worker_id,) in dead:
        stopped = [Stopped(*row) for row in all_rows(
            db,
            f"""SELECT r.id, r.crashes, r.crash_progress, (SELECT count(*) FROM steps
                   WHERE run_id = r.id AND status IN ({quoted(REPLAYED)})), r.claimed_at
               FROM runs r WHERE r.owner = ? LIMIT ?""",
            worker_id,
            SWEEP_LIMIT,
        )]  # fmt: skip
        if len(stopped) < SWEEP_LIMIT:
            run(db, "DELETE FROM workers WHERE id = ?", worker_id)
        else:
            all_of_them = False
        if not stopped:
            continue
        verdicts = judge(stopped, now)
        run(
            db,
            """UPDATE runs SET owner = NULL, attempt = attempt + 1, crashes = v.value->>1,
                   crash_progress = v.value->>2, due_at = v.value->>3
               FROM json_each(?) v WHERE runs.id = v.value->>0""",
            pack(verdicts),
        )
        done.due = True
        done.stopped.extend((found.run_id, worker_id) for found in stopped)
        looping = all_rows(
            db,
            """SELECT value, (SELECT key FROM steps WHERE run_id = value AND kind = 'step'
                                 AND status = 'running' ORDER BY seq LIMIT 1) FROM json_each(?)""",
            pack([verdict.run_id for verdict in verdicts if verdict.looping]),
        )
        for run_id, key in looping:
            error = crash_loop_error(key)
            # The step that did it has failed; else it would be given up with all that was open.
            run(
                db,
                """UPDATE steps SET status = 'failed', error = ?, completed_at = ?
                   WHERE run_id = ? AND key = ?""",
                error,
                now,
                run_id,
                key,
            )
            finish(db, [Ending(run_id, "failed", None, error, now)], done)
    return all_of_them


def _expire(db: apsw.Connection, now: int, done: Committed) -> None:
    """End runs that passed their deadline, or their time to live in the queue."""
    late = all_rows(
        db,
        """SELECT id, owner, deadline_at IS NOT NULL AND deadline_at <= ?1 FROM runs
           WHERE expires_at <= ?1 LIMIT ?2""",
        now,
        SWEEP_LIMIT,
    )
    finish(
        db,
        [
            Ending(row[0], "timed_out", None, deadline_error() if row[2] else ttl_error(), now)
            for row in late
        ],
        done,
    )
    done.stopped.extend((row[0], row[1]) for row in late)


def _unblock(db: apsw.Connection, now: int, done: Committed) -> bool:
    """The net under the calls of `wake_queued`: queues whose limits have room. Were these all?"""
    found = all_rows(
        db,
        f"""WITH RECURSIVE {QUEUES}
            SELECT k.key FROM queues k WHERE k.key IS NOT NULL AND {TAKEN} < {CAPACITY} LIMIT ?""",
        SWEEP_LIMIT,
    )
    for (limit_key,) in found:
        wake_queued(db, limit_key, now, done)
    starved = all_rows(db, _STARVED, SWEEP_LIMIT)
    for run_id, limit_key, slot in starved:
        run(
            db,
            "UPDATE limits SET slot = ?, admitted = 1 WHERE run_id = ? AND limit_key = ?",
            slot,
            run_id,
            limit_key,
        )
        run(db, "UPDATE runs SET blocked_on = NULL, due_at = created_at WHERE id = ?", run_id)
        done.due = True
    return len(found) < SWEEP_LIMIT and len(starved) < SWEEP_LIMIT

"""Limits on SQLite: counting slots and turns, and calling up queued runs.

A slot of a concurrency limit is taken until its run has ended. A throttle has turns: one is taken
by who begins, and counts for the throttle's period, whatever becomes of the run. Whoever queues
takes none; so that somebody is there when a turn comes, the first in line is called for that time.
"""

from __future__ import annotations

import apsw

from stepwell.kernel.changes import Committed, StartRun
from stepwell.kernel.clock import SECOND
from stepwell.kernel.limits import has_queue, is_throttle, refuse_if_full
from stepwell.stores.rules import MOST_CALLED
from stepwell.stores.sqlite.rows import all_rows, one, pack, run

# Whether some worker could execute the run `r`; only such a run is called up, and a call that
# nobody is left to answer holds no slot.
ANSWERABLE = """(r.workspace_id, r.program) IN (
        SELECT w.workspace_id, p.value FROM workers w, json_each(w.programs) p)"""

# Slots in use of the limit `k`: those of runs at work, and of runs called up but not yet claimed.
TAKEN = f"""(SELECT count(DISTINCT slot) FROM limits
             WHERE limit_key = k.key AND admitted = 1 AND capacity IS NOT NULL)
          + (SELECT count(*) FROM runs r
             WHERE r.blocked_on = k.key AND r.due_at IS NOT NULL AND {ANSWERABLE})"""

# The first run in the queue of the limit `k`.
_FIRST = f"""FROM runs r JOIN limits l ON l.run_id = r.id AND l.limit_key = r.blocked_on
             WHERE r.blocked_on = k.key AND r.due_at IS NULL AND {ANSWERABLE}
             ORDER BY r.priority DESC, r.id LIMIT 1"""
# How many must have been called: what it says the limit's capacity is, of a throttle one.
CAPACITY = f"(SELECT CASE WHEN l.period IS NULL THEN l.capacity ELSE 1 END {_FIRST})"

# How many of the throttle ?1 have begun after ?2.
_BEGUN = """coalesce((SELECT max(place) FROM turns WHERE key = ?1) - (
                SELECT place FROM turns WHERE key = ?1 AND at > ?2
                ORDER BY at, place LIMIT 1) + 1, 0)"""
# How many were called to begin by ?3.
_CALLED = f"""(SELECT count(*) FROM runs r
               WHERE r.blocked_on = ?1 AND r.due_at <= ?3 AND {ANSWERABLE})"""
# What the run ?4 finds taken of the limit, or the throttle, ?1. It comes before those called who
# stand behind it: they were called while it waited for another limit.
_BEFORE = "(-r.priority, r.id) < (SELECT -priority, id FROM runs WHERE id = ?4)"
_SLOTS_BEFORE = f"""(SELECT count(DISTINCT slot) FROM limits
                     WHERE limit_key = ?1 AND admitted = 1 AND capacity IS NOT NULL)
                  + (SELECT count(*) FROM runs r WHERE r.blocked_on = ?1
                        AND r.due_at IS NOT NULL AND {_BEFORE} AND {ANSWERABLE})"""
_TURNS_BEFORE = f"""{_BEGUN} + (SELECT count(*) FROM runs r WHERE r.blocked_on = ?1
                                   AND r.due_at <= ?3 AND {_BEFORE} AND {ANSWERABLE})"""


def file_under(db: apsw.Connection, run_id: str, change: StartRun) -> list[str]:
    """File a run under the limits of a start; those in which it needs room of its own."""
    own: list[str] = []
    for limit_key, capacity, period in change.filed:
        found = one(
            db,
            """INSERT INTO limits (run_id, limit_key, capacity, slot, period)
               VALUES (?1, ?2, ?3, ?1, ?4)
               ON CONFLICT (run_id, limit_key) DO UPDATE SET capacity = excluded.capacity
               RETURNING slot = run_id""",
            run_id,
            limit_key,
            capacity,
            period,
        )
        if found is not None and found[0]:
            own.append(limit_key)
    return own


def check_queues(db: apsw.Connection, change: StartRun, most: int) -> None:
    """Raise if a queue that a new run would have to enter is full."""
    for limit_key, capacity in change.limits:
        shared = "SELECT 1 FROM limits WHERE run_id = ? AND limit_key = ?"
        if not has_queue(limit_key) or one(db, shared, change.id, limit_key):
            continue
        found = one(
            db,
            """SELECT (SELECT count(DISTINCT slot) FROM limits
                       WHERE limit_key = ?1 AND admitted = 1 AND capacity IS NOT NULL),
                   count(*), count(*) FILTER (WHERE r.blocked_on IS NULL OR r.blocked_on = ?1
                                                 OR r.due_at <= ?2)
               FROM limits l CROSS JOIN runs r
               WHERE l.limit_key = ?1 AND l.admitted = 0 AND r.id = l.run_id
                 AND (r.blocked_on IS NOT NULL OR r.due_at <= ?2)""",
            limit_key,
            change.created_at,
        )
        assert found is not None
        refuse_if_full(change.definition, limit_key, capacity, most, *found)


def wake_queued(db: apsw.Connection, limit_key: str, now: int, done: Committed) -> None:
    """Make as many queued runs due as the limit has room for, best first."""
    if is_throttle(limit_key):
        _call_for_turns(db, limit_key, now, done)
        return
    while True:
        first = one(
            db,
            f"""SELECT (SELECT r.id {_FIRST}) FROM (SELECT ? AS key) k
                WHERE {TAKEN} < {CAPACITY}""",
            limit_key,
        )
        if first is None:
            return
        run(db, "UPDATE runs SET due_at = min(created_at, ?) WHERE id = ?", now, first[0])
        done.due = True


def slots_taken(db: apsw.Connection, limit_key: str) -> int:
    row = one(db, f"SELECT {TAKEN} FROM (SELECT ? AS key) k", limit_key)
    assert row is not None
    return int(row[0])


def room_taken(
    db: apsw.Connection, run_id: str, limit_key: str, period: int | None, now: int
) -> int:
    """How many slots, or turns of a throttle, the run finds taken."""
    counted = _SLOTS_BEFORE if period is None else _TURNS_BEFORE
    row = one(db, f"SELECT {counted}", limit_key, now - (period or 0), now, run_id)
    assert row is not None
    return int(row[0])


def take_turn(db: apsw.Connection, limit_key: str, period: int, run_id: str, now: int) -> None:
    """The run begins."""
    last = one(
        db, "SELECT place, at FROM turns WHERE key = ? ORDER BY place DESC LIMIT 1", limit_key
    )
    place, last_at = last or (0, now)
    at = max(now, last_at)  # in the order of their places, whatever the clock does
    run(
        db,
        "INSERT INTO turns (key, place, at, run_id, over_at) VALUES (?, ?, ?, ?, ?)",
        limit_key,
        place + 1,
        at,
        run_id,
        at + period,
    )
    run(db, "DELETE FROM limits WHERE run_id = ? AND limit_key = ?", run_id, limit_key)


def turn_after(
    db: apsw.Connection, limit_key: str, limit: int, period: int, ahead: int, now: int
) -> int:
    """When it is the turn of who has so many of the throttle before it, as far as is known."""
    rounds, ahead = divmod(ahead, limit)
    found = one(
        db,
        """SELECT at FROM turns WHERE key = ?1
              AND place = (SELECT max(place) FROM turns WHERE key = ?1) + 1 + ?2 - ?3""",
        limit_key,
        ahead,
        limit,
    )
    return max(now, 0 if found is None else found[0] + period) + rounds * period


def _call_for_turns(db: apsw.Connection, limit_key: str, now: int, done: Committed) -> None:
    """Call as many as may begin now; if that is nobody, the first in line for its turn."""
    line = f"""FROM runs r JOIN limits l ON l.run_id = r.id AND l.limit_key = r.blocked_on
               WHERE r.blocked_on = ?1 AND (r.due_at IS NULL OR r.due_at > ?2) AND {ANSWERABLE}
               ORDER BY r.priority DESC, r.id"""
    first = one(db, f"SELECT r.id, l.capacity, l.period, r.due_at {line} LIMIT 1", limit_key, now)
    if first is None:
        return
    run_id, limit, period, called_for = first
    counted = one(db, f"SELECT {_BEGUN}, {_CALLED}", limit_key, now - period, now)
    assert counted is not None
    begun, called = counted
    if room := max(min(limit - begun, MOST_CALLED) - called, 0):
        found = all_rows(db, f"SELECT r.id, l.capacity, l.period {line} LIMIT ?3",
                         limit_key, now, room)  # fmt: skip
        # Who was started under another throttle waits until it is the first.
        same = [row[0] for row in found if row[1:] == (limit, period)]
        run(
            db,
            """UPDATE runs SET due_at = min(created_at, ?)
               WHERE id IN (SELECT value FROM json_each(?))""",
            now,
            pack(same),
        )
    elif called:
        return
    else:
        turn = turn_after(db, limit_key, limit, period, 0, now)
        if turn == now:  # what would say it has been forgotten
            turn = now + SECOND
        if called_for == turn:
            return
        # Somebody may have been called before who is not the first any more.
        run(
            db,
            "UPDATE runs SET due_at = NULL WHERE blocked_on = ? AND due_at > ?",
            limit_key,
            now,
        )
        run(db, "UPDATE runs SET due_at = ? WHERE id = ?", turn, run_id)
    done.due = True

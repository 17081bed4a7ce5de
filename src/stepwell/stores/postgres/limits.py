"""Limits on PostgreSQL: counting slots and turns, and calling up queued runs.

A slot of a concurrency limit is taken until its run has ended. A throttle has turns: one is taken
by who begins, and counts for the throttle's period, whatever becomes of the run. Whoever queues
takes none; so that somebody is there when a turn comes, the first in line is called for that time.

Whoever calls these holds the lock on the name of each limit, so that counts stay true.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import asyncpg

from stepwell.kernel.changes import Committed, StartRun
from stepwell.kernel.clock import SECOND
from stepwell.kernel.limits import has_queue, is_throttle, refuse_if_full
from stepwell.stores.rules import MOST_CALLED

# Whether some worker could execute the run `r`; only such a run is called up, and a call that
# nobody is left to answer holds no slot. IS TRUE keeps it a filter: as a join, which it would
# become, it would have all of a queue looked through and sorted for the first in it.
ANSWERABLE = """((r.workspace_id, r.program) IN (
        SELECT w.workspace_id, jsonb_array_elements_text(w.programs::jsonb) FROM workers w))
        IS TRUE"""

# Slots in use: those of runs at work, and those of runs called up but not yet claimed.
_SLOTS = """(SELECT count(DISTINCT l.slot) FROM limits l
              WHERE l.limit_key = k.key AND l.admitted AND l.capacity IS NOT NULL)"""
TAKEN = f"""{_SLOTS}
          + (SELECT count(*) FROM runs r
             WHERE r.blocked_on = k.key AND r.due_at IS NOT NULL AND {ANSWERABLE})"""

# How many must have been called: what the first run in the queue says the limit's capacity is, of
# a throttle one.
CAPACITY = f"""(SELECT (SELECT CASE WHEN period IS NULL THEN capacity ELSE 1 END FROM limits
                        WHERE run_id = r.id AND limit_key = k.key)
                FROM runs r WHERE r.blocked_on = k.key AND r.due_at IS NULL AND {ANSWERABLE}
                ORDER BY r.priority DESC, r.id LIMIT 1)"""

_LAST = "(SELECT t.place FROM turns t WHERE t.key = k.key ORDER BY t.place DESC LIMIT 1)"
# How many of the throttle `k` have begun within the period that `k` says, and were called by $2.
_BEGUN = f"""coalesce({_LAST} - (
                 SELECT t.place FROM turns t WHERE t.key = k.key AND t.at > $2 - k.period
                 ORDER BY t.at, t.place LIMIT 1) + 1, 0)"""
_CALLED = f"""(SELECT count(*) FROM runs r
               WHERE r.blocked_on = k.key AND r.due_at <= $2 AND {ANSWERABLE})"""
# Runs in the queue of the throttle `k`, best first, those too that were called for later.
_LINE = f"""SELECT r.id, r.due_at FROM runs r
            WHERE r.blocked_on = k.key AND (r.due_at IS NULL OR r.due_at > $2) AND {ANSWERABLE}
            ORDER BY r.priority DESC, r.id"""
# What the throttle is for the run `r` of that queue.
_THROTTLE = """LATERAL (SELECT capacity, period FROM limits
                        WHERE run_id = r.id AND limit_key = k.key OFFSET 0) l"""

# A limit, and for how long one of a throttle counts.
Key = tuple[str, int | None]
# Where a run stands in every queue: its priority, from below, and its id.
Rank = tuple[int, str]


async def file_under(
    db: asyncpg.Connection, starts: Iterable[tuple[str, StartRun]]
) -> set[tuple[str, str]]:
    """File runs under the limits of starts; (run, limit) for each that needs room of its own."""
    filed = [(run_id, *each) for run_id, change in starts for each in change.filed]
    if not filed:
        return set()
    rows = await db.fetch(
        """INSERT INTO stepwell.limits (run_id, limit_key, capacity, slot, period)
           SELECT run_id, limit_key, capacity, run_id, period
           FROM unnest($1::text[], $2::text[], $3::integer[], $4::bigint[])
               AS g (run_id, limit_key, capacity, period)
           ON CONFLICT (run_id, limit_key) DO UPDATE SET capacity = excluded.capacity
           RETURNING run_id, limit_key, slot = run_id""",
        *zip(*filed, strict=True),
    )
    return {(row[0], row[1]) for row in rows if row[2]}


async def check_queues(db: asyncpg.Connection, change: StartRun, most: int) -> None:
    """Raise if a queue that a new run would have to enter is full."""
    for limit_key, capacity in change.limits:
        shared = "SELECT true FROM limits WHERE run_id = $1 AND limit_key = $2"
        if not has_queue(limit_key) or await db.fetchval(shared, change.id, limit_key):
            continue
        found = await db.fetchrow(
            """SELECT (SELECT count(DISTINCT slot) FROM limits
                       WHERE limit_key = $1 AND admitted AND capacity IS NOT NULL),
                   count(*), count(*) FILTER (WHERE r.blocked_on IS NULL OR r.blocked_on = $1
                                                 OR r.due_at <= $2)
               FROM limits l CROSS JOIN LATERAL (
                   SELECT blocked_on, due_at FROM runs WHERE id = l.run_id OFFSET 0) r
               WHERE l.limit_key = $1 AND NOT l.admitted
                 AND (r.blocked_on IS NOT NULL OR r.due_at <= $2)""",
            limit_key,
            change.created_at,
        )
        assert found is not None
        refuse_if_full(change.definition, limit_key, capacity, most, *found)


class Room:
    """What is taken of a limit or a throttle, as somebody finds it who comes to it."""

    def __init__(self, taken: int, calls: Iterable[Rank]) -> None:
        # Slots in use, or turns of late.
        self._taken = taken
        self._calls = sorted(calls)

    def taken_before(self, rank: Rank) -> int:
        """With those called who stand before them: others were called while they waited elsewhere.

        Whoever stands behind, and is not let in any more for that, queues again.
        """
        return self._taken + bisect_left(self._calls, rank)

    def answer(self, rank: Rank) -> None:
        """Somebody who was called is here."""
        index = bisect_left(self._calls, rank)
        if self._calls[index : index + 1] == [rank]:
            del self._calls[index]

    def take(self) -> None:
        self._taken += 1


async def rooms_of(db: asyncpg.Connection, keys: Collection[Key], now: int) -> dict[Key, Room]:
    """What is taken of limits and throttles."""
    limits = {key for key, period in keys if period is None}
    found: dict[Key, Room] = {}
    if limits:
        rows = await db.fetch(
            f"""SELECT k.key, {_SLOTS}, c.*
                FROM unnest($1::text[]) AS k (key)
                CROSS JOIN {_called("r.due_at IS NOT NULL")} c""",
            list(limits),
        )
        found = {(row[0], None): _room(row[1:]) for row in rows}
    if throttles := [each for each in keys if each[1] is not None]:
        rows = await db.fetch(
            f"""SELECT k.key, k.period, {_BEGUN}, c.*
                FROM unnest($1::text[], $3::bigint[]) AS k (key, period)
                CROSS JOIN {_called("r.due_at <= $2")} c""",
            [key for key, _ in throttles],
            now,
            [period for _, period in throttles],
        )
        found |= {(row[0], row[1]): _room(row[2:]) for row in rows}
    return found


def _called(when: str) -> str:
    """SQL: priorities and ids of those who were called for the limit `k`, in the same order."""
    return f"""LATERAL (SELECT array_agg(r.priority ORDER BY r.id), array_agg(r.id ORDER BY r.id)
                        FROM runs r WHERE r.blocked_on = k.key AND {when} AND {ANSWERABLE})"""


def _room(row: Sequence[Any]) -> Room:
    taken, priorities, ids = row
    return Room(taken, zip((-each for each in priorities or ()), ids or (), strict=True))


async def take_turns(
    db: asyncpg.Connection, turns: Sequence[tuple[str, int, str]], now: int
) -> None:
    """Runs begin (throttle, period, run), in this order."""
    # In the order of their places, whatever the clocks of workers do.
    await db.fetch(
        """WITH given AS MATERIALIZED (
               SELECT key, period, run_id,
                   row_number() OVER (PARTITION BY key ORDER BY number) AS number
               FROM unnest($1::text[], $2::bigint[], $3::text[]) WITH ORDINALITY
                   AS g (key, period, run_id, number)
           ), last AS MATERIALIZED (
               SELECT k.key, coalesce(t.place, 0) AS place, greatest(t.at, $4) AS at
               FROM (SELECT DISTINCT key FROM given) k LEFT JOIN LATERAL (
                   SELECT place, at FROM turns WHERE key = k.key ORDER BY place DESC LIMIT 1) t
                   ON true
           ), gone AS (
               DELETE FROM limits l USING given g
               WHERE l.run_id = ANY($3) AND l.run_id = g.run_id AND l.limit_key = g.key
           )
           INSERT INTO turns (key, place, at, run_id, over_at)
           SELECT g.key, l.place + g.number, l.at, g.run_id, l.at + g.period
           FROM given g JOIN last l USING (key)""",
        *zip(*turns, strict=True),
        now,
    )


async def turn_after(
    db: asyncpg.Connection, limit_key: str, limit: int, period: int, ahead: int, now: int
) -> int:
    """When it is the turn of who has so many of the throttle before it, as far as is known."""
    rounds, ahead = divmod(ahead, limit)
    found = await db.fetchval(
        f"""SELECT t.at FROM (SELECT $1 AS key) k, turns t
            WHERE t.key = $1 AND t.place = {_LAST} + 1 + $2 - $3""",
        limit_key,
        ahead,
        limit,
    )
    return max(now, 0 if found is None else found + period) + rounds * period


async def wake_queued(
    db: asyncpg.Connection, keys: Collection[str], now: int, done: Committed
) -> None:
    """Make as many queued runs due as each limit has room for, best first."""
    if throttles := [key for key in keys if is_throttle(key)]:
        await _call_for_turns(db, throttles, now, done)
    limits = [key for key in keys if not is_throttle(key)]
    if not limits:
        return
    rows = await db.fetch(
        f"""SELECT k.key, {TAKEN}, {CAPACITY} FROM unnest($1::text[]) AS k (key)""", limits
    )
    called: list[str] = []
    for key, taken, capacity in rows:
        if capacity is not None and taken < capacity:
            called += await _first_in_queue(db, key, taken, capacity - taken)
    await _call(db, called, now, done)


async def _first_in_queue(db: asyncpg.Connection, key: str, taken: int, room: int) -> list[str]:
    # A queued run that somebody has locked is passed over: waiting here would be out of order.
    rows = await db.fetch(
        f"""SELECT r.id, (SELECT capacity FROM limits WHERE run_id = r.id AND limit_key = $1)
           FROM runs r WHERE r.blocked_on = $1 AND r.due_at IS NULL AND {ANSWERABLE}
           ORDER BY r.priority DESC, r.id LIMIT $2 FOR UPDATE OF r SKIP LOCKED""",
        key,
        room,
    )
    called: list[str] = []
    for run_id, capacity in rows:
        if taken + len(called) >= capacity:
            break
        called.append(run_id)
    return called


async def _call(db: asyncpg.Connection, called: Sequence[str], now: int, done: Committed) -> None:
    if called:
        await db.fetch(
            "UPDATE runs SET due_at = least(created_at, $2) WHERE id = ANY($1)", called, now
        )
        done.due = True


class _Queue(NamedTuple):
    """A throttle somebody waits for, with what the first in line says it is."""

    key: str
    limit: int
    period: int
    first_due_at: int | None
    begun: int
    called: int

    @property
    def room(self) -> int:
        return min(self.limit - self.begun, MOST_CALLED) - self.called


async def _call_for_turns(
    db: asyncpg.Connection, keys: Sequence[str], now: int, done: Committed
) -> None:
    """Call as many as may begin now; if that is nobody, the first in line for its turn."""
    rows = await db.fetch(
        f"""SELECT k.key, k.capacity, k.period, k.due_at, {_BEGUN}, {_CALLED}
            FROM (SELECT k.key, l.capacity, l.period, r.due_at FROM unnest($1::text[]) AS k (key)
                  CROSS JOIN LATERAL ({_LINE} LIMIT 1) r CROSS JOIN {_THROTTLE}) k""",
        keys,
        now,
    )
    queues = [_Queue(*row) for row in rows]
    if free := [queue for queue in queues if queue.room > 0]:
        rows = await db.fetch(
            f"""SELECT r.id, k.key, l.capacity, l.period
                FROM unnest($1::text[], $3::bigint[]) AS k (key, room) CROSS JOIN LATERAL (
                    {_LINE} LIMIT k.room FOR UPDATE OF r SKIP LOCKED) r CROSS JOIN {_THROTTLE}""",
            [queue.key for queue in free],
            now,
            [queue.room for queue in free],
        )
        # Who was started under another throttle waits until it is the first.
        same = {(queue.key, queue.limit, queue.period) for queue in free}
        await _call(db, [row[0] for row in rows if tuple(row[1:]) in same], now, done)
    for queue in queues:
        if queue.room <= 0 and queue.called == 0:
            await _call_for_later(db, queue, now, done)


async def _call_for_later(db: asyncpg.Connection, queue: _Queue, now: int, done: Committed) -> None:
    turn = await turn_after(db, queue.key, queue.limit, queue.period, 0, now)
    if turn == now:  # what would say it has been forgotten
        turn = now + SECOND
    if queue.first_due_at == turn:
        return
    # Somebody may have been called before who is not the first any more.
    await db.fetch(
        """UPDATE runs SET due_at = NULL WHERE id = ANY(ARRAY(
               SELECT id FROM runs WHERE blocked_on = $1 AND due_at > $2
               FOR NO KEY UPDATE SKIP LOCKED))""",
        queue.key,
        now,
    )
    await db.fetch(
        f"""UPDATE runs SET due_at = $3 WHERE id = ANY(ARRAY(
               SELECT r.id FROM (SELECT $1 AS key) k CROSS JOIN LATERAL (
                   {_LINE} LIMIT 1 FOR UPDATE OF r SKIP LOCKED) r))""",
        queue.key,
        now,
        turn,
    )
    done.due = True

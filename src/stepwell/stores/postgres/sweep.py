"""The sweep on PostgreSQL: dead workers' runs, runs out of time, queues that were forgotten.

It goes before the batch that asked for it, in transactions of its own: what it has to lock
is known only once it has looked, and locks must be taken in order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import asyncpg

from stepwell.kernel.changes import Committed
from stepwell.kernel.crashes import Stopped, Verdict, judge
from stepwell.kernel.outcomes import Ending, crash_loop_error, deadline_error, ttl_error
from stepwell.kernel.states import REPLAYED, quoted
from stepwell.stores.postgres.ending import finish
from stepwell.stores.postgres.limits import CAPACITY, TAKEN, wake_queued
from stepwell.stores.postgres.locking import limit_name, lock, lock_names
from stepwell.stores.rules import MOST_DEAD, QUEUES, SWEEP_LIMIT

# Who has slots where there is a queue, what they wait for, and whose children they are. OFFSET 0
# keeps to this order of looking.
_RELATED = """holders (key, slot, id) AS MATERIALIZED (
       SELECT q.key, l.slot, l.run_id FROM queues q CROSS JOIN LATERAL (
           SELECT slot, run_id FROM limits
           WHERE limit_key = q.key AND admitted AND capacity IS NOT NULL OFFSET 0) l
   ), awaited (key, slot, id) AS (
       SELECT key, slot, id FROM holders
       UNION
       SELECT a.key, a.slot, w.child_run_id FROM awaited a CROSS JOIN LATERAL (
           SELECT child_run_id, ended_at FROM waits WHERE run_id = a.id OFFSET 0) w
       WHERE w.child_run_id IS NOT NULL AND w.ended_at IS NULL
   ), parents (key, slot, id) AS (
       SELECT key, slot, id FROM holders
       UNION
       SELECT p.key, p.slot, r.parent_run_id FROM parents p CROSS JOIN LATERAL (
           SELECT parent_run_id FROM runs WHERE id = p.id OFFSET 0) r
       WHERE r.parent_run_id IS NOT NULL
   )"""
# Of these the queued ones. None of them might ever be called up, so they share that slot: runs
# of one tree do so from their start, but not those that a retry or a fork found at work.
_STARVED = """SELECT a.id, a.key, a.slot
   FROM (SELECT * FROM awaited UNION SELECT * FROM parents) a CROSS JOIN LATERAL (
       SELECT FROM runs WHERE id = a.id AND blocked_on = a.key AND due_at IS NULL OFFSET 0) r"""


async def sweep(db: asyncpg.Connection, now: int, done: Committed) -> bool:
    """Look whether there is anything to do, which is rare; then do it, one worker at a time.

    False if there is more to be looked at than was.
    """
    row = await db.fetchrow(
        f"""WITH RECURSIVE {QUEUES}, {_RELATED}, owners (id) AS (
                SELECT min(owner) FROM runs WHERE owner IS NOT NULL
                UNION ALL
                SELECT (SELECT min(r.owner) FROM runs r WHERE r.owner > o.id)
                FROM owners o WHERE o.id IS NOT NULL
            )
            SELECT (SELECT array_agg(id) FROM (
                        SELECT id FROM workers WHERE expires_at <= $1
                        UNION
                        SELECT id FROM owners
                        WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM workers) LIMIT $3) w),
                   (SELECT array_agg(id) FROM (
                        SELECT id FROM runs WHERE expires_at <= $1
                        ORDER BY expires_at LIMIT $2) r),
                   (SELECT array_agg(key) FROM (
                        SELECT k.key FROM queues k
                        WHERE k.key IS NOT NULL AND {TAKEN} < {CAPACITY} LIMIT $2) q),
                   (SELECT array_agg(ARRAY[id, key]) FROM ({_STARVED} LIMIT $2) s)""",
        now,
        SWEEP_LIMIT,
        MOST_DEAD,
    )
    assert row is not None
    dead, late, queues, starved = (found or [] for found in row)
    swept_all = len(dead) < MOST_DEAD and max(len(queues), len(starved)) < SWEEP_LIMIT
    for worker_id in dead:
        verdicts: list[Verdict] = []
        await _alone(db, partial(_take_over, db, worker_id, now, done, verdicts))
        swept_all = swept_all and len(verdicts) < SWEEP_LIMIT
        looping = [run for run in verdicts if run.looping]
        if looping:
            with contextlib.suppress(asyncpg.LockNotAvailableError):
                await _alone(db, partial(_end_looping, db, worker_id, looping, now, done))
    if late:
        try:
            await _alone(db, partial(_expire, db, late, now, done))
        except asyncpg.LockNotAvailableError:
            free = await db.fetch(  # all but those that somebody holds
                "SELECT id FROM runs WHERE id = ANY($1) FOR NO KEY UPDATE SKIP LOCKED", late
            )
            with contextlib.suppress(asyncpg.LockNotAvailableError):
                await _alone(db, partial(_expire, db, [row[0] for row in free], now, done))
    if queues:
        await _alone(db, partial(_unblock, db, queues, now, done))
    if starved:
        with contextlib.suppress(asyncpg.LockNotAvailableError):
            await _alone(db, partial(_feed, db, dict(starved), done))
    return swept_all


async def _alone(db: asyncpg.Connection, work: Callable[[], Awaitable[None]]) -> None:
    """Do this in a transaction, unless another worker is sweeping."""
    async with db.transaction():
        # A row that somebody holds is left to the next sweep: a batch waits for this one.
        await db.execute("SET LOCAL lock_timeout = '50ms'")
        if await db.fetchval(
            "SELECT pg_try_advisory_xact_lock(hashtextextended('stepwell:sweep', 0))"
        ):
            await work()


async def _take_over(
    db: asyncpg.Connection, worker_id: str, now: int, done: Committed, verdicts: list[Verdict]
) -> None:
    """Make the runs of a worker whose lease has passed due again, but those that are looping."""
    # A lease that is locked is being renewed, or claimed under, at this moment.
    free = await db.fetchval(
        "SELECT true FROM workers WHERE id = $1 AND expires_at <= $2 FOR UPDATE SKIP LOCKED",
        worker_id,
        now,
    )
    if not free and await db.fetchval("SELECT true FROM workers WHERE id = $1", worker_id):
        return
    rows = await db.fetch(
        f"""SELECT h.id, h.crashes, h.crash_progress, p.progress, h.claimed_at
           FROM (SELECT id, crashes, crash_progress, claimed_at FROM runs WHERE owner = $1
                 ORDER BY id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED) h
           CROSS JOIN LATERAL (
               SELECT count(*)::integer AS progress FROM steps
               WHERE run_id = h.id AND status IN ({quoted(REPLAYED)})) p""",
        worker_id,
        SWEEP_LIMIT,
    )
    verdicts += judge([Stopped(*row) for row in rows], now)
    taken = [run for run in verdicts if not run.looping]
    if taken:
        await _count_crash(db, taken)
        ids = [run.run_id for run in taken]
        await db.fetch("UPDATE runs SET owner = NULL WHERE id = ANY($1)", ids)
        done.due = True
        done.stopped.extend((run_id, worker_id) for run_id in ids)
    await _strike_off(db, worker_id)


async def _count_crash(db: asyncpg.Connection, verdicts: Sequence[Verdict]) -> None:
    await db.fetch(
        """UPDATE runs r SET attempt = r.attempt + 1, crashes = g.crashes,
               crash_progress = g.progress, due_at = g.due_at
           FROM unnest($1::text[], $2::integer[], $3::integer[], $4::bigint[])
               AS g (id, crashes, progress, due_at)
           WHERE r.id = ANY($1) AND r.id = g.id""",
        *zip(*verdicts, strict=True),
    )


async def _strike_off(db: asyncpg.Connection, worker_id: str) -> None:
    """Forget a worker once nothing is left that somebody would have to take over."""
    await db.fetch(
        "DELETE FROM workers WHERE id = $1 AND NOT EXISTS (SELECT FROM runs WHERE owner = $1)",
        worker_id,
    )


async def _end_looping(
    db: asyncpg.Connection,
    worker_id: str,
    looping: Sequence[Verdict],
    now: int,
    done: Committed,
) -> None:
    """Fail runs that took their worker down too often; until then the dead worker keeps them."""
    ids = [run.run_id for run in looping]
    locked = await lock(db, {}, ids, ids)
    doomed = [
        run for run in looping if (row := locked.get(run.run_id)) and row["owner"] == worker_id
    ]
    if not doomed:
        return
    await _count_crash(db, doomed)
    ids = [run.run_id for run in doomed]
    steps = await db.fetch(
        """SELECT r.id, (SELECT key FROM steps WHERE run_id = r.id AND status = 'running'
                            AND kind = 'step' ORDER BY seq LIMIT 1)
           FROM runs r WHERE r.id = ANY($1)""",
        ids,
    )
    endings = [Ending(row[0], "failed", None, crash_loop_error(row[1]), now) for row in steps]
    # The step that did it has failed; without this it would be given up with all that was open.
    await db.fetch(
        """UPDATE steps s SET status = 'failed', error = g.error, completed_at = $4
           FROM unnest($1::text[], $2::text[], $3::text[]) AS g (run_id, key, error)
           WHERE s.run_id = g.run_id AND s.key = g.key""",
        [row[0] for row in steps],
        [row[1] for row in steps],
        [ending.error for ending in endings],
        now,
    )
    await finish(db, endings, done)
    done.stopped.extend((run_id, worker_id) for run_id in ids)
    await _strike_off(db, worker_id)


async def _expire(
    db: asyncpg.Connection, run_ids: Sequence[str], now: int, done: Committed
) -> None:
    """End runs that passed their deadline, or their time to live in the queue."""
    await lock(db, {}, run_ids, run_ids)
    late = await db.fetch(
        """SELECT id, owner, coalesce(deadline_at <= $2, false) FROM runs
           WHERE id = ANY($1) AND expires_at <= $2""",
        run_ids,
        now,
    )
    endings = [
        Ending(row[0], "timed_out", None, deadline_error() if row[2] else ttl_error(), now)
        for row in late
    ]
    await finish(db, endings, done)
    done.stopped.extend((row[0], row[1]) for row in late)


async def _unblock(db: asyncpg.Connection, keys: Sequence[str], now: int, done: Committed) -> None:
    """The safety net under the calls of `wake_queued`: queues whose limits have room."""
    await lock_names(db, {limit_name(key): True for key in keys}, [])
    await wake_queued(db, keys, now, done)


async def _feed(db: asyncpg.Connection, starved: Mapping[str, str], done: Committed) -> None:
    """Give queued runs, by their limits, a share of the slot of who waits for them or is below."""
    # Nothing is counted here, for who shares a slot takes none. But whoever has that slot must
    # not end meanwhile, and give it to the next in line: for that, too, a limit has to be locked.
    await lock(db, {limit_name(key): True for key in starved.values()}, list(starved), [])
    rows = await db.fetch(
        f"""WITH RECURSIVE {QUEUES}, {_RELATED} {_STARVED}
            WHERE a.id = ANY($1) AND a.key = ANY($2)""",
        list(starved),
        list(starved.values()),
    )
    for run_id, key, slot in rows:
        await db.fetch(
            """UPDATE limits SET slot = $3, admitted = true
               WHERE run_id = $1 AND limit_key = $2""",
            run_id,
            key,
            slot,
        )
        await db.fetch(
            "UPDATE runs SET blocked_on = NULL, due_at = created_at WHERE id = $1", run_id
        )
        done.due = True

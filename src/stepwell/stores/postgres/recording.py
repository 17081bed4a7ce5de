"""The journal on PostgreSQL: steps and failed attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from stepwell.kernel.changes import FENCED, Committed, LogAttempt, RecordStep
from stepwell.kernel.states import OPEN, quoted
from stepwell.stores.postgres.buffered import give_back
from stepwell.stores.postgres.columns import Columns


class Entry:
    """What a batch says about one journal entry: the first word on it, and the last."""

    __slots__ = ("first", "indexes", "last")

    def __init__(self, index: int, change: RecordStep) -> None:
        self.first = self.last = change
        self.indexes = [index]

    def add(self, index: int, change: RecordStep) -> None:
        self.indexes.append(index)
        if self.last.status in OPEN or change.status == "skipped":
            self.last = change


def _entries(found: Sequence[tuple[int, RecordStep]]) -> list[Entry]:
    """One entry per key: a statement must not write the same row twice."""
    entries: dict[tuple[str, str, int], Entry] = {}
    for index, change in found:
        held = change.held
        known = entries.get((held.run_id, change.key, held.fence))
        if known is None:
            entries[held.run_id, change.key, held.fence] = Entry(index, change)
        else:
            known.add(index, change)
    return list(entries.values())


_STEPS = Columns(
    "run_id text", "key text", "seq integer", "position bigint", "kind text", "status text",
    "attempts integer", "output text", "error text", "started_at bigint", "completed_at bigint",
    "settles boolean", "owner text", "fence integer", "number integer",
)  # fmt: skip

_INTO_STEPS = """INSERT INTO steps (run_id, key, seq, position, kind, status, attempts, output,
                                    error, started_at, completed_at)"""

# What is settled stays as it is, whoever records it once more; unless its program gave it up
# before it saw the result.
_UNLESS_SETTLED = f"""ON CONFLICT (run_id, key) DO UPDATE SET
       position = excluded.position, status = excluded.status, attempts = excluded.attempts,
       output = excluded.output, error = excluded.error, completed_at = excluded.completed_at
   WHERE steps.status IN ({quoted(OPEN)}) OR excluded.status = 'skipped'"""


def _rows(entries: list[Entry]) -> list[tuple[Any, ...]]:
    return [
        (
            c.held.run_id, e.first.key, e.first.seq, c.position, e.first.kind, c.status,
            c.attempts, c.output, c.error, e.first.started_at, c.completed_at, c.settles,
            c.held.owner, c.held.fence, number,
        )
        for number, e in enumerate(entries)
        for c in (e.last,)
    ]  # fmt: skip


async def record_alone(db: asyncpg.Connection, batch: Sequence[RecordStep]) -> Committed:
    """Journal entries and nothing else: one statement, one trip, fence and commit included."""
    done = Committed(outcomes=[None] * len(batch))
    if len(batch) == 1 and not batch[0].settles and await _record_one(db, batch[0]):
        return done
    entries = _entries(list(enumerate(batch)))
    held = await db.fetchval(
        f"""WITH given AS MATERIALIZED ({_STEPS.sql}), held AS MATERIALIZED (
                SELECT g.* FROM given g
                JOIN runs r ON r.id = g.run_id AND r.fence = g.fence
                  AND r.owner IS NOT DISTINCT FROM g.owner
                WHERE r.id = ANY(ARRAY(SELECT run_id FROM given))
                ORDER BY r.id FOR NO KEY UPDATE OF r
            ), recorded AS (
                {_INTO_STEPS} SELECT run_id, key, seq, position, kind, status, attempts, output,
                    error, started_at, completed_at FROM held {_UNLESS_SETTLED}
            ), settled AS (
                DELETE FROM waits w USING held h
                WHERE w.run_id = ANY(ARRAY(SELECT run_id FROM held WHERE settles))
                  AND h.settles AND w.run_id = h.run_id AND w.key = h.key
            )
            SELECT array_agg(number) FROM held""",
        *_STEPS.pack(_rows(entries)),
    )
    if held is None or len(held) < len(entries):
        for number in set(range(len(entries))).difference(held or ()):
            for index in entries[number].indexes:
                done.outcomes[index] = FENCED
    return done


async def _record_one(db: asyncpg.Connection, c: RecordStep) -> bool:
    """The same for one entry, in half the time; False if it is fenced off, or recorded already."""
    recorded = await db.fetchval(
        f"""WITH held AS MATERIALIZED (
                SELECT FROM runs WHERE id = $1 AND owner IS NOT DISTINCT FROM $2 AND fence = $3
                FOR NO KEY UPDATE
            )
            {_INTO_STEPS} SELECT $1, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13 FROM held
            {_UNLESS_SETTLED} RETURNING true""",
        c.held.run_id, c.held.owner, c.held.fence, c.key, c.seq, c.position, c.kind, c.status,
        c.attempts, c.output, c.error, c.started_at, c.completed_at,
    )  # fmt: skip
    return recorded is not None


async def record_steps(
    db: asyncpg.Connection, found: list[tuple[int, RecordStep]], done: Committed
) -> None:
    """Journal entries of runs that are locked and held. A wait that has served is removed."""
    await db.fetch(
        f"""WITH given AS MATERIALIZED ({_STEPS.sql}), settled AS (
                DELETE FROM waits w USING given g
                WHERE w.run_id = ANY(ARRAY(SELECT run_id FROM given WHERE settles))
                  AND g.settles AND w.run_id = g.run_id AND w.key = g.key
            )
            {_INTO_STEPS} SELECT run_id, key, seq, position, kind, status, attempts, output,
                error, started_at, completed_at FROM given {_UNLESS_SETTLED}""",
        *_STEPS.pack(_rows(_entries(found))),
    )
    given_up = [(c.held.run_id, c.key) for _, c in found if gives_up(c)]
    if given_up:
        # What a wait took but never handed on goes back, and to the next one that is open.
        await give_back(db, given_up, done)


def gives_up(change: RecordStep) -> bool:
    """Whether the entry ends a wait whose signal has to be given back."""
    return change.settles and change.status == "skipped"


async def log_attempts(
    db: asyncpg.Connection, found: list[tuple[int, LogAttempt]], _: Committed
) -> None:
    await db.fetch(
        """INSERT INTO attempts (run_id, key, number, error, started_at, failed_at)
           SELECT * FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[], $5::bigint[],
                                $6::bigint[]) ON CONFLICT DO NOTHING""",
        *zip(
            *[
                (c.held.run_id, c.key, c.number, c.error, c.started_at, c.failed_at)
                for _, c in found
            ],
            strict=True,
        ),
    )

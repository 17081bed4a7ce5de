"""The journal on PostgreSQL: steps and failed attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from stepwell.kernel.changes import FENCED, Committed, LogAttempt, RecordStep

OPEN = ("running", "retrying")


class Entry:
    """What a batch says about one journal entry: the first word on it, and the last."""

    __slots__ = ("first", "indexes", "last")

    def __init__(self, index: int, change: RecordStep) -> None:
        self.first = self.last = change
        self.indexes = [index]

    def add(self, index: int, change: RecordStep) -> None:
        self.indexes.append(index)
        if self.last.status in OPEN:
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


def _columns(entries: list[Entry]) -> list[Any]:
    """The arrays that both statements below take apart."""
    return list(
        zip(
            *[
                (
                    c.held.run_id, e.first.key, e.first.seq, c.position, e.first.kind, c.status,
                    c.attempts, c.output, c.error, e.first.started_at, c.completed_at, c.settles,
                    c.held.owner, c.held.fence,
                )
                for e in entries
                for c in (e.last,)
            ],
            strict=True,
        )
    )  # fmt: skip


async def record_alone(db: asyncpg.Connection, batch: Sequence[RecordStep]) -> Committed:
    """Journal entries and nothing else: one statement, one trip, fence and commit included."""
    entries = _entries(list(enumerate(batch)))
    held = await db.fetchval(
        """WITH held AS MATERIALIZED (
               SELECT g.* FROM unnest($1::text[], $2::text[], $3::integer[], $4::bigint[],
                   $5::text[], $6::text[], $7::integer[], $8::text[], $9::text[], $10::bigint[],
                   $11::bigint[], $12::boolean[], $13::text[], $14::integer[]) WITH ORDINALITY
               AS g (run_id, key, seq, position, kind, status, attempts, output, error, started_at,
                     completed_at, settles, owner, fence, number)
               JOIN runs r ON r.id = g.run_id AND r.owner = g.owner AND r.fence = g.fence
               WHERE r.id = ANY($1)
               ORDER BY r.id FOR NO KEY UPDATE OF r
           ), recorded AS (
               INSERT INTO steps (run_id, key, seq, position, kind, status, attempts, output,
                                  error, started_at, completed_at)
               SELECT run_id, key, seq, position, kind, status, attempts, output, error,
                      started_at, completed_at FROM held
               ON CONFLICT (run_id, key) DO UPDATE SET
                   position = excluded.position, status = excluded.status,
                   attempts = excluded.attempts, output = excluded.output,
                   error = excluded.error, completed_at = excluded.completed_at
               WHERE steps.status IN ('running', 'retrying')
           ), settled AS (
               DELETE FROM waits w USING held h
               WHERE w.run_id = ANY(ARRAY(SELECT run_id FROM held WHERE settles))
                 AND h.settles AND w.run_id = h.run_id AND w.key = h.key
           )
           SELECT array_agg(number) FROM held""",
        *_columns(entries),
    )
    done = Committed(outcomes=[None] * len(batch))
    if held is None or len(held) < len(entries):
        for number in set(range(1, len(entries) + 1)).difference(held or ()):
            for index in entries[number - 1].indexes:
                done.outcomes[index] = FENCED
    return done


async def record_steps(
    db: asyncpg.Connection, found: list[tuple[int, RecordStep]], _: Committed
) -> None:
    """Journal entries of runs that are locked and held. A wait that has served is removed."""
    columns = _columns(_entries(found))
    await db.fetch(
        """WITH given AS MATERIALIZED (
               SELECT * FROM unnest($1::text[], $2::text[], $3::integer[], $4::bigint[],
                   $5::text[], $6::text[], $7::integer[], $8::text[], $9::text[], $10::bigint[],
                   $11::bigint[], $12::boolean[])
               AS g (run_id, key, seq, position, kind, status, attempts, output, error, started_at,
                     completed_at, settles)
           ), settled AS (
               DELETE FROM waits w USING given g
               WHERE w.run_id = ANY(ARRAY(SELECT run_id FROM given WHERE settles))
                 AND g.settles AND w.run_id = g.run_id AND w.key = g.key
           )
           INSERT INTO steps (run_id, key, seq, position, kind, status, attempts, output, error,
                              started_at, completed_at)
           SELECT run_id, key, seq, position, kind, status, attempts, output, error, started_at,
                  completed_at FROM given
           ON CONFLICT (run_id, key) DO UPDATE SET
               position = excluded.position, status = excluded.status,
               attempts = excluded.attempts, output = excluded.output, error = excluded.error,
               completed_at = excluded.completed_at
           WHERE steps.status IN ('running', 'retrying')""",
        *columns[:12],
    )
    given_up = [(c.held.run_id, c.key) for _, c in found if c.settles and c.status == "skipped"]
    if given_up:
        # What a wait took but never handed on goes back.
        await db.fetch(
            """UPDATE events e SET consumed_by = NULL
               FROM unnest($1::text[], $2::text[]) AS g (run_id, key)
               WHERE e.run_id = ANY($1) AND e.run_id = g.run_id AND e.consumed_by = g.key""",
            *zip(*given_up, strict=True),
        )


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

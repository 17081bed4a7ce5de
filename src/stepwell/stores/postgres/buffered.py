"""Buffered signals on PostgreSQL: each is kept for its run until a wait takes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import asyncpg

from stepwell.kernel.changes import Committed
from stepwell.kernel.signals import Awaiting, Buffered, hand_out
from stepwell.stores.postgres.columns import Columns, pack_texts, texts
from stepwell.stores.postgres.ending import Result, end_waits

_PAIRS = Columns("run_id text", "key text")
_PLACES = Columns("run_id text", "event text", "after text", "size integer")
_CONSUMED = Columns("id text", "key text")

# How many signals are read at a time, at most, for each wait that none of them has matched yet.
MAX_GROWTH = 4096


async def hand_out_buffered(
    db: asyncpg.Connection, waits: Sequence[Awaiting], done: Committed
) -> None:
    """Give buffered signals of runs, in order, to these open waits of theirs.

    As many signals as there are waits are enough where these take any; for those that are
    choosy more and more are read, until they are served or nothing is left.
    """
    opened_at = {(wait.run_id, wait.key): wait.created_at for wait in waits}
    after: dict[tuple[str, str | None], str] = {}
    growth = 1
    while waits:
        wanted = Counter((wait.run_id, wait.event) for wait in waits)
        signals = await _next(
            db, [(*place, after.get(place), n * growth) for place, n in wanted.items()]
        )
        taken = hand_out(signals, waits)
        await consume(db, taken)
        served = {(s.run_id, taken[s.id]): s for s in signals if s.id in taken}
        await end_waits(
            db,
            [
                Result(*wait, signal.payload, max(opened_at[wait], signal.created_at))
                for wait, signal in served.items()
            ],
            done,
        )
        after.update({(s.run_id, s.type): s.id for s in signals})
        found: Counter[tuple[str, str | None]] = Counter((s.run_id, s.type) for s in signals)
        more = {place for place, n in wanted.items() if found[place] == n * growth}
        waits = [
            w for w in waits if (w.run_id, w.key) not in served and (w.run_id, w.event) in more
        ]
        growth = min(8 * growth, MAX_GROWTH)


async def _next(
    db: asyncpg.Connection, places: Iterable[tuple[str, str | None, str | None, int]]
) -> list[Buffered]:
    """The next so many signals after an id for each run and name, in order."""
    rows = await db.fetch(
        f"""SELECT e.* FROM ({_PLACES.sql}) g CROSS JOIN LATERAL (
               SELECT id, run_id, type, payload, created_at FROM events
               WHERE run_id = g.run_id AND type = g.event AND consumed_by IS NULL
                 AND id > coalesce(g.after, '') ORDER BY id NULLS FIRST LIMIT g.size) e
            ORDER BY e.id""",
        *_PLACES.pack(places),
    )
    return [Buffered(*row) for row in rows]


async def give_back(
    db: asyncpg.Connection, given_up: Sequence[tuple[str, str]], done: Committed
) -> None:
    """Take signals from waits (run, key) that were given up, for those that are open already."""
    rows = await db.fetch(
        f"""UPDATE events SET consumed_by = NULL WHERE id = ANY(ARRAY(
                SELECT e.id FROM ({_PAIRS.sql}) g CROSS JOIN LATERAL (
                    SELECT id FROM events
                    WHERE run_id = g.run_id AND consumed_by = g.key OFFSET 0) e))
            RETURNING run_id, type""",
        *_PAIRS.pack(given_up),
    )
    given = {(row[0], row[1]) for row in rows}
    if given:
        waits = await awaiting(db, list({run_id for run_id, _ in given}))
        await hand_out_buffered(db, [w for w in waits if (w.run_id, w.event) in given], done)


async def awaiting(db: asyncpg.Connection, run_ids: Sequence[str]) -> list[Awaiting]:
    """Open waits of these runs, in order of call."""
    rows = await db.fetch(
        f"""SELECT run_id, event, key, match, created_at FROM waits
            WHERE run_id = ANY({texts("$1")}) AND ended_at IS NULL ORDER BY run_id, seq""",
        pack_texts(run_ids),
    )
    return [Awaiting(*row) for row in rows]


async def consume(db: asyncpg.Connection, consumed: Mapping[str, str]) -> None:
    if consumed:
        await db.fetch(
            f"""WITH given AS MATERIALIZED ({_CONSUMED.sql})
                UPDATE events e SET consumed_by = g.key FROM given g
                WHERE e.id = ANY(ARRAY(SELECT id FROM given)) AND e.id = g.id""",
            *_CONSUMED.pack(consumed.items()),
        )

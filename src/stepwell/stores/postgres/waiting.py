"""Waits and signals on PostgreSQL: whoever comes second finds the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import asyncpg

from stepwell.kernel.changes import (
    Committed,
    Held,
    OpenWait,
    ParkRun,
    ReleaseRun,
    RestRun,
    ResumeRun,
    SendSignal,
    WatchWaits,
)
from stepwell.kernel.codec import decode
from stepwell.kernel.matching import contains
from stepwell.kernel.outcomes import child_result
from stepwell.kernel.signals import Awaiting, hand_out
from stepwell.kernel.states import ENDED, quoted
from stepwell.stores.postgres.buffered import awaiting, consume, hand_out_buffered
from stepwell.stores.postgres.columns import Columns
from stepwell.stores.postgres.ending import Result, end_waits

_WAITS = Columns(
    "run_id text", "key text", "seq integer", "kind text", "due_at bigint", "event text",
    "term text", "match text", "child_run_id text", "created_at bigint", "about text",
)  # fmt: skip
# A run and a wait of its own, with the time to look again at the latest, or with the run's fence.
_PAIRS = Columns("run_id text", "key text", "number bigint")
_SIGNALS = Columns(
    "id text", "workspace_id text", "type text", "run_id text", "payload text",
    "created_at bigint", "once_key text", "consumed_by text",
)  # fmt: skip


async def open_waits(
    db: asyncpg.Connection, found: list[tuple[int, OpenWait]], done: Committed
) -> None:
    """Register waits, and end at once those whose event, signal or child came before."""
    changes = [change for _, change in found]
    rows = await db.fetch(
        f"""INSERT INTO waits (run_id, key, workspace_id, seq, kind, due_at, event, term, match,
                               child_run_id, created_at, about)
            SELECT g.run_id, g.key, (SELECT workspace_id FROM runs WHERE id = g.run_id), g.seq,
                   g.kind, g.due_at, g.event, coalesce(g.term, ''), g.match, g.child_run_id,
                   g.created_at, g.about
            FROM ({_WAITS.sql}) g ON CONFLICT DO NOTHING RETURNING run_id, key""",
        *_WAITS.pack(
            [
                (c.held.run_id, c.key, c.seq, c.kind, c.due_at, c.event, c.term or None, c.match,
                 c.child_run_id, c.created_at, c.about)
                for c in changes
            ]
        ),
    )  # fmt: skip
    for_event = {(c.held.run_id, c.key): c for c in changes if c.event is not None}
    if for_event:
        # A wait that was there already has found what there was to find.
        new = {(row[0], row[1]) for row in rows}
        await _find_buffered(db, [c for pair, c in for_event.items() if pair in new], done)
    for_child = [c for c in changes if c.child_run_id is not None]
    if for_child:
        await _find_ended_children(db, for_child, done)


async def _find_buffered(db: asyncpg.Connection, changes: list[OpenWait], done: Committed) -> None:
    await hand_out_buffered(
        db,
        [Awaiting(c.held.run_id, c.event, c.key, c.match, c.created_at) for c in changes],
        done,
    )
    for change in changes:
        if change.since is not None:
            await _look_back(db, change, done)


async def _look_back(db: asyncpg.Connection, change: OpenWait, done: Committed) -> None:
    match = decode(change.match) if change.match is not None else None
    # A cursor: of very many events the first that matches is all that is wanted.
    async for (payload,) in db.cursor(
        """SELECT payload FROM events
           WHERE workspace_id = (SELECT workspace_id FROM waits WHERE run_id = $1 AND key = $2
                                    AND ended_at IS NULL)
             AND type = $3 AND run_id IS NULL AND created_at >= $4 ORDER BY created_at, id""",
        change.held.run_id,
        change.key,
        change.event,
        change.since,
    ):
        if match is None or contains(decode(payload), match):
            found = Result(change.held.run_id, change.key, payload, change.created_at)
            await end_waits(db, [found], done)
            return


async def _find_ended_children(
    db: asyncpg.Connection, changes: list[OpenWait], done: Committed
) -> None:
    rows = await db.fetch(
        f"""SELECT g.number - 1, r.status,
               (SELECT body FROM payloads WHERE run_id = r.id AND kind = 'output'),
               (SELECT body FROM payloads WHERE run_id = r.id AND kind = 'error')
           FROM unnest($1::text[]) WITH ORDINALITY AS g (child_run_id, number)
           LEFT JOIN LATERAL (
               SELECT id, status FROM runs WHERE id = g.child_run_id OFFSET 0) r ON true
           WHERE r.id IS NULL OR r.status IN ({quoted(ENDED)})""",
        [c.child_run_id for c in changes],
    )
    results = []
    for index, status, output, error in rows:
        change = changes[index]
        result = child_result(status or "missing", output, error)
        results.append(Result(change.held.run_id, change.key, result, change.created_at))
    await end_waits(db, results, done)


async def send_signals(
    db: asyncpg.Connection,
    found: list[tuple[int, SendSignal]],
    locked: Mapping[str, asyncpg.Record],
    done: Committed,
) -> None:
    """Buffer signals, and hand each to the first of the run's waits that it matches."""
    changes: list[SendSignal] = []
    late: list[tuple[int, SendSignal]] = []
    for index, change in found:
        run = locked.get(change.run_id)
        known = run is not None and run["workspace_id"] == change.workspace_id
        living = run is not None and known and run["status"] not in ENDED
        done.outcomes[index] = living if known else None
        if living:
            changes.append(change)
        elif known:
            late.append((index, change))
    if late:
        # One that is there already was sent before, and its acknowledgement lost.
        sent = await _sent(db, [change for _, change in late])
        for index, change in late:
            done.outcomes[index] = change.id in sent
    if not changes:
        return
    waits = await awaiting(db, list({change.run_id for change in changes}))
    taken = hand_out(changes, waits)
    rows = await db.fetch(
        f"""INSERT INTO events (id, workspace_id, type, run_id, payload, created_at, once_key,
                               consumed_by)
            {_SIGNALS.sql} ON CONFLICT DO NOTHING RETURNING id""",
        *_SIGNALS.pack(
            [
                (
                    c.id,
                    c.workspace_id,
                    c.type,
                    c.run_id,
                    c.payload,
                    c.created_at,
                    c.once_key,
                    taken.get(c.id),
                )
                for c in changes
            ]
        ),
    )
    if len(rows) < len(changes):
        # Some were sent before, and their acknowledgement lost: they have had their wait.
        new = {row[0] for row in rows}
        changes = [change for change in changes if change.id in new]
        taken = hand_out(changes, waits)
        await consume(db, taken)
    results = [
        Result(c.run_id, taken[c.id], c.payload, c.created_at) for c in changes if c.id in taken
    ]
    await end_waits(db, results, done)


async def _sent(db: asyncpg.Connection, changes: Sequence[SendSignal]) -> set[str]:
    """Those of the signals that are there, be it under the id of an earlier attempt."""
    rows = await db.fetch(
        """SELECT g.id FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
                              AS g (id, workspace_id, type, once_key)
           WHERE EXISTS (SELECT 1 FROM events WHERE id = g.id) OR EXISTS (
               SELECT 1 FROM events e WHERE e.workspace_id = g.workspace_id
                   AND e.type = g.type AND e.once_key = g.once_key)""",
        *zip(*[(c.id, c.workspace_id, c.type, c.once_key) for c in changes], strict=True),
    )
    return {row[0] for row in rows}


def _pairs(
    changes: Sequence[tuple[Held, list[str], int | None]],
) -> list[tuple[str, str | None, int | None]]:
    """(run, key, …) for each awaited wait; a run without any has one that finds nothing."""
    by_run = {held.run_id: (keys, number) for held, keys, number in changes}
    return [
        (run_id, key, number)
        for run_id, (keys, number) in by_run.items()
        for key in keys or (None,)
    ]


# When any of the awaited waits has ended the run is due now, else when the first of them is.
_NEXT_DUE = """(SELECT g.run_id, min(g.number) AS number, count(w.ended_at) > 0 AS ended,
                       CASE WHEN count(w.ended_at) > 0 THEN min(w.created_at)
                            ELSE min(w.due_at) END AS due_at
                FROM awaited g LEFT JOIN LATERAL (
                    SELECT created_at, due_at, ended_at FROM waits
                    WHERE run_id = g.run_id AND key = g.key OFFSET 0) w ON true
                GROUP BY g.run_id)"""


async def park_runs(
    db: asyncpg.Connection, found: list[tuple[int, ParkRun]], done: Committed
) -> None:
    rows = await db.fetch(
        f"""WITH awaited AS MATERIALIZED ({_PAIRS.sql})
            UPDATE runs r SET status = 'waiting', owner = NULL, crashes = 0,
                due_at = least(p.due_at, p.number)
            FROM {_NEXT_DUE} p
            WHERE r.id = ANY(ARRAY(SELECT run_id FROM awaited)) AND r.id = p.run_id
            RETURNING p.ended""",
        *_PAIRS.pack(_pairs([(c.held, c.keys, c.look_at) for _, c in found])),
    )
    _tell_if_ended(rows, done)


async def rest_runs(
    db: asyncpg.Connection, found: list[tuple[int, RestRun]], done: Committed
) -> None:
    rows = await db.fetch(
        f"""WITH awaited AS MATERIALIZED ({_PAIRS.sql})
            UPDATE runs r SET due_at = p.due_at FROM {_NEXT_DUE} p
            WHERE r.id = ANY(ARRAY(SELECT run_id FROM awaited)) AND r.id = p.run_id
              AND r.fence = p.number AND r.status = 'waiting' AND r.owner IS NULL
            RETURNING p.ended""",
        *_PAIRS.pack(_pairs([(c.held, c.keys, c.held.fence) for _, c in found])),
    )
    _tell_if_ended(rows, done)


async def watch_waits(
    db: asyncpg.Connection, found: list[tuple[int, WatchWaits]], done: Committed
) -> None:
    rows = await db.fetch(
        f"""WITH awaited AS MATERIALIZED ({_PAIRS.sql})
            UPDATE runs r SET due_at = p.due_at FROM {_NEXT_DUE} p
            WHERE r.id = ANY(ARRAY(SELECT run_id FROM awaited)) AND r.id = p.run_id
            RETURNING p.ended""",
        *_PAIRS.pack(_pairs([(c.held, c.keys, None) for _, c in found])),
    )
    _tell_if_ended(rows, done)


def _tell_if_ended(rows: list[asyncpg.Record], done: Committed) -> None:
    """What the workers of this process know themselves is when waits run out."""
    done.due = done.due or any(row[0] for row in rows)


async def resume_runs(
    db: asyncpg.Connection, found: list[tuple[int, ResumeRun]], done: Committed
) -> None:
    """Hold runs again that nobody has claimed since they were parked."""
    rows = await db.fetch(
        """UPDATE runs r SET status = 'running', owner = g.owner, fence = r.fence + 1, due_at = NULL
           FROM unnest($1::text[], $2::text[], $3::integer[]) AS g (run_id, owner, fence)
           WHERE r.id = ANY($1) AND r.id = g.run_id AND r.fence = g.fence
             AND r.status = 'waiting' AND r.owner IS NULL RETURNING r.id, r.fence""",
        *zip(*[(c.held.run_id, c.held.owner, c.held.fence) for _, c in found], strict=True),
    )
    fences = {row[0]: row[1] for row in rows}
    for index, change in found:
        done.outcomes[index] = fences.get(change.held.run_id)


async def release_runs(
    db: asyncpg.Connection, found: list[tuple[int, ReleaseRun]], done: Committed
) -> None:
    await db.fetch(
        """UPDATE runs r SET owner = NULL, due_at = created_at,
                  program = coalesce(g.program, r.program)
           FROM unnest($1::text[], $2::text[]) AS g (run_id, program)
           WHERE r.id = ANY($1) AND r.id = g.run_id""",
        *zip(*[(c.held.run_id, c.program) for _, c in found], strict=True),
    )
    done.due = True

"""Waits, signals and events on PostgreSQL: whoever comes second finds the first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import asyncpg

from stepwell.kernel.changes import (
    Committed,
    EmitEvent,
    OpenWait,
    ParkRun,
    ReleaseRun,
    ResumeRun,
    SendSignal,
    WatchWaits,
)
from stepwell.kernel.codec import decode
from stepwell.kernel.matching import contains, terms_of
from stepwell.kernel.outcomes import child_result
from stepwell.kernel.signals import Buffered, hand_out
from stepwell.kernel.states import ENDED, quoted
from stepwell.stores.postgres.columns import Columns, pack_texts, texts
from stepwell.stores.postgres.ending import Result, end_waits

_WAITS = Columns(
    "run_id text", "key text", "seq integer", "kind text", "due_at bigint", "event text",
    "term text", "match text", "child_run_id text", "created_at bigint",
)  # fmt: skip
_PAIRS = Columns("run_id text", "key text")
_FOR_EVENT = Columns("run_id text", "key text", "event text", "number integer")
_CONSUMED = Columns("id text", "key text")
_SIGNALS = Columns(
    "id text", "workspace_id text", "type text", "run_id text", "payload text",
    "created_at bigint", "consumed_by text",
)  # fmt: skip


async def open_waits(
    db: asyncpg.Connection, found: list[tuple[int, OpenWait]], done: Committed
) -> None:
    """Register waits, and end at once those whose event, signal or child came before."""
    changes = [change for _, change in found]
    await db.fetch(
        f"""INSERT INTO waits (run_id, key, workspace_id, seq, kind, due_at, event, term, match,
                               child_run_id, created_at)
            SELECT g.run_id, g.key, (SELECT workspace_id FROM runs WHERE id = g.run_id), g.seq,
                   g.kind, g.due_at, g.event, coalesce(g.term, ''), g.match, g.child_run_id,
                   g.created_at
            FROM ({_WAITS.sql}) g ON CONFLICT DO NOTHING""",
        *_WAITS.pack(
            [
                (c.held.run_id, c.key, c.seq, c.kind, c.due_at, c.event, c.term or None, c.match,
                 c.child_run_id, c.created_at)
                for c in changes
            ]
        ),
    )  # fmt: skip
    for_event = [c for c in changes if c.event is not None]
    if for_event:
        served = await _take_signals(db, for_event, done)
        for index, change in enumerate(for_event):
            if change.since is not None and index not in served:
                await _look_back(db, change, done)
    for_child = [c for c in changes if c.child_run_id is not None]
    if for_child:
        await _find_ended_children(db, for_child, done)


async def _take_signals(
    db: asyncpg.Connection, changes: list[OpenWait], done: Committed
) -> set[int]:
    """Hand buffered signals, in order, to the waits they match; which waits were served."""
    rows = await db.fetch(
        f"""SELECT g.number, e.id, e.payload FROM ({_FOR_EVENT.sql}) g CROSS JOIN LATERAL (
               SELECT id, payload FROM events WHERE run_id = g.run_id AND type = g.event
                  AND consumed_by IS NULL OFFSET 0) e
           WHERE (SELECT ended_at IS NULL FROM waits WHERE run_id = g.run_id AND key = g.key)
           ORDER BY g.number, e.id""",
        *_FOR_EVENT.pack(
            [(c.held.run_id, c.key, c.event, number) for number, c in enumerate(changes)]
        ),
    )
    served: set[int] = set()
    results: list[Result] = []
    consumed: dict[str, str] = {}
    for index, event_id, payload in rows:
        if index in served or event_id in consumed:
            continue
        change = changes[index]
        if change.match is None or contains(decode(payload), decode(change.match)):
            served.add(index)
            consumed[event_id] = change.key
            results.append(Result(change.held.run_id, change.key, payload, change.created_at))
    await _consume(db, consumed)
    await end_waits(db, results, done)
    return served


async def hand_out_buffered(
    db: asyncpg.Connection, run_ids: Sequence[str], done: Committed
) -> None:
    """Give buffered signals of these runs to the waits that are open already."""
    rows = await db.fetch(
        """SELECT id, run_id, type, payload, created_at FROM events
           WHERE run_id = ANY($1) AND consumed_by IS NULL ORDER BY id""",
        run_ids,
    )
    if not rows:
        return
    buffered = [Buffered(*row) for row in rows]
    taken = hand_out(buffered, await _open_waits(db, run_ids))
    await _consume(db, taken)
    results = [
        Result(s.run_id, taken[s.id], s.payload, s.created_at) for s in buffered if s.id in taken
    ]
    await end_waits(db, results, done)


async def _open_waits(db: asyncpg.Connection, run_ids: Sequence[str]) -> list[asyncpg.Record]:
    """Open waits of these runs, in order of call: (run, event, key, match)."""
    return await db.fetch(
        f"""SELECT run_id, event, key, match FROM waits
            WHERE run_id = ANY({texts("$1")}) AND ended_at IS NULL ORDER BY run_id, seq""",
        pack_texts(run_ids),
    )


async def _consume(db: asyncpg.Connection, consumed: Mapping[str, str]) -> None:
    if consumed:
        await db.fetch(
            f"""WITH given AS MATERIALIZED ({_CONSUMED.sql})
                UPDATE events e SET consumed_by = g.key FROM given g
                WHERE e.id = ANY(ARRAY(SELECT id FROM given)) AND e.id = g.id""",
            *_CONSUMED.pack(consumed.items()),
        )


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
    late: list[tuple[int, str]] = []
    for index, change in found:
        run = locked.get(change.run_id)
        known = run is not None and run["workspace_id"] == change.workspace_id
        living = run is not None and known and run["status"] not in ENDED
        done.outcomes[index] = living if known else None
        if living:
            changes.append(change)
        elif known:
            late.append((index, change.id))
    if late:
        # One that is there already was sent before, and its acknowledgement lost.
        ids = [event_id for _, event_id in late]
        sent = {row[0] for row in await db.fetch("SELECT id FROM events WHERE id = ANY($1)", ids)}
        for index, event_id in late:
            done.outcomes[index] = event_id in sent
    if not changes:
        return
    waits = await _open_waits(db, list({change.run_id for change in changes}))
    taken = hand_out(changes, waits)
    rows = await db.fetch(
        f"""INSERT INTO events (id, workspace_id, type, run_id, payload, created_at, consumed_by)
            {_SIGNALS.sql} ON CONFLICT DO NOTHING RETURNING id""",
        *_SIGNALS.pack(
            [
                (c.id, c.workspace_id, c.type, c.run_id, c.payload, c.created_at, taken.get(c.id))
                for c in changes
            ]
        ),
    )
    if len(rows) < len(changes):
        # Some were sent before, and their acknowledgement lost: they have had their wait.
        new = {row[0] for row in rows}
        changes = [change for change in changes if change.id in new]
        taken = hand_out(changes, waits)
        await _consume(db, taken)
    results = [
        Result(c.run_id, taken[c.id], c.payload, c.created_at) for c in changes if c.id in taken
    ]
    await end_waits(db, results, done)


async def waiting_for(db: asyncpg.Connection, changes: Iterable[EmitEvent]) -> list[Any]:
    """Open waits that may match these events: (number of the event, run, key, match)."""
    places = [
        (number, change.workspace_id, change.type, term)
        for number, change in enumerate(changes)
        for term in terms_of(decode(change.payload))
    ]
    return await db.fetch(
        """SELECT g.number, w.run_id, w.key, w.match
           FROM unnest($1::integer[], $2::text[], $3::text[], $4::text[])
               AS g (number, workspace_id, event, term)
           CROSS JOIN LATERAL (
               SELECT run_id, key, match FROM waits
               WHERE workspace_id = g.workspace_id AND event = g.event AND term = g.term
                 AND ended_at IS NULL OFFSET 0) w
           ORDER BY g.number""",
        *zip(*places, strict=True),
    )


async def emit_events(
    db: asyncpg.Connection, found: list[tuple[int, EmitEvent]], done: Committed
) -> None:
    """Write events to the outbox and end every wait of the workspace that they match."""
    new = await _write_events(db, found, done)
    if not new:
        return
    payloads = [decode(change.payload) for change in new]
    results: dict[tuple[str, str], Result] = {}
    for number, run_id, key, match in await waiting_for(db, new):
        if (run_id, key) not in results:
            change = new[number]
            if match is None or contains(payloads[number], decode(match)):
                results[run_id, key] = Result(run_id, key, change.payload, change.created_at)
    await end_waits(db, list(results.values()), done)


async def _write_events(
    db: asyncpg.Connection, found: list[tuple[int, EmitEvent]], done: Committed
) -> list[EmitEvent]:
    rows = await db.fetch(
        """INSERT INTO events (id, workspace_id, type, key, once_key, payload, created_at)
           SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[],
                                $6::text[], $7::bigint[]) ON CONFLICT DO NOTHING RETURNING id""",
        *zip(
            *[
                (c.id, c.workspace_id, c.type, c.key, (c.key or "") if c.once else None, c.payload,
                 c.created_at)
                for _, c in found
            ],
            strict=True,
        ),
    )  # fmt: skip
    new = {row[0] for row in rows}
    others = [change.id for _, change in found if change.id not in new]
    # An event with this very id was sent before, and its acknowledgement lost: it is new still.
    sent: set[str] = set()
    if others:
        rows = await db.fetch("SELECT id FROM events WHERE id = ANY($1)", others)
        sent = {row[0] for row in rows}
    for index, change in found:
        done.outcomes[index] = change.id in new or change.id in sent
    return [change for _, change in found if change.id in new]


def _pairs(changes: Sequence[ParkRun | WatchWaits]) -> list[tuple[str, str | None]]:
    """(run, key) for each awaited wait; a run without any has one pair that finds nothing."""
    keys = {change.held.run_id: change.keys for change in changes}
    return [(run_id, key) for run_id, awaited in keys.items() for key in awaited or (None,)]


# When any of the awaited waits has ended the run is due now, else when the first of them is.
_NEXT_DUE = """(SELECT g.run_id, count(w.ended_at) > 0 AS ended,
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
            UPDATE runs r SET status = 'waiting', owner = NULL, crashes = 0, due_at = p.due_at
            FROM {_NEXT_DUE} p
            WHERE r.id = ANY(ARRAY(SELECT run_id FROM awaited)) AND r.id = p.run_id
            RETURNING p.ended""",
        *_PAIRS.pack(_pairs([change for _, change in found])),
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
        *_PAIRS.pack(_pairs([change for _, change in found])),
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
        "UPDATE runs SET owner = NULL, due_at = created_at WHERE id = ANY($1)",
        [change.held.run_id for _, change in found],
    )
    done.due = True

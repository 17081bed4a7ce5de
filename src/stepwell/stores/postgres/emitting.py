"""Events on PostgreSQL: written to the outbox, and handed to whoever waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from stepwell.kernel.changes import Committed, EmitEvent
from stepwell.kernel.codec import decode
from stepwell.kernel.matching import contains, terms_of
from stepwell.stores.postgres.ending import Result, end_waits


class Wait(NamedTuple):
    """An open wait that an event may match."""

    run_id: str
    key: str
    match: str | None


# By the id of the event.
Waits = dict[str, list[Wait]]
# Where waits for events are filed: numbers of events, workspaces, types and terms.
Places = list[tuple[int | str, ...]]


def open_waits(first: int) -> str:
    """SQL for the open waits at places, of which the first column is this parameter."""
    return f"""SELECT g.number, w.run_id, w.key, w.match
               FROM unnest(${first}::integer[], ${first + 1}::text[], ${first + 2}::text[],
                           ${first + 3}::text[]) AS g (number, workspace_id, event, term)
               CROSS JOIN LATERAL (
                   SELECT run_id, key, match FROM waits
                   WHERE workspace_id = g.workspace_id AND event = g.event AND term = g.term
                     AND ended_at IS NULL OFFSET 0) w"""


def places_of(changes: Sequence[EmitEvent]) -> Places:
    """Where waits for these events are filed, in columns."""
    return list(
        zip(
            *[
                (number, change.workspace_id, change.type, term)
                for number, change in enumerate(changes)
                for term in terms_of(decode(change.payload))
            ],
            strict=True,
        )
    )


def insert(first: int) -> str:
    """SQL that writes events, of which the first column is this parameter: those that are new."""
    types = [*["text"] * 6, "bigint", "text"]
    columns = ", ".join(f"${number}::{type_}[]" for number, type_ in enumerate(types, first))
    return f"""INSERT INTO events (id, workspace_id, type, key, once_key, payload, created_at,
                   traceparent, pending)
               SELECT *, (SELECT nextval('events_places') FROM triggers t
                          WHERE t.workspace_id = g.workspace_id AND t.event = g.type LIMIT 1)
               FROM unnest({columns}) AS g (id, workspace_id, type, key, once_key, payload, at,
                   traceparent)
               ON CONFLICT DO NOTHING RETURNING id, pending"""


def columns_of(changes: Sequence[EmitEvent]) -> list[tuple[str | int | None, ...]]:
    """Events as the columns that are written."""
    rows = [
        (c.id, c.workspace_id, c.type, c.key, c.once_key, c.payload, c.created_at, c.traceparent)
        for c in changes
    ]
    return list(zip(*rows, strict=True))


async def waiting_for(
    db: asyncpg.Connection, changes: Sequence[EmitEvent], places: Places, most: int | None = None
) -> Waits:
    """Open waits that may match these events, all or at most so many."""
    waits: Waits = {}
    for number, *wait in await db.fetch(f"{open_waits(1)} LIMIT $5", *places, most):
        waits.setdefault(changes[number].id, []).append(Wait(*wait))
    return waits


def matching(change: EmitEvent, waits: Waits) -> list[Wait]:
    """Those of the waits that this event ends."""
    candidates = waits.get(change.id, ())
    payload = decode(change.payload) if candidates else None
    return [w for w in candidates if w.match is None or contains(payload, decode(w.match))]


async def emit_events(
    db: asyncpg.Connection,
    found: list[tuple[int, EmitEvent]],
    waits: Waits | None,
    done: Committed,
) -> None:
    """Write events to the outbox and end every wait of the workspace that they match.

    `waits` are those that there were once their names were locked; None if the batch has opened
    others since.
    """
    new = await _write_events(db, found, done)
    if not new:
        return
    if waits is None:
        waits = await waiting_for(db, new, places_of(new))
    results: dict[tuple[str, str], Result] = {}
    for change in new:
        for run_id, key, _ in matching(change, waits):
            results.setdefault(
                (run_id, key), Result(run_id, key, change.payload, change.created_at)
            )
    await end_waits(db, list(results.values()), done)


async def _write_events(
    db: asyncpg.Connection, found: list[tuple[int, EmitEvent]], done: Committed
) -> list[EmitEvent]:
    changes = [change for _, change in found]
    rows = await db.fetch(insert(1), *columns_of(changes))
    new = {row[0] for row in rows}
    others = [change.id for change in changes if change.id not in new]
    # An event with this very id was sent before, and its acknowledgement lost: it is new still,
    # and nobody may have been told what it has made due.
    sent: set[str] = set()
    if others:
        again = await db.fetch("SELECT id, pending FROM events WHERE id = ANY($1)", others)
        sent = {row[0] for row in again}
        done.due = done.due or bool(sent)
        rows += again
    done.firing = done.firing or any(row[1] is not None for row in rows)
    for index, change in found:
        done.outcomes[index] = change.id in new or change.id in sent
    return [change for change in changes if change.id in new]

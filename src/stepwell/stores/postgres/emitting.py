"""Events on PostgreSQL: written to the outbox, and handed to whoever waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from stepwell.kernel.changes import Claimed, ClaimRuns, Committed, EmitEvent
from stepwell.kernel.codec import decode
from stepwell.kernel.crashes import SUSPECT
from stepwell.kernel.matching import contains, terms_of
from stepwell.stores.postgres.claim import take_woken
from stepwell.stores.postgres.ending import Result, end_waits


class Wait(NamedTuple):
    """An open wait that an event may match."""

    run_id: str
    key: str
    match: str | None
    # Of its run, if that was locked: whether anybody may take it up, who can, and for how long.
    parked: bool = False
    workspace_id: str | None = None
    program: str | None = None
    expires_at: int | None = None

    def fits(self, ask: ClaimRuns) -> bool:
        """Whether its run is one that this claim would be given."""
        lives = self.expires_at is None or self.expires_at > ask.now
        own = self.workspace_id == ask.workspace_id and self.program in ask.programs
        return self.parked and own and lives


# By the id of the event.
Waits = dict[str, list[Wait]]

_FOUND = """SELECT g.number, w.run_id, w.key, w.match
            FROM unnest($1::integer[], $2::text[], $3::text[], $4::text[])
                AS g (number, workspace_id, event, term)
            CROSS JOIN LATERAL (
                SELECT run_id, key, match FROM waits
                WHERE workspace_id = g.workspace_id AND event = g.event AND term = g.term
                  AND ended_at IS NULL OFFSET 0) w"""
_FOUND_AND_LOCKED = f"""SELECT f.*, r.* FROM ({_FOUND} ORDER BY w.run_id) f CROSS JOIN LATERAL (
                            SELECT owner IS NULL AND status = 'waiting' AND crashes < {SUSPECT},
                                workspace_id, program, expires_at
                            FROM runs WHERE id = f.run_id FOR NO KEY UPDATE) r"""


async def waiting_for(
    db: asyncpg.Connection, changes: Sequence[EmitEvent], *, locking: bool = False
) -> Waits:
    """Open waits that may match these events; `locking` their runs, in order, on the way."""
    places = [
        (number, change.workspace_id, change.type, term)
        for number, change in enumerate(changes)
        for term in terms_of(decode(change.payload))
    ]
    found: Waits = {}
    for number, *wait in await db.fetch(
        _FOUND_AND_LOCKED if locking else _FOUND,
        *zip(*places, strict=True),
    ):
        found.setdefault(changes[number].id, []).append(Wait(*wait))
    return found


async def emit_events(
    db: asyncpg.Connection, found: list[tuple[int, EmitEvent]], waits: Waits | None,
    done: Committed, ask: ClaimRuns | None = None,
) -> Claimed | None:  # fmt: skip
    """Write events to the outbox and end every wait of the workspace that they match.

    `waits` are those that there were once their names were locked; None if the batch has opened
    others since. A worker that asks meanwhile is given the runs at once, if it has room for all.
    """
    new = await _write_events(db, found, done)
    if not new:
        return None
    waits = await waiting_for(db, new) if waits is None else waits
    results: dict[tuple[str, str], Result] = {}
    ended: list[Wait] = []
    for change in new:
        payload = decode(change.payload)
        for wait in waits.get(change.id, ()):
            pair = wait.run_id, wait.key
            if pair not in results and (
                wait.match is None or contains(payload, decode(wait.match))
            ):
                results[pair] = Result(*pair, change.payload, change.created_at)
                ended.append(wait)
    if ask is not None and 0 < len(ended) < ask.limit and all(w.fits(ask) for w in ended):
        return await take_woken(db, ask, list(results.values()), done)
    await end_waits(db, list(results.values()), done)
    return None


async def _write_events(
    db: asyncpg.Connection, found: list[tuple[int, EmitEvent]], done: Committed
) -> list[EmitEvent]:
    rows = await db.fetch(
        """INSERT INTO events (id, workspace_id, type, key, once_key, payload, created_at, pending)
           SELECT *, CASE WHEN EXISTS (SELECT FROM triggers t
                   WHERE t.workspace_id = g.workspace_id AND t.event = g.type)
               THEN nextval('events_places') END
           FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
                       $7::bigint[]) AS g (id, workspace_id, type, key, once_key, payload, at)
           ON CONFLICT DO NOTHING RETURNING id, pending""",
        *zip(
            *[
                (c.id, c.workspace_id, c.type, c.key, c.once_key, c.payload, c.created_at)
                for _, c in found
            ],
            strict=True,
        ),
    )  # fmt: skip
    new = {row[0] for row in rows}
    done.firing = done.firing or any(row[1] is not None for row in rows)
    others = [change.id for _, change in found if change.id not in new]
    # An event with this very id was sent before, and its acknowledgement lost: it is new still.
    sent: set[str] = set()
    if others:
        rows = await db.fetch("SELECT id FROM events WHERE id = ANY($1)", others)
        sent = {row[0] for row in rows}
    for index, change in found:
        done.outcomes[index] = change.id in new or change.id in sent
    return [change for _, change in found if change.id in new]

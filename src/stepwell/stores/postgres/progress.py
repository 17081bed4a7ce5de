"""Reading from PostgreSQL what has become of runs since places in their journals."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from stepwell.kernel.progress import (
    MOST_ATTEMPTS,
    MOST_ENTRIES,
    MOST_OPEN,
    Entry,
    Failure,
    Place,
    Progress,
    RunState,
    read_gate,
)
from stepwell.kernel.states import OPEN, quoted
from stepwell.stores.postgres.columns import Columns, packable
from stepwell.stores.rules import FED_ENDS, FED_NODE, FED_RUN, FED_STEP

# Each place by its number in the list, which all that is found is filed under.
_PLACES = Columns("number integer", "run_id text", "position bigint", "key text")
_RUNS = Columns("number integer", "run_id text")
_KEYS = Columns("number integer", "run_id text", "key text")
_TRIED = Columns("number integer", "run_id text", "key text", "attempts integer")


async def progress(
    db: asyncpg.Connection, workspace_id: str, places: Sequence[Place]
) -> list[Progress | None]:
    asked = {number: place for number, place in enumerate(places) if packable(place.run_id)}
    if not asked:
        return [None] * len(places)
    async with db.transaction(isolation="repeatable_read", readonly=True):
        found = await _runs(db, workspace_id, asked)
        started = {number: asked[number] for number in found if found[number].run.started_at}
        if started:
            await _add_settled(db, started, found)
            await _add_gates(db, started, found)
            going_on = {
                number: place for number, place in started.items()
                if found[number].run.completed_at is None and not found[number].more
            }  # fmt: skip
            if going_on:
                await _add_open(db, going_on, found)
            await _add_failures(db, started, found)
            await _add_nodes(db, started, found)
    return [found.get(number) for number in range(len(places))]


async def _runs(
    db: asyncpg.Connection, workspace_id: str, asked: dict[int, Place]
) -> dict[int, Progress]:
    rows = await db.fetch(
        f"""SELECT g.number, {FED_RUN} FROM ({_RUNS.sql}) g
            JOIN runs r ON r.id = g.run_id AND r.workspace_id = $3""",
        *_RUNS.pack([(number, place.run_id) for number, place in asked.items()]),
        workspace_id,
    )
    return {row[0]: Progress(RunState(*row[1:])) for row in rows}


async def _add_settled(
    db: asyncpg.Connection, asked: dict[int, Place], found: dict[int, Progress]
) -> None:
    rows = await db.fetch(
        f"""SELECT g.number, f.* FROM ({_PLACES.sql}) g CROSS JOIN LATERAL (
                SELECT * FROM (
                    SELECT {FED_STEP} FROM steps s WHERE s.run_id = g.run_id AND {FED_ENDS}) e
                WHERE e.place > g.position OR (e.place = g.position AND e.key > g.key)
                ORDER BY e.place, e.key LIMIT {MOST_ENTRIES + 1}) f
            ORDER BY g.number, f.place, f.key""",
        *_PLACES.pack([(n, each.run_id, each.position, each.key) for n, each in asked.items()]),
    )
    for row in rows:
        into = found[row[0]]
        into.more = len(into.settled) == MOST_ENTRIES
        if not into.more:
            into.settled.append(Entry(*row[1:]))


async def _add_open(
    db: asyncpg.Connection, asked: dict[int, Place], found: dict[int, Progress]
) -> None:
    rows = await db.fetch(
        f"""SELECT g.number, f.* FROM ({_RUNS.sql}) g CROSS JOIN LATERAL (
                SELECT * FROM (
                    SELECT {FED_STEP}, w.created_at AS waits_at, w.due_at FROM steps s
                    LEFT JOIN waits w ON w.run_id = s.run_id AND w.key = s.key
                    WHERE s.run_id = g.run_id AND s.status IN ({quoted(OPEN)})
                    UNION ALL
                    SELECT w.key, w.seq, 0, w.kind, 'waiting', 1, NULL, false, NULL,
                           w.created_at, NULL, w.created_at, w.due_at
                    FROM waits w WHERE w.run_id = g.run_id AND NOT EXISTS (
                        SELECT FROM steps s WHERE s.run_id = w.run_id AND s.key = w.key)) e
                ORDER BY e.seq LIMIT {MOST_OPEN}) f
            ORDER BY g.number, f.seq""",
        *_RUNS.pack([(number, place.run_id) for number, place in asked.items()]),
    )
    for row in rows:
        found[row[0]].open.append(Entry(*row[1:]))


async def _add_failures(
    db: asyncpg.Connection, asked: dict[int, Place], found: dict[int, Progress]
) -> None:
    tried = [
        (number, place.run_id, entry.key, entry.attempts)
        for number, place in asked.items()
        for entry in (*found[number].settled, *found[number].open)
        if entry.has_failed
    ]
    if not tried:
        return
    rows = await db.fetch(
        f"""SELECT g.number, a.key, a.number, a.error, a.failed_at FROM ({_TRIED.sql}) g
            JOIN attempts a ON a.run_id = g.run_id AND a.key = g.key
             AND a.number > g.attempts - {MOST_ATTEMPTS}
            ORDER BY g.number, a.key, a.number""",
        *_TRIED.pack(tried),
    )
    for row in rows:
        found[row[0]].failures.append(Failure(*row[1:]))


async def _add_nodes(
    db: asyncpg.Connection, asked: dict[int, Place], found: dict[int, Progress]
) -> None:
    keys = [
        (number, place.run_id, key)
        for number, place in asked.items()
        for key in found[number].node_keys()
    ]
    if not keys:
        return
    rows = await db.fetch(
        f"""SELECT g.number, {FED_NODE} FROM ({_KEYS.sql}) g
            JOIN steps s ON s.run_id = g.run_id AND s.key = g.key""",
        *_KEYS.pack(keys),
    )
    for number, key, place in rows:
        found[number].nodes[key] = place


async def _add_gates(
    db: asyncpg.Connection, asked: dict[int, Place], found: dict[int, Progress]
) -> None:
    rows = await db.fetch(
        f"""SELECT g.number, t.body FROM ({_RUNS.sql}) g
            JOIN gates t ON t.run_id = g.run_id ORDER BY g.number, t.id""",
        *_RUNS.pack([(number, place.run_id) for number, place in asked.items()]),
    )
    waits = []
    for number, body in rows:
        gate = read_gate(body)
        found[number].gates.append(gate)
        waits.append((number, asked[number].run_id, gate.decision_key))
    if not waits:
        return
    rows = await db.fetch(
        f"""SELECT g.number, s.key FROM ({_KEYS.sql}) g
            JOIN steps s ON s.run_id = g.run_id AND s.key = g.key AND {FED_ENDS}""",
        *_KEYS.pack(waits),
    )
    for number, key in rows:
        found[number].decisions.add(key)

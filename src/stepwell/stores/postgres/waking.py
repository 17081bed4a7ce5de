"""Events by themselves: written, and handed to who waits for them, in one statement.

An event has its name locked while it looks who waits for it, and an answer from the server for
each step of that would take most of the time. So a first statement looks without any lock, whether
what it finds matches is decided here, and a function does the rest on the server, unless somebody
else has begun to wait meanwhile. The function belongs to the connection: it is made of the same
parts as the other statements of this version, whatever version others are of.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from typing import Any
from weakref import WeakSet

import asyncpg

from stepwell.kernel.changes import Claimed, ClaimRuns, Committed, EmitEvent
from stepwell.kernel.crashes import SUSPECT
from stepwell.stores.postgres import claim, emitting
from stepwell.stores.postgres.address import PASSING
from stepwell.stores.postgres.ending import END_GIVEN
from stepwell.stores.postgres.locking import event_name

log = logging.getLogger("stepwell.postgres")

# Connections that cannot have the function, most likely for want of the right to TEMPORARY.
_without: WeakSet[asyncpg.Connection] = WeakSet()

# Events with more waits to be looked at are worth a transaction of several statements.
FEW = 100

_NEVER = "9223372036854775807"

# What is left: $1 to $4 are the worker that asks, as in a claim, and $5 how many runs it has room
# for; $6 the names of the events; $7 to $10 where their waits are filed, $11 and $12 the waits that
# were seen there, $13 to $20 the events, $21 to $23 which wait (a run and a key) matches which of
# them. Each row begins with what it is. There is none if others wait by now.
_FUNCTION = f"""CREATE FUNCTION pg_temp.emit(
    text, bigint, text, text[], integer, text[], integer[], text[], text[], text[], text[], text[],
    text[], text[], text[], text[], text[], text[], bigint[], text[], text[], text[], integer[]
) RETURNS SETOF json LANGUAGE plpgsql AS $body$
DECLARE
    new_ids text[];
    woken_ids text[];
    woken_at bigint[];
    takes boolean := false;
BEGIN
    PERFORM pg_advisory_xact_lock(hash) FROM (
        SELECT DISTINCT hashtextextended(name, 0) AS hash FROM unnest($6) AS name ORDER BY hash) n;
    IF EXISTS (SELECT FROM ({emitting.open_waits(7)}) f
               WHERE (f.run_id, f.key) NOT IN (SELECT * FROM unnest($11, $12))) THEN
        RETURN;
    END IF;
    PERFORM FROM runs WHERE id = ANY($21) ORDER BY id FOR NO KEY UPDATE;

    WITH new AS ({emitting.insert(13)})
    SELECT coalesce(array_agg(new.id), '{{}}') FROM new INTO new_ids;

    WITH given AS MATERIALIZED (
        -- Of several events, the first that is new.
        SELECT DISTINCT ON (m.run_id, m.key) m.run_id, m.key, ($18)[m.number] AS result,
            ($19)[m.number] AS ended_at
        FROM unnest($21, $22, $23) AS m (run_id, key, number)
        WHERE ($13)[m.number] = ANY(new_ids) ORDER BY m.run_id, m.key, m.number
    ), ended AS ({END_GIVEN}), woken AS (
        SELECT run_id, min(ended_at) AS ended_at FROM ended GROUP BY run_id
    )
    SELECT array_agg(woken.run_id), array_agg(woken.ended_at) FROM woken INTO woken_ids, woken_at;

    IF cardinality(woken_ids) < $5 AND NOT EXISTS (
        SELECT FROM runs WHERE id = ANY(woken_ids) AND NOT (
            owner IS NULL AND status = 'waiting' AND crashes < {SUSPECT} AND workspace_id = $3
            AND program = ANY($4) AND coalesce(expires_at, {_NEVER}) > $2)
    ) THEN
        -- Locked, so that nobody ends this lease and misses the runs taken here. Who is about to
        -- end it may be waiting for one of them: no reason to wait for each other.
        PERFORM FROM workers WHERE id = $1 AND expires_at > $2 FOR KEY SHARE SKIP LOCKED;
        takes := FOUND;
    END IF;
    IF takes THEN
        RETURN QUERY WITH f AS (
            {claim.TAKE} WHERE r.id = ANY(woken_ids)
            RETURNING false AS nudge, {claim.COLUMNS}
        ), taken AS (
            SELECT f.*, {claim.INPUT} AS input,
                (SELECT priority FROM runs WHERE id = f.id) AS priority,
                woken_at[array_position(woken_ids, f.id)] AS due_at
            FROM f
        )
        SELECT json_build_array('taken', t) FROM taken t ORDER BY t.priority DESC, t.due_at, t.id;
        RETURN QUERY WITH ended AS ({claim.end_due("woken_ids", "$2")}
        ), loaded AS ({claim.loaded("woken_ids", "$2", "woken_ids")}
        )
        SELECT json_build_array('loaded', l) FROM loaded l;
    ELSIF woken_ids IS NOT NULL THEN
        UPDATE runs r SET due_at = e.ended_at
        FROM unnest(woken_ids, woken_at) AS e (run_id, ended_at)
        WHERE r.id = ANY(woken_ids) AND r.id = e.run_id AND r.status IN ('running', 'waiting')
          AND coalesce(r.due_at, {_NEVER}) > e.ended_at;
    END IF;

    RETURN QUERY WITH RECURSIVE {claim.LANES}
    SELECT json_build_array('done', ARRAY(SELECT id FROM events WHERE id = ANY($13)),
        EXISTS (SELECT FROM events WHERE id = ANY($13) AND pending IS NOT NULL),
        -- One that was sent before may have made something due that nobody was told of.
        (woken_ids IS NOT NULL AND NOT takes)
            OR EXISTS (SELECT FROM events WHERE id = ANY($13) AND id <> ALL(new_ids)),
        takes, takes AND ({claim.ANYTHING_DUE}), CASE WHEN takes THEN {claim.NEXT_AT} END);
END
$body$"""

_EMIT = f"SELECT * FROM pg_temp.emit({', '.join(f'${number}' for number in range(1, 24))})"


async def emit_alone(
    db: asyncpg.Connection, changes: Sequence[EmitEvent], ask: ClaimRuns | None
) -> tuple[Committed, Claimed | None] | None:
    """Emit events of nobody's; None if that takes a transaction, and nothing was done.

    A worker that asks meanwhile is given the runs that they wake at once, if it has room for all:
    what else is due is left for its next claim.
    """
    if db in _without:
        return None
    places = emitting.places_of(changes)
    waits = await emitting.waiting_for(db, changes, places, FEW + 1)
    if sum(map(len, waits.values())) > FEW:  # some are missing, of this event or another
        return None
    seen = {(wait.run_id, wait.key) for found in waits.values() for wait in found}
    matches = [
        (wait.run_id, wait.key, number)
        for number, change in enumerate(changes, 1)
        for wait in emitting.matching(change, waits)
    ]
    asking = ask or ClaimRuns("", "", [], limit=0)
    rows = await _call(
        db,
        asking.worker_id,
        asking.now,
        asking.workspace_id,
        asking.programs,
        asking.limit,
        list({event_name(change.type) for change in changes}),
        *places,
        *_columns(seen, 2),
        *emitting.columns_of(changes),
        *_columns(matches, 3),
    )
    return _told(rows, changes) if rows else None


def _columns(rows: Collection[tuple[Any, ...]], width: int) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width


async def _call(db: asyncpg.Connection, *values: Any) -> list[list[Any]]:
    """What the function returns; nothing if there can be none."""
    try:
        rows = await db.fetch(_EMIT, *values)
    except (asyncpg.UndefinedFunctionError, asyncpg.InvalidSchemaNameError):
        try:
            await db.execute(_FUNCTION)
        except PASSING:
            raise
        except asyncpg.PostgresError as error:
            log.warning("Events take longer: no temporary function can be made (%s).", error)
            _without.add(db)
            return []
        rows = await db.fetch(_EMIT, *values)
    return [json.loads(row[0]) for row in rows]


def _told(rows: list[list[Any]], changes: Sequence[EmitEvent]) -> tuple[Committed, Claimed | None]:
    """What the function did."""
    _, kept, firing, due, takes, more, next_at = rows[-1]
    done = Committed([change.id in kept for change in changes], firing=firing, due=due)
    if not takes:
        return done, None
    runs = [claim.claimed_run(list(row.values())) for what, row in rows[:-1] if what == "taken"]
    loaded = [row.values() for what, row in rows[:-1] if what == "loaded"]
    claim.add_loaded({run.id: run for run in runs}, loaded)
    return done, Claimed(runs, None if more else next_at, more)

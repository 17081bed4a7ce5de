"""Reading from SQLite what has become of runs since places in their journals."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

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
from stepwell.stores.rules import FED_ENDS, FED_NODE, FED_RUN, FED_STEP
from stepwell.stores.sqlite.rows import all_rows, one, pack, reading


def progress(
    db: apsw.Connection, workspace_id: str, places: Sequence[Place]
) -> list[Progress | None]:
    with reading(db):
        return [_of_run(db, workspace_id, place) for place in places]


def _of_run(db: apsw.Connection, workspace_id: str, place: Place) -> Progress | None:
    run_id = place.run_id
    sql = f"SELECT {FED_RUN} FROM runs r WHERE r.id = ? AND r.workspace_id = ?"
    row = one(db, sql, run_id, workspace_id)
    if row is None:
        return None
    found = Progress(RunState(*row))
    if found.run.started_at is None:
        return found
    settled = _settled(db, place)
    found.settled, found.more = settled[:MOST_ENTRIES], len(settled) > MOST_ENTRIES
    if found.run.completed_at is None and not found.more:
        found.open = _open(db, run_id)
    tried = [
        (entry.key, entry.attempts) for entry in (*found.settled, *found.open) if entry.has_failed
    ]
    if tried:
        found.failures = _failures(db, run_id, tried)
    if nodes := found.node_keys():
        sql = f"""SELECT {FED_NODE} FROM steps s WHERE s.run_id = ?
                  AND s.key IN (SELECT value FROM json_each(?))"""
        found.nodes = dict(all_rows(db, sql, run_id, pack(nodes)))
    sql = "SELECT body FROM gates WHERE run_id = ? ORDER BY id"
    found.gates = [read_gate(body) for (body,) in all_rows(db, sql, run_id)]
    if found.gates:
        keys = pack([gate.decision_key for gate in found.gates])
        sql = f"""SELECT s.key FROM steps s WHERE s.run_id = ?
                  AND s.key IN (SELECT value FROM json_each(?)) AND {FED_ENDS}"""
        found.decisions = {key for (key,) in all_rows(db, sql, run_id, keys)}
    return found


def _settled(db: apsw.Connection, place: Place) -> list[Entry]:
    rows = all_rows(
        db,
        f"""SELECT * FROM (SELECT {FED_STEP} FROM steps s WHERE s.run_id = ?1 AND {FED_ENDS})
            WHERE place > ?2 OR (place = ?2 AND key > ?3)
            ORDER BY place, key LIMIT {MOST_ENTRIES + 1}""",
        place.run_id,
        place.position,
        place.key,
    )
    return [Entry(*row) for row in rows]


def _open(db: apsw.Connection, run_id: str) -> list[Entry]:
    steps = all_rows(
        db,
        f"""SELECT {FED_STEP}, w.created_at, w.due_at FROM steps s
            LEFT JOIN waits w ON w.run_id = s.run_id AND w.key = s.key
            WHERE s.run_id = ? AND s.status IN ({quoted(OPEN)})
            ORDER BY s.seq LIMIT {MOST_OPEN}""",
        run_id,
    )
    waits = all_rows(
        db,
        f"""SELECT w.key, w.seq, 0, w.kind, 'waiting', 1, NULL, 0, NULL, w.created_at, NULL,
                   w.created_at, w.due_at
            FROM waits w WHERE w.run_id = ?1 AND NOT EXISTS (
                SELECT 1 FROM steps s WHERE s.run_id = ?1 AND s.key = w.key)
            ORDER BY w.seq LIMIT {MOST_OPEN}""",
        run_id,
    )
    found = [Entry(*row) for row in (*steps, *waits)]
    return sorted(found, key=lambda entry: entry.seq)[:MOST_OPEN]


def _failures(db: apsw.Connection, run_id: str, tried: list[tuple[str, int]]) -> list[Failure]:
    rows = all_rows(
        db,
        f"""SELECT a.key, a.number, a.error, a.failed_at FROM json_each(?) t
            CROSS JOIN attempts a ON a.run_id = ? AND a.key = t.value->>0
              AND a.number > t.value->>1 - {MOST_ATTEMPTS}
            ORDER BY t.key, a.number""",
        pack(tried),
        run_id,
    )
    return [Failure(*row) for row in rows]

"""Waits, signals and events on SQLite: whoever comes second finds the first."""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from stepwell.kernel.changes import Committed, EmitEvent, OpenWait, SendSignal
from stepwell.kernel.codec import decode
from stepwell.kernel.matching import contains, terms_of
from stepwell.kernel.outcomes import child_result
from stepwell.kernel.signals import Awaiting, hand_out
from stepwell.kernel.states import ENDED, quoted
from stepwell.stores.sqlite.ending import end_waits
from stepwell.stores.sqlite.rows import all_rows, one, pack, run, run_rows, unpack


def open_waits(db: apsw.Connection, found: list[tuple[int, OpenWait]], done: Committed) -> None:
    """Register waits, and end at once those whose event, signal or child came before."""
    changes = [change for _, change in found]
    run_rows(
        db,
        """WITH w (run_id, key, seq, kind, due_at, event, term, match, child, at, about)
              AS (VALUES {rows})
           INSERT OR IGNORE INTO waits (run_id, key, workspace_id, seq, kind, due_at, event, term,
                                        match, child_run_id, created_at, about)
           SELECT w.run_id, w.key, r.workspace_id, w.seq, w.kind, w.due_at, w.event, w.term,
                  w.match, w.child, w.at, w.about FROM w JOIN runs r ON r.id = w.run_id""",
        [
            (c.held.run_id, c.key, c.seq, c.kind, c.due_at, c.event, c.term, c.match,
             c.child_run_id, c.created_at, c.about)
            for c in changes
        ],
    )  # fmt: skip
    for_event = [c for c in changes if c.event is not None]
    if for_event:
        _find_buffered(db, for_event, done)
    for_child = [c for c in changes if c.child_run_id is not None]
    if for_child:
        _find_ended_children(db, for_child, done)


def _find_buffered(db: apsw.Connection, changes: list[OpenWait], done: Committed) -> None:
    with_signals = unpack(
        db,
        """SELECT json_group_array(json_array(run_id, event, key, match, created_at)) FROM (
               SELECT w.* FROM json_each(?) c
               CROSS JOIN waits w ON w.run_id = c.value->>0 AND w.key = c.value->>1
               WHERE w.ended_at IS NULL AND EXISTS (
                   SELECT 1 FROM events WHERE run_id = w.run_id AND type = w.event
                      AND consumed_by IS NULL)
               ORDER BY c.key)""",
        pack(list({(c.held.run_id, c.key): None for c in changes})),
    )
    _hand_out_buffered(db, [Awaiting(*row) for row in with_signals], done)
    for change in changes:
        if change.since is not None:
            _look_back(db, change, done)


def _is_open(db: apsw.Connection, run_id: str, key: str) -> bool:
    row = one(db, "SELECT ended_at FROM waits WHERE run_id = ? AND key = ?", run_id, key)
    return row is not None and row[0] is None


def _hand_out_buffered(db: apsw.Connection, waits: Iterable[Awaiting], done: Committed) -> None:
    """Give each of these open waits, in order, the first buffered signal that it matches."""
    results = []
    for wait in waits:
        found = _first_match(db, wait)
        if found is not None:
            event_id, payload, sent_at = found
            run(db, "UPDATE events SET consumed_by = ? WHERE id = ?", wait.key, event_id)
            results.append([wait.run_id, wait.key, payload, max(wait.created_at, sent_at)])
    end_waits(db, results, done)


def _first_match(db: apsw.Connection, wait: Awaiting) -> tuple[str, str, int] | None:
    match = None if wait.match is None else decode(wait.match)
    # Row by row: of very many signals the first that matches is all that is wanted.
    for event_id, payload, sent_at in db.execute(
        """SELECT id, payload, created_at FROM events
           WHERE run_id = ? AND type = ? AND consumed_by IS NULL ORDER BY id""",
        (wait.run_id, wait.event),
    ):
        if match is None or contains(decode(payload), match):
            return event_id, payload, sent_at
    return None


def _look_back(db: apsw.Connection, change: OpenWait, done: Committed) -> None:
    match = decode(change.match) if change.match is not None else None
    if not _is_open(db, change.held.run_id, change.key):
        return
    for (payload,) in db.execute(
        """SELECT e.payload FROM events e
           WHERE e.workspace_id = (SELECT workspace_id FROM runs WHERE id = ?)
             AND e.type = ? AND e.run_id IS NULL AND e.created_at >= ?
           ORDER BY e.created_at, e.id""",
        (change.held.run_id, change.event, change.since),
    ):
        if match is None or contains(decode(payload), match):
            end_waits(db, [[change.held.run_id, change.key, payload, change.created_at]], done)
            return


def _find_ended_children(db: apsw.Connection, changes: list[OpenWait], done: Committed) -> None:
    by_child = {(c.held.run_id, c.key): c for c in changes}
    ended = unpack(
        db,
        f"""SELECT json_group_array(json_array(c.value->>0, c.value->>1, r.status,
               (SELECT body FROM payloads WHERE run_id = r.id AND kind = 'output'),
               (SELECT body FROM payloads WHERE run_id = r.id AND kind = 'error')))
           FROM json_each(?) c LEFT JOIN runs r ON r.id = c.value->>2
           WHERE r.id IS NULL OR r.status IN ({quoted(ENDED)})""",
        pack([(c.held.run_id, c.key, c.child_run_id) for c in changes]),
    )
    end_waits(
        db,
        [
            [run_id, key, child_result(status or "missing", output, error),
             by_child[run_id, key].created_at]
            for run_id, key, status, output, error in ended
            if _is_open(db, run_id, key)
        ],
        done,
    )  # fmt: skip


def settle(db: apsw.Connection, settled: list[tuple[str, str, str]], done: Committed) -> None:
    """Remove waits that have served; what one took but never handed on goes to the next."""
    rows = pack(settled)
    run(
        db,
        """DELETE FROM waits WHERE (run_id, key) IN (
               SELECT value->>0, value->>1 FROM json_each(?))""",
        rows,
    )
    if any(status == "skipped" for _, _, status in settled):
        _give_back(db, rows, done)


def _give_back(db: apsw.Connection, settled: str, done: Committed) -> None:
    """Take signals from waits that were given up, for those that are open already."""
    given = {
        (run_id, type)
        for run_id, type in all_rows(
            db,
            """UPDATE events SET consumed_by = NULL FROM json_each(?) s
               WHERE s.value->>2 = 'skipped' AND events.run_id = s.value->>0
                 AND events.consumed_by = s.value->>1 RETURNING run_id, type""",
            settled,
        )
    }
    if given:
        waits = _open_waits(db, {run_id for run_id, _ in given})
        _hand_out_buffered(db, [w for w in waits if (w.run_id, w.event) in given], done)


def _open_waits(db: apsw.Connection, run_ids: Iterable[str]) -> list[Awaiting]:
    """Open waits of these runs, in order of call."""
    rows = unpack(
        db,
        """SELECT json_group_array(json_array(run_id, event, key, match, created_at)) FROM (
               SELECT w.* FROM json_each(?) s
               CROSS JOIN waits w ON w.run_id = s.value AND w.ended_at IS NULL
               ORDER BY w.run_id, w.seq)""",
        pack(list(run_ids)),
    )
    return [Awaiting(*row) for row in rows]


def send_signals(db: apsw.Connection, found: list[tuple[int, SendSignal]], done: Committed) -> None:
    """Buffer signals, and hand each to the first of the run's waits that it matches."""
    changes = [change for _, change in found]
    known = dict(
        unpack(
            db,
            """SELECT json_group_array(json_array(r.id, r.status)) FROM json_each(?) s
               CROSS JOIN runs r ON r.id = s.value->>0 AND r.workspace_id = s.value->>1""",
            pack(list({(c.run_id, c.workspace_id) for c in changes})),
        )
    )
    # One that is there already was sent before, and its acknowledgement lost.
    seen = set(
        unpack(
            db,
            """SELECT json_group_array(s.value->>0) FROM json_each(?) s
               WHERE EXISTS (SELECT 1 FROM events WHERE id = s.value->>0) OR EXISTS (
                   SELECT 1 FROM events WHERE workspace_id = s.value->>1
                       AND type = s.value->>2 AND once_key = s.value->>3)""",
            pack([(c.id, c.workspace_id, c.type, c.once_key) for c in changes]),
        )
    )
    new: dict[tuple[str, str], SendSignal] = {}
    for index, change in found:
        status = known.get(change.run_id)
        living = status is not None and status not in ENDED
        done.outcomes[index] = None if status is None else living or change.id in seen
        if living and change.id not in seen:
            # Two attempts of one may be in the same batch.
            new.setdefault((change.type, change.once_key or change.id), change)
    sent = list(new.values())
    taken = hand_out(sent, _open_waits(db, {c.run_id for c in sent}))
    run_rows(
        db,
        """INSERT INTO events (id, workspace_id, type, run_id, payload, created_at, once_key,
                              consumed_by)
           VALUES {rows}""",
        [
            (c.id, c.workspace_id, c.type, c.run_id, c.payload, c.created_at, c.once_key,
             taken.get(c.id))
            for c in sent
        ],
    )  # fmt: skip
    end_waits(
        db, [[c.run_id, taken[c.id], c.payload, c.created_at] for c in sent if c.id in taken], done
    )


# The last place in a workspace that an event which is pending, or a trigger, has.
LAST_PLACE = """max(
    coalesce((SELECT max(pending) FROM events
              WHERE workspace_id = {workspace} AND pending IS NOT NULL), 0),
    coalesce((SELECT max(place) FROM triggers WHERE workspace_id = {workspace}), 0))"""


def emit_events(db: apsw.Connection, found: list[tuple[int, EmitEvent]], done: Committed) -> None:
    """Write events to the outbox and end every wait of the workspace that they match."""
    for index, change in found:
        known = one(db, "SELECT 1 FROM events WHERE id = ?", change.id)
        if known is not None:
            done.outcomes[index] = True
            continue
        row = one(
            db,
            f"""INSERT OR IGNORE INTO events (id, workspace_id, type, key, once_key, payload,
                                             created_at, traceparent, pending)
               SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, CASE WHEN EXISTS (
                   SELECT 1 FROM triggers WHERE workspace_id = ?2 AND event = ?3)
                   THEN {LAST_PLACE.format(workspace="?2")} + 1 END
               RETURNING pending""",
            change.id, change.workspace_id, change.type, change.key, change.once_key,
            change.payload, change.created_at, change.traceparent,
        )  # fmt: skip
        done.outcomes[index] = row is not None
        if row is None:
            continue
        done.firing = done.firing or row[0] is not None
        payload = decode(change.payload)
        waits = unpack(
            db,
            """SELECT json_group_array(json_array(w.run_id, w.key, w.match))
               FROM json_each(?) t CROSS JOIN waits w ON w.workspace_id = ? AND w.event = ?
                AND w.term = t.value AND w.ended_at IS NULL""",
            pack(terms_of(payload)),
            change.workspace_id,
            change.type,
        )
        end_waits(
            db,
            [
                [run_id, key, change.payload, change.created_at]
                for run_id, key, match in waits
                if match is None or contains(payload, decode(match))
            ],
            done,
        )

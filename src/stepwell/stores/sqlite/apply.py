"""Applying a batch of changes to SQLite, one transaction a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from stepwell.kernel.changes import (
    FENCED,
    CancelRun,
    Change,
    ClaimRuns,
    Committed,
    EmitEvent,
    EndRun,
    Held,
    LogAttempt,
    OpenWait,
    ParkRun,
    RecordStep,
    ReleaseRun,
    RestRun,
    ResumeRun,
    SendSignal,
    StartRun,
    WatchWaits,
)
from stepwell.kernel.claiming import date_claims, start_with_claim
from stepwell.kernel.clock import LAST, Clock
from stepwell.kernel.outcomes import Ending
from stepwell.kernel.states import ENDED, OPEN, quoted
from stepwell.stores.sqlite import waiting
from stepwell.stores.sqlite.claim import claim
from stepwell.stores.sqlite.ending import finish
from stepwell.stores.sqlite.immediate import start_and_take
from stepwell.stores.sqlite.rows import all_rows, one, pack, run, run_rows, unpack, writing
from stepwell.stores.sqlite.starting import start


def apply(db: apsw.Connection, batch: Sequence[Change], clock: Clock) -> Committed:
    """Apply the batch and make it durable, or raise and leave nothing."""
    with writing(db):
        date_claims(batch, clock.now())  # others may have had the file for long
        return apply_within(db, batch)


def apply_within(db: apsw.Connection, batch: Sequence[Change]) -> Committed:
    """The same within a transaction of the caller's."""
    if pair := start_with_claim(batch):
        claimed = start_and_take(db, *pair)
        if claimed is not None:
            return Committed([(c.id, True) if c is pair[0] else claimed for c in batch])
    done = Committed(outcomes=[None] * len(batch))
    fenced = _fenced(db, batch)
    by_kind: dict[type[Any], list[tuple[int, Any]]] = {}
    for index, change in enumerate(batch):
        held = _holds(change)
        if fenced and held is not None and (held.run_id, held.owner, held.fence) in fenced:
            done.outcomes[index] = FENCED
        else:
            by_kind.setdefault(type(change), []).append((index, change))
    for kind, work in _ORDER:
        if found := by_kind.get(kind):
            work(db, found, done)
    return done


def _holds(change: Change) -> Held | None:
    """The proof a change is checked by; what is said of a parked run, held by nobody, has none."""
    return None if type(change) in (ResumeRun, RestRun) else getattr(change, "held", None)


def _fenced(db: apsw.Connection, batch: Sequence[Change]) -> set[tuple[str, str, int]]:
    """Who of this batch no longer holds the run it says it holds."""
    held = {(h.run_id, h.owner, h.fence) for change in batch if (h := _holds(change)) is not None}
    if not held:
        return set()
    rows = unpack(
        db,
        """SELECT json_group_array(json(h.value)) FROM json_each(?) h WHERE NOT EXISTS (
               SELECT 1 FROM runs r WHERE r.id = h.value->>0
                  AND r.owner = h.value->>1 AND r.fence = h.value->>2)""",
        pack(list(held)),
    )
    return {(row[0], row[1], row[2]) for row in rows}


def _record_steps(
    db: apsw.Connection, found: list[tuple[int, RecordStep]], done: Committed
) -> None:
    run_rows(
        db,
        f"""INSERT INTO steps (run_id, key, seq, position, kind, status, attempts, output, error,
                              started_at, completed_at) VALUES {{rows}}
           ON CONFLICT (run_id, key) DO UPDATE SET
               position = excluded.position, status = excluded.status,
               attempts = excluded.attempts, output = excluded.output, error = excluded.error,
               completed_at = excluded.completed_at
           WHERE steps.status IN ({quoted(OPEN)}) OR excluded.status = 'skipped'""",
        [
            (c.held.run_id, c.key, c.seq, c.position, c.kind, c.status, c.attempts, c.output,
             c.error, c.started_at, c.completed_at)
            for _, c in found
        ],
    )  # fmt: skip
    settled = [(c.held.run_id, c.key, c.status) for _, c in found if c.settles]
    if settled:
        waiting.settle(db, settled, done)


def _log_attempts(db: apsw.Connection, found: list[tuple[int, LogAttempt]], _: Committed) -> None:
    run_rows(
        db,
        """INSERT OR IGNORE INTO attempts (run_id, key, number, error, started_at, failed_at)
           VALUES {rows}""",
        [(c.held.run_id, c.key, c.number, c.error, c.started_at, c.failed_at) for _, c in found],
    )


def _end_runs(db: apsw.Connection, found: list[tuple[int, EndRun]], done: Committed) -> None:
    endings = [Ending(c.held.run_id, c.status, c.output, c.error, c.completed_at) for _, c in found]
    finish(db, endings, done)


# When any of the awaited waits has ended the run is due now, else when the first of them is.
_NEXT_DUE = """(SELECT CASE WHEN count(w.ended_at) > 0 THEN min(w.created_at) ELSE min(w.due_at) END
                FROM waits w WHERE w.run_id = p.value->>0
                 AND w.key IN (SELECT value FROM json_each(p.value->'$[1]')))"""


def _park_runs(db: apsw.Connection, found: list[tuple[int, ParkRun]], done: Committed) -> None:
    run(
        db,
        f"""UPDATE runs SET status = 'waiting', owner = NULL, crashes = 0,
                due_at = nullif(
                    min(coalesce({_NEXT_DUE}, {LAST}), coalesce(p.value->>2, {LAST})), {LAST})
            FROM json_each(?) p WHERE runs.id = p.value->>0""",
        pack([(c.held.run_id, c.keys, c.look_at) for _, c in found]),
    )
    _tell_if_ended(db, [c.held.run_id for _, c in found], done)


def _rest_runs(db: apsw.Connection, found: list[tuple[int, RestRun]], done: Committed) -> None:
    run(
        db,
        f"""UPDATE runs SET due_at = {_NEXT_DUE} FROM json_each(?) p
            WHERE runs.id = p.value->>0 AND runs.fence = p.value->>2
              AND runs.status = 'waiting' AND runs.owner IS NULL""",
        pack([(c.held.run_id, c.keys, c.held.fence) for _, c in found]),
    )
    _tell_if_ended(db, [c.held.run_id for _, c in found], done)


def _watch_waits(db: apsw.Connection, found: list[tuple[int, WatchWaits]], done: Committed) -> None:
    run(
        db,
        f"""UPDATE runs SET due_at = {_NEXT_DUE}
            FROM json_each(?) p WHERE runs.id = p.value->>0""",
        pack([(c.held.run_id, c.keys) for _, c in found]),
    )
    _tell_if_ended(db, [c.held.run_id for _, c in found], done)


def _tell_if_ended(db: apsw.Connection, run_ids: list[str], done: Committed) -> None:
    """What the workers of this process know themselves is when waits run out."""
    ended = one(
        db,
        """SELECT 1 FROM waits WHERE run_id IN (SELECT value FROM json_each(?))
              AND ended_at IS NOT NULL LIMIT 1""",
        pack(run_ids),
    )
    done.due = done.due or ended is not None


def _resume_runs(db: apsw.Connection, found: list[tuple[int, ResumeRun]], done: Committed) -> None:
    """Hold runs again that nobody has claimed since they were parked."""
    for index, change in found:
        row = one(
            db,
            """UPDATE runs SET status = 'running', owner = ?, fence = fence + 1, due_at = NULL
               WHERE id = ? AND fence = ? AND status = 'waiting' AND owner IS NULL
               RETURNING fence""",
            change.held.owner,
            change.held.run_id,
            change.held.fence,
        )
        done.outcomes[index] = None if row is None else row[0]


def _release_runs(
    db: apsw.Connection, found: list[tuple[int, ReleaseRun]], done: Committed
) -> None:
    run(
        db,
        """UPDATE runs SET owner = NULL, due_at = created_at,
                  program = coalesce(r.value ->> 1, program)
           FROM json_each(?) r WHERE runs.id = r.value ->> 0""",
        pack([[c.held.run_id, c.program] for _, c in found]),
    )
    done.due = True


def _cancel_runs(db: apsw.Connection, found: list[tuple[int, CancelRun]], done: Committed) -> None:
    for index, change in found:
        root = one(
            db,
            "SELECT status, completed_at FROM runs WHERE id = ? AND workspace_id = ?",
            change.run_id,
            change.workspace_id,
        )
        if root is None or root[0] in ENDED:
            done.outcomes[index] = None if root is None else change.did(*root)
            continue
        living = all_rows(
            db,
            f"""WITH RECURSIVE tree (id) AS (
                   SELECT ? UNION SELECT r.id FROM runs r JOIN tree t ON r.parent_run_id = t.id)
               SELECT r.id, r.owner FROM tree JOIN runs r USING (id)
               WHERE r.status NOT IN ({quoted(ENDED)})""",
            change.run_id,
        )
        finish(
            db,
            [Ending(row[0], "cancelled", None, None, change.cancelled_at) for row in living],
            done,
        )
        done.stopped.extend((row[0], row[1]) for row in living)
        done.outcomes[index] = True


def _claim_runs(db: apsw.Connection, found: list[tuple[int, ClaimRuns]], done: Committed) -> None:
    for index, change in found:
        done.outcomes[index] = claim(db, change, done)


def _start_runs(db: apsw.Connection, found: list[tuple[int, StartRun]], done: Committed) -> None:
    for (index, _), outcome in zip(found, start(db, [c for _, c in found], done), strict=True):
        done.outcomes[index] = outcome


_ORDER: list[tuple[type[Any], Any]] = [
    (StartRun, _start_runs),
    (RecordStep, _record_steps),
    (LogAttempt, _log_attempts),
    (OpenWait, waiting.open_waits),
    (SendSignal, waiting.send_signals),
    (EmitEvent, waiting.emit_events),
    (EndRun, _end_runs),
    (ParkRun, _park_runs),
    (RestRun, _rest_runs),
    (WatchWaits, _watch_waits),
    (ResumeRun, _resume_runs),
    (ReleaseRun, _release_runs),
    (CancelRun, _cancel_runs),
    (ClaimRuns, _claim_runs),
]

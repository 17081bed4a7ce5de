"""Claiming runs on SQLite: picking, admitting and loading them."""

from __future__ import annotations

from typing import Any

import apsw

from stepwell.kernel.changes import (
    Claimed,
    ClaimedRun,
    ClaimRuns,
    Committed,
    JournalRow,
    WaitRow,
)
from stepwell.kernel.crashes import SUSPECT, admits, set_apart
from stepwell.stores.sqlite.admission import admit
from stepwell.stores.sqlite.limits import wake_queued
from stepwell.stores.sqlite.rows import one, pack, rows, run, unpack
from stepwell.stores.sqlite.sweep import sweep

_LEASED = "SELECT 1 FROM workers WHERE id = ? AND expires_at > ?"


def claim(db: apsw.Connection, ask: ClaimRuns, done: Committed) -> Claimed:
    """Give a worker runs to execute and news of those it holds."""
    if one(db, _LEASED, ask.worker_id, ask.now) is None:
        return Claimed([], None, lease_lost=True)
    unswept = ask.sweep and not sweep(db, ask.now, done)
    if ask.suspects:
        _call_suspects(db, ask)
    nudged = _news(db, ask)
    lanes = live_lanes(db, ask)
    called = Committed([])
    wanted: dict[str, None] = {}
    picked, more = _pick(db, ask, lanes, wanted) if ask.limit > 0 else ({}, False)
    for limit_key in wanted:
        wake_queued(db, limit_key, ask.now, called)
    if called.due:  # whoever was called up in place of another may stand before what was picked
        done.due = more = True
    if ask.sweep or ask.resent:
        picked |= dict.fromkeys(_forgotten(db, ask))
    if picked:
        run(
            db,
            """UPDATE runs SET status = 'running', owner = ?1, fence = fence + 1, due_at = NULL,
                   blocked_on = NULL, started_at = coalesce(started_at, ?2), claimed_at = ?2,
                   expires_at = deadline_at
               WHERE id IN (SELECT value FROM json_each(?3))""",
            ask.worker_id,
            ask.now,
            pack(list(picked)),
        )
    if nudged:
        run(
            db,
            "UPDATE runs SET due_at = NULL WHERE id IN (SELECT value FROM json_each(?))",
            pack(nudged),
        )
    runs = _load(db, picked, set(nudged), ask.now) if picked or nudged else []
    next_at = None if more else _next_at(db, ask, lanes)
    return Claimed(runs=runs, next_at=next_at, more=more, unswept=unswept)


def _news(db: apsw.Connection, ask: ClaimRuns) -> list[str]:
    """Runs this worker holds of which some wait has ended."""
    news = "due_at <= ?2"
    if ask.resent:  # the first answer may have told of them, and was lost
        news += """ OR EXISTS (
            SELECT 1 FROM waits w WHERE w.run_id = runs.id AND w.ended_at IS NOT NULL)"""
    return unpack(
        db,
        f"""SELECT json_group_array(id) FROM runs WHERE owner = ?1 AND ({news})
               AND id IN (SELECT value FROM json_each(?3))""",
        ask.worker_id,
        ask.now,
        pack(ask.known),
    )


def _forgotten(db: apsw.Connection, ask: ClaimRuns) -> list[str]:
    """Runs this worker holds without knowing: the claim's acknowledgement was lost."""
    return unpack(
        db,
        """SELECT json_group_array(id) FROM runs WHERE owner = ?
              AND id NOT IN (SELECT value FROM json_each(?))""",
        ask.worker_id,
        pack(ask.known),
    )


def _call_suspects(db: apsw.Connection, ask: ClaimRuns) -> None:
    """Make suspects due that were set apart, those first that would be due first."""
    run(
        db,
        """UPDATE runs SET due_at = ?1 WHERE id IN (
               SELECT id FROM runs WHERE workspace_id = ?2 AND status = 'running'
                  AND owner IS NULL AND due_at > ?1 AND crashes >= ?3
                  AND program IN (SELECT value FROM json_each(?4))
               ORDER BY due_at, id LIMIT ?5)""",
        ask.now,
        ask.workspace_id,
        SUSPECT,
        pack(ask.programs),
        ask.suspects,
    )


def live_lanes(db: apsw.Connection, ask: ClaimRuns) -> list[tuple[int, str]]:
    """(priority, program) of all live runs this worker can execute, highest priority first."""
    found = unpack(
        db,
        """WITH RECURSIVE lanes (program, priority) AS (
               SELECT p.value, (SELECT max(priority) FROM runs r WHERE r.workspace_id = ?1
                                AND r.program = p.value AND r.due_at IS NOT NULL)
               FROM json_each(?2) p
               UNION ALL
               SELECT l.program, (SELECT max(priority) FROM runs r WHERE r.workspace_id = ?1
                                  AND r.program = l.program AND r.due_at IS NOT NULL
                                  AND r.priority < l.priority)
               FROM lanes l WHERE l.priority IS NOT NULL)
           SELECT json_group_array(json_array(priority, program)) FROM lanes
           WHERE priority IS NOT NULL""",
        ask.workspace_id,
        pack(ask.programs),
    )
    return sorted(((row[0], row[1]) for row in found), reverse=True)


def _pick(
    db: apsw.Connection, ask: ClaimRuns, lanes: list[tuple[int, str]], wanted: dict[str, None]
) -> tuple[dict[str, int | None], bool]:
    """Due runs, and since when, in order of priority, then of time; limits are checked one by one.

    In the queues of the limits `wanted` somebody may have to be called.
    """
    picked: dict[str, int | None] = {}
    suspects: list[int] = []  # the crashes of those that are taken
    apart = 0
    for priority in dict.fromkeys(lane[0] for lane in lanes):
        due: list[Any] = []
        room = ask.limit - len(picked)
        for program in (lane[1] for lane in lanes if lane[0] == priority):
            due += unpack(
                db,
                """SELECT json_group_array(json_array(due_at, id, limited AND status = 'pending',
                                                      blocked_on, crashes))
                   FROM (SELECT due_at, id, limited, status, blocked_on, crashes FROM runs
                         WHERE workspace_id = ?1 AND program = ?2 AND priority = ?3
                           AND due_at <= ?4 AND owner IS NULL
                           AND (expires_at IS NULL OR expires_at > ?4)
                         ORDER BY due_at, id LIMIT ?5)""",
                ask.workspace_id,
                program,
                priority,
                ask.now,
                room,
            )
        due.sort(key=lambda row: (row[0], row[1]))
        for due_at, run_id, queues, blocked_on, crashes in due:
            if len(picked) == ask.limit:
                return picked, True
            if crashes >= SUSPECT and not admits(suspects, crashes, ask.suspects):
                apart += 1
                later = set_apart(apart, ask.now)
                run(db, "UPDATE runs SET due_at = ? WHERE id = ?", later, run_id)
            elif crashes >= SUSPECT:
                suspects.append(crashes)
                picked[run_id] = due_at
            elif not queues or admit(db, run_id, blocked_on, ask.now, wanted):
                picked[run_id] = due_at
        if len(due) >= room:
            return picked, True
    return picked, False


def _load(
    db: apsw.Connection, picked: dict[str, int | None], nudged: set[str], now: int
) -> list[ClaimedRun]:
    """The claimed runs in order, with input, journal and waits."""
    ids = pack([*nudged, *picked])
    found = rows(
        db,
        """r.id, r.definition, r.version, r.program, r.fence, r.attempt, p.body, r.created_at,
           r.deadline_at, r.idempotency_key, r.key_base, r.revision, r.trigger,
           r.forked_from""",
        """FROM json_each(?) c CROSS JOIN runs r ON r.id = c.value
           JOIN payloads p ON p.run_id = r.id AND p.kind = 'input'""",
        ids,
    )
    runs: list[ClaimedRun] = []
    # The first claim of a run finds nothing recorded, unless the run began as a fork.
    known: dict[str, ClaimedRun] = {}
    for row in found:
        claimed = ClaimedRun(*row[:13])
        claimed.nudge, claimed.due_at = claimed.id in nudged, picked.get(claimed.id)
        runs.append(claimed)
        if claimed.fence > 1 or row[13] is not None:
            known[claimed.id] = claimed
    if known:
        replayed = pack([run_id for run_id in known if run_id not in nudged])
        for row in rows(
            db,
            """run_id, key, seq, position, kind, status, attempts, output, error, started_at,
               completed_at""",
            "FROM steps WHERE run_id IN (SELECT value FROM json_each(?))",
            replayed,
        ):
            known[row[0]].journal.append(JournalRow(*row[1:]))
    waited = {claimed.id: claimed for claimed in runs if claimed.nudge} | known
    if waited:
        # A wait whose time has come ends here and now, so that no later event can end it too.
        run(
            db,
            """UPDATE waits SET ended_at = due_at WHERE due_at <= ? AND ended_at IS NULL
                  AND run_id IN (SELECT value FROM json_each(?))""",
            now,
            pack(list(waited)),
        )
        for row in rows(
            db,
            "run_id, key, seq, kind, due_at, child_run_id, created_at, ended_at, result",
            "FROM waits WHERE run_id IN (SELECT value FROM json_each(?))",
            pack(list(waited)),
        ):
            waited[row[0]].waits.append(WaitRow(*row[1:]))
    return runs


def _next_at(db: apsw.Connection, ask: ClaimRuns, lanes: list[tuple[int, str]]) -> int | None:
    """When the next run of this worker's becomes due, or any run expires."""
    expiring = one(db, "SELECT min(expires_at) FROM runs WHERE expires_at IS NOT NULL")
    assert expiring is not None
    times = (expiring[0], first_due(db, ask, lanes, after=ask.now))
    return min((at for at in times if at is not None), default=None)


def first_due(
    db: apsw.Connection, ask: ClaimRuns, lanes: list[tuple[int, str]], *, after: int
) -> int | None:
    """When the first run of these lanes is due that is due after this moment."""
    found = [
        one(
            db,
            """SELECT min(due_at) FROM runs
               WHERE workspace_id = ? AND program = ? AND priority = ? AND due_at > ?""",
            ask.workspace_id,
            program,
            priority,
            after,
        )
        for priority, program in lanes
    ]
    return min((row[0] for row in found if row is not None and row[0] is not None), default=None)

"""Claiming runs on PostgreSQL: many workers pick at once, each leaving alone what others hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import asyncpg

from stepwell.kernel.changes import (
    Claimed,
    ClaimedRun,
    ClaimRuns,
    Committed,
    JournalRow,
    WaitRow,
)
from stepwell.kernel.crashes import SUSPECT, admits, set_apart
from stepwell.stores.postgres.admission import admit
from stepwell.stores.postgres.columns import pack_texts, texts

# More candidates than there is room for, in case other workers have locked the first ones.
SPARE = 50
# When to look again at what others had locked: they are done by then, or hold it for long.
PASSED_OVER_MICROS = 50_000

# In what follows, here and where it is made use of, $1 is the worker, $2 the time, $3 its workspace
# and $4 its programs.

# (program, priority) of all live runs this worker can execute.
LANES = """lanes (program, priority) AS (
       SELECT p, (SELECT r.priority FROM runs r WHERE r.workspace_id = $3 AND r.program = p
                     AND r.due_at IS NOT NULL ORDER BY r.priority DESC LIMIT 1)
       FROM unnest($4::text[]) p
       UNION ALL
       SELECT l.program, (SELECT r.priority FROM runs r WHERE r.workspace_id = $3
                             AND r.program = l.program AND r.due_at IS NOT NULL
                             AND r.priority < l.priority ORDER BY r.priority DESC LIMIT 1)
       FROM lanes l WHERE l.priority IS NOT NULL)"""

# When the next run of this worker's becomes due, or any run expires.
NEXT_AT = """least((SELECT min(expires_at) FROM runs WHERE expires_at IS NOT NULL),
       (SELECT min((SELECT min(r.due_at) FROM runs r WHERE r.workspace_id = $3
                       AND r.program = l.program AND r.priority = l.priority AND r.due_at > $2))
        FROM lanes l WHERE l.priority IS NOT NULL))"""

# `due_at <= $2`, said in ways that keep a plan from looking through all live runs: for a run
# that is found by its id, and for the runs that the worker holds.
_DUE = "coalesce(due_at, 9223372036854775807) <= $2"
_NEWS = "owner = $1 AND (owner, due_at) <= ($1, $2)"

# Whether a run is due that this worker could take, or holds.
ANYTHING_DUE = f"""EXISTS (SELECT FROM runs WHERE {_NEWS}) OR EXISTS (
       SELECT FROM lanes l CROSS JOIN LATERAL (
           SELECT FROM runs r WHERE r.workspace_id = $3 AND r.program = l.program
              AND r.priority = l.priority AND r.due_at <= $2 AND r.owner IS NULL LIMIT 1) d
       WHERE l.priority IS NOT NULL)"""

LEASED = "EXISTS (SELECT FROM workers WHERE id = $1 AND expires_at > $2)"

TAKE = """UPDATE runs r SET status = 'running', owner = $1, fence = r.fence + 1, due_at = NULL,
       blocked_on = NULL, started_at = coalesce(r.started_at, $2), claimed_at = $2,
       expires_at = r.deadline_at"""

INPUT = "(SELECT body FROM payloads WHERE run_id = f.id AND kind = 'input')"

COLUMNS = """r.id, r.definition, r.version, r.program, r.fence, r.attempt, r.created_at,
       r.deadline_at, r.idempotency_key, r.key_base, r.revision, r.trigger, r.forked_from"""


async def peek(db: asyncpg.Connection, ask: ClaimRuns) -> Claimed | None:
    """What a claim that finds nothing would say; None if there is something to be claimed."""
    row = await db.fetchrow(
        f"""WITH RECURSIVE {LANES}
            SELECT {LEASED},
                CASE WHEN $5 THEN {ANYTHING_DUE}
                     ELSE EXISTS (SELECT FROM runs WHERE {_NEWS}) END
                OR $6 AND EXISTS (SELECT FROM runs WHERE owner = $1
                                     AND id NOT IN (SELECT unnest({texts("$7")}))),
                {NEXT_AT}""",
        ask.worker_id,
        ask.now,
        ask.workspace_id,
        ask.programs,
        ask.limit > 0,
        ask.sweep or ask.resent,
        pack_texts(ask.known),
    )
    assert row is not None
    leased, found, next_at = row
    if not leased:
        return Claimed([], None, lease_lost=True)
    return None if found else Claimed([], next_at)


async def claim(db: asyncpg.Connection, ask: ClaimRuns, done: Committed) -> Claimed:
    """Give a worker runs to execute and news of those it holds."""
    # Looked for first: what is picked below is not known to the worker yet either.
    forgotten = await _forgotten(db, ask) if ask.sweep or ask.resent else []
    if ask.suspects:
        await _call_suspects(db, ask)
    rows = await _pick(db, ask)
    leased, next_at, seen, locked, limited, suspects, crashes, news = rows[0][:8]
    if not leased:
        return Claimed([], None, lease_lost=True)
    found: list[Any] = sorted((row[8:] for row in rows if row[8] is not None), key=_order)
    # Whether others were at work on something that is due: they may leave some of it.
    passed_over = seen > 0 and locked == 0
    called = Committed([])
    if limited:
        admitted, busy = await admit(db, limited, ask.now, called)
        found += await _take(db, ask, admitted)
        passed_over = passed_over or busy
    taken: dict[str, int] = {}
    for run_id, count in zip(suspects, crashes, strict=True):
        if admits([*taken.values()], count, ask.suspects):
            taken[run_id] = count
    found += await _take(db, ask, [*taken, *forgotten])
    if left := [run_id for run_id in suspects if run_id not in taken]:
        apart = await _set_apart(db, left, ask.now)
        next_at = apart if next_at is None else min(apart, next_at)
    if news or ask.resent:
        told = await _nudge(db, ask)
        found = told + found
        passed_over = passed_over or len(told) < news
    runs = await _load(db, found, ask.now)
    # Whoever was called up in place of another may stand before what was picked.
    more = locked == ask.limit > 0 or 0 < locked < seen or called.due
    done.due = done.due or called.due
    if passed_over:
        next_at = ask.now + PASSED_OVER_MICROS
    return Claimed(runs, None if more else next_at, more)


async def _pick(db: asyncpg.Connection, ask: ClaimRuns) -> list[asyncpg.Record]:
    """Take due runs in order of priority, then of time; those that have limits are only locked.

    Each row begins with whether the worker has its lease, when to look again, how many
    candidates there were, how many of them could be locked, those of these that have limits or
    are suspects, the crashes of the latter, and of how many runs that the worker holds there is
    news.
    """
    return await db.fetch(
        f"""WITH RECURSIVE {LANES}, due AS MATERIALIZED (
                SELECT l.priority, d.due_at, d.id FROM lanes l CROSS JOIN LATERAL (
                    SELECT r.due_at, r.id FROM runs r WHERE r.workspace_id = $3
                       AND r.program = l.program AND r.priority = l.priority
                       AND r.due_at <= $2 AND r.owner IS NULL
                       AND coalesce(r.expires_at, 9223372036854775807) > $2
                    ORDER BY r.due_at, r.id LIMIT $6) d
                WHERE l.priority IS NOT NULL
                ORDER BY l.priority DESC, d.due_at, d.id LIMIT $6
            ), lease AS MATERIALIZED (
                -- Locked, so that nobody ends this lease and misses the runs picked here.
                SELECT FROM workers w WHERE w.id = $1 AND w.expires_at > $2
                   AND EXISTS (SELECT FROM due) FOR KEY SHARE
            ), picked AS MATERIALIZED (
                -- Locked one by one, until there are enough.
                SELECT r.*, r.crashes >= {SUSPECT} AS suspect FROM due d CROSS JOIN LATERAL (
                    SELECT id, limited AND status = 'pending' AS queues, crashes FROM runs
                    WHERE id = d.id AND owner IS NULL AND {_DUE}
                    FOR UPDATE SKIP LOCKED) r
                WHERE EXISTS (SELECT FROM lease) LIMIT $5
            ), taken AS (
                {TAKE} WHERE r.id = ANY(ARRAY(
                    SELECT id FROM picked WHERE NOT queues AND NOT suspect))
                RETURNING false AS nudge, {COLUMNS}
            )
            SELECT m.*, c.* FROM (
                SELECT {LEASED}, {NEXT_AT}, (SELECT count(*) FROM due),
                    (SELECT count(*) FROM picked), ARRAY(SELECT id FROM picked WHERE queues),
                    ARRAY(SELECT id FROM picked WHERE suspect),
                    ARRAY(SELECT crashes FROM picked WHERE suspect),
                    (SELECT count(*) FROM runs
                     WHERE {_NEWS} AND id = ANY({texts("$7")}))
            ) m LEFT JOIN (
                SELECT f.*, {INPUT}, d.priority, d.due_at FROM taken f LEFT JOIN due d USING (id)
            ) c ON true""",
        ask.worker_id,
        ask.now,
        ask.workspace_id,
        ask.programs,
        max(ask.limit, 0),
        ask.limit + SPARE if ask.limit > 0 else 0,
        pack_texts(ask.known),
    )


async def _forgotten(db: asyncpg.Connection, ask: ClaimRuns) -> list[str]:
    """Runs this worker holds without knowing: the claim's acknowledgement was lost."""
    rows = await db.fetch(
        f"""SELECT id FROM runs WHERE owner = $1 AND id NOT IN (SELECT unnest({texts("$2")}))
            FOR UPDATE SKIP LOCKED""",
        ask.worker_id,
        pack_texts(ask.known),
    )
    return [row[0] for row in rows]


async def _call_suspects(db: asyncpg.Connection, ask: ClaimRuns) -> None:
    """Make suspects due that were set apart, those first that would be due first."""
    await db.fetch(
        """UPDATE runs SET due_at = $1 WHERE id = ANY(ARRAY(
               SELECT id FROM runs WHERE workspace_id = $2 AND status = 'running'
                  AND owner IS NULL AND due_at > $1 AND crashes >= $3 AND program = ANY($4)
               ORDER BY due_at, id LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED))""",
        ask.now,
        ask.workspace_id,
        SUSPECT,
        ask.programs,
        ask.suspects,
    )


async def _set_apart(db: asyncpg.Connection, suspects: list[str], now: int) -> int:
    """Leave locked suspects for later, one after the other; when the first of them is due."""
    times = [set_apart(number, now) for number in range(1, len(suspects) + 1)]
    await db.fetch(
        """UPDATE runs r SET due_at = g.due_at
           FROM unnest($1::text[], $2::bigint[]) AS g (id, due_at)
           WHERE r.id = ANY($1) AND r.id = g.id""",
        suspects,
        times,
    )
    return times[0]


async def _nudge(db: asyncpg.Connection, ask: ClaimRuns) -> list[asyncpg.Record]:
    """Held runs of which some wait has ended, unless somebody is just changing them."""
    news = _NEWS
    if ask.resent:  # the first answer may have told of them, and was lost
        news = f"""owner = $1 AND ({_DUE} OR (
            SELECT count(*) FROM waits WHERE run_id = runs.id AND ended_at IS NOT NULL) > 0)"""
    return await db.fetch(
        f"""WITH found AS (
                UPDATE runs r SET due_at = NULL WHERE r.id = ANY(ARRAY(
                    SELECT id FROM runs
                    WHERE {news} AND id = ANY({texts("$3")})
                    FOR UPDATE SKIP LOCKED))
                RETURNING true AS nudge, {COLUMNS})
            SELECT f.*, {INPUT} FROM found f""",
        ask.worker_id,
        ask.now,
        pack_texts(ask.known),
    )


async def _take(db: asyncpg.Connection, ask: ClaimRuns, run_ids: list[str]) -> list[asyncpg.Record]:
    """Take runs that are locked."""
    if not run_ids:
        return []
    return await db.fetch(
        f"""WITH found AS ({TAKE} WHERE r.id = ANY($3) RETURNING false AS nudge, {COLUMNS})
            SELECT f.*, {INPUT} FROM found f""",
        ask.worker_id,
        ask.now,
        run_ids,
    )


def _order(row: Any) -> tuple[int, int, str]:
    run_id, priority, due_at = row[1], row[-2], row[-1]
    return -priority, due_at, run_id


def claimed_run(row: Any) -> ClaimedRun:
    (
        nudge, id_, definition, version, program, fence, attempt, created_at, deadline_at,
        idempotency_key, key_base, revision, trigger, _, input_,
    ) = row[:15]  # fmt: skip
    return ClaimedRun(
        id_, definition, version, program, fence, attempt, input_, created_at, deadline_at,
        idempotency_key, key_base, revision, trigger, nudge,
        due_at=row[16] if len(row) > 16 else None,
    )  # fmt: skip


async def _load(db: asyncpg.Connection, rows: list[Any], now: int) -> list[ClaimedRun]:
    """The claimed runs with journal and waits."""
    runs = [claimed_run(row) for row in rows]
    # The first claim of a run finds nothing recorded, unless the run began as a fork.
    known = {
        run.id: run
        for run, row in zip(runs, rows, strict=True)
        if run.nudge or run.fence > 1 or row[13] is not None
    }
    if known:
        fresh = [run.id for run in known.values() if not run.nudge]
        rows = await db.fetch(
            f"WITH ended AS ({end_due('$1', '$2')}) {loaded('$1', '$2', '$3')}",
            list(known),
            now,
            fresh,
        )
        add_loaded(known, rows)
    return runs


def end_due(run_ids: str, now: str) -> str:
    """SQL: a wait whose time has come ends here and now, so that no later event can end it too."""
    return f"""UPDATE waits SET ended_at = due_at
               WHERE run_id = ANY({run_ids}) AND due_at <= {now} AND ended_at IS NULL"""


def loaded(run_ids: str, now: str, unknown: str) -> str:
    """SQL for the waits of runs, and the journals of those that the worker does not know yet.

    In one statement: whoever was woken waits for it. Columns of waits stand where entries of the
    journal have some of the same kind.
    """
    return f"""SELECT run_id, false AS is_wait, NULL AS ended_at, key, seq, position, kind, status,
                      attempts, output, error, started_at, completed_at
               FROM steps WHERE run_id = ANY({unknown})
               UNION ALL
               SELECT run_id, true,
                      CASE WHEN ended_at IS NULL AND due_at <= {now} THEN due_at ELSE ended_at END,
                      key, seq, NULL, kind, NULL, NULL, child_run_id, result, created_at, due_at
               FROM waits WHERE run_id = ANY({run_ids})"""


def add_loaded(runs: Mapping[str, ClaimedRun], rows: Iterable[Iterable[Any]]) -> None:
    """Give runs the waits and journals that were loaded."""
    for run_id, is_wait, ended_at, *row in rows:
        if is_wait:
            key, seq, _, kind, _, _, child, result, created_at, due_at = row
            wait = WaitRow(key, seq, kind, due_at, child, created_at, ended_at, result)
            runs[run_id].waits.append(wait)
        else:
            runs[run_id].journal.append(JournalRow(*row))

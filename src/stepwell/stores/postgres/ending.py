"""How runs end on PostgreSQL, and what that sets free: parents, queued runs, waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from stepwell.kernel.changes import CancelRun, Committed, EndRun
from stepwell.kernel.outcomes import Ending, child_result
from stepwell.kernel.states import ENDED, OPEN, quoted
from stepwell.stores.postgres.columns import Columns, packable
from stepwell.stores.postgres.limits import wake_queued

_ENDINGS = Columns(
    "run_id text", "status text", "output text", "error text", "completed_at bigint",
    "owner text", "fence integer", "number integer",
)  # fmt: skip

_THEIRS = "ANY(ARRAY(SELECT run_id FROM ending))"

# Ends the runs of the table `ending`: what was still open is skipped, and waits go.
_FINISH = f"""ended AS (
       UPDATE runs r SET status = e.status, completed_at = e.completed_at, owner = NULL,
           due_at = NULL, expires_at = NULL, blocked_on = NULL,
           prune_at = e.completed_at + r.retention_seconds * 1000000
       FROM ending e WHERE r.id = {_THEIRS} AND r.id = e.run_id
   ), bodies AS (
       INSERT INTO payloads (run_id, kind, body)
       SELECT run_id, 'output', output FROM ending WHERE output IS NOT NULL
       UNION ALL
       SELECT run_id, 'error', error FROM ending WHERE error IS NOT NULL
       ON CONFLICT (run_id, kind) DO UPDATE SET body = excluded.body
   ), dropped AS (
       DELETE FROM waits WHERE run_id = {_THEIRS}
       RETURNING run_id, key, seq, kind, child_run_id, created_at
   ), skipped AS (
       INSERT INTO steps (run_id, key, seq, position, kind, status, attempts, output, started_at)
       SELECT run_id, key, seq, 0, kind, 'skipped', 1, '"' || child_run_id || '"', created_at
       FROM dropped
       ON CONFLICT DO NOTHING
   ), closed AS (
       UPDATE steps SET status = 'skipped'
       WHERE run_id = {_THEIRS} AND status IN ({quoted(OPEN)})
   )"""


class Result(NamedTuple):
    """What a wait ends with."""

    run_id: str
    key: str
    result: str
    ended_at: int


_RESULTS = Columns("run_id text", "key text", "result text", "ended_at bigint")
# Ends the waits that are `given` and still open.
END_GIVEN = """UPDATE waits w SET result = g.result, ended_at = g.ended_at FROM given g
               WHERE w.run_id = ANY(ARRAY(SELECT run_id FROM given))
                 AND w.run_id = g.run_id AND w.key = g.key AND w.ended_at IS NULL
               RETURNING w.run_id, w.ended_at"""


async def end_alone(db: asyncpg.Connection, changes: Sequence[EndRun]) -> list[bool]:
    """End runs that stand alone in one statement: fence and commit included. Which ones it did.

    A run without parent and limits stands alone: its end concerns no other run.
    """
    ended = await db.fetchval(
        f"""WITH given AS MATERIALIZED ({_ENDINGS.sql}), ending AS MATERIALIZED (
                SELECT g.* FROM given g
                JOIN runs r ON r.id = g.run_id AND r.fence = g.fence
                  AND r.owner IS NOT DISTINCT FROM g.owner
                WHERE r.id = ANY(ARRAY(SELECT run_id FROM given))
                  AND r.parent_run_id IS NULL AND NOT r.limited
                ORDER BY r.id FOR NO KEY UPDATE OF r
            ), {_FINISH}
            SELECT array_agg(number) FROM ending""",
        *_ENDINGS.pack(
            [
                (c.held.run_id, c.status, c.output, c.error, c.completed_at, c.held.owner,
                 c.held.fence, number)
                for number, c in enumerate(changes)
            ]
        ),
    )  # fmt: skip
    numbers = set(ended or ())
    return [number in numbers for number in range(len(changes))]


async def end_runs(
    db: asyncpg.Connection, found: list[tuple[int, EndRun]], done: Committed
) -> None:
    await finish(
        db,
        [Ending(c.held.run_id, c.status, c.output, c.error, c.completed_at) for _, c in found],
        done,
    )


async def finish(db: asyncpg.Connection, endings: Sequence[Ending], done: Committed) -> None:
    """End runs whose rows and limits are locked, and tell whoever waited for that."""
    if not endings:
        return
    rows = await db.fetch(
        f"""WITH ending AS MATERIALIZED ({_ENDINGS.sql}), {_FINISH}, freed AS (
                DELETE FROM limits WHERE run_id = {_THEIRS} RETURNING limit_key
            )
            SELECT w.run_id, w.key, w.child_run_id, NULL AS limit_key
            FROM waits w WHERE w.child_run_id = {_THEIRS} AND w.ended_at IS NULL
            UNION ALL
            SELECT DISTINCT NULL, NULL, NULL, limit_key FROM freed""",
        *_ENDINGS.pack([(*ending, None, None, None) for ending in endings]),
    )
    done.ended.extend(ending.run_id for ending in endings)
    if not rows:
        return
    by_id = {ending.run_id: ending for ending in endings}
    results = [
        Result(run_id, key, child_result(e.status, e.output, e.error), e.completed_at)
        for run_id, key, child, _ in rows
        if child is not None
        for e in [by_id[child]]
    ]
    await end_waits(db, results, done)
    freed = [row[3] for row in rows if row[3] is not None]
    if freed:
        await wake_queued(db, freed, endings[-1].completed_at, done)


async def end_waits(db: asyncpg.Connection, results: Sequence[Result], done: Committed) -> None:
    """End waits that are still open, and make their runs due."""
    if not results:
        return
    await db.fetch(
        f"""WITH given AS MATERIALIZED ({_RESULTS.sql}), ended AS ({END_GIVEN})
           UPDATE runs r SET due_at = e.ended_at
           FROM (SELECT run_id, min(ended_at) AS ended_at FROM ended GROUP BY run_id) e
           WHERE r.id = ANY(ARRAY(SELECT run_id FROM given)) AND r.id = e.run_id
             AND r.status IN ('running', 'waiting')
             AND (r.due_at IS NULL OR r.due_at > e.ended_at)""",
        *_RESULTS.pack(results),
    )
    done.due = True


class Tree(NamedTuple):
    """A run that a cancellation reaches, and the run that was asked for."""

    root: str
    workspace_id: str
    run_id: str
    status: str
    owner: str | None
    completed_at: int | None

    @property
    def living(self) -> bool:
        return self.status not in ENDED


async def trees(db: asyncpg.Connection, changes: Sequence[CancelRun]) -> list[Tree]:
    """The runs to be cancelled with all that is below them."""
    asked = [change for change in changes if packable(change.run_id)]
    rows = await db.fetch(
        """WITH RECURSIVE tree (root, id) AS (
               SELECT r.id, r.id FROM runs r
               JOIN unnest($1::text[], $2::text[]) AS g (run_id, workspace_id)
                 ON r.id = g.run_id AND r.workspace_id = g.workspace_id
               WHERE r.id = ANY($1)
               UNION
               SELECT t.root, r.id FROM tree t CROSS JOIN LATERAL (
                   SELECT id FROM runs WHERE parent_run_id = t.id OFFSET 0) r)
           SELECT t.root, r.workspace_id, r.id, r.status, r.owner, r.completed_at
           FROM tree t CROSS JOIN LATERAL (SELECT * FROM runs WHERE id = t.id OFFSET 0) r""",
        [change.run_id for change in asked],
        [change.workspace_id for change in asked],
    )
    return [Tree(*row) for row in rows]


async def cancel_runs(
    db: asyncpg.Connection, found: list[tuple[int, CancelRun]], done: Committed
) -> None:
    """End trees that are locked, as they are by now."""
    by_root: dict[tuple[str, str], list[Tree]] = {}
    for run in await trees(db, [change for _, change in found]):
        by_root.setdefault((run.root, run.workspace_id), []).append(run)
    endings: dict[str, Ending] = {}
    for index, change in found:
        tree = by_root.get((change.run_id, change.workspace_id), [])
        root = next((run for run in tree if run.run_id == change.run_id), None)
        if root is None or not root.living or root.run_id in endings:
            done.outcomes[index] = (
                None if root is None else change.did(root.status, root.completed_at)
            )
            continue
        for run in tree:
            if run.living and run.run_id not in endings:
                at = change.cancelled_at
                endings[run.run_id] = Ending(run.run_id, "cancelled", None, None, at)
                done.stopped.append((run.run_id, run.owner))
        done.outcomes[index] = True
    await finish(db, list(endings.values()), done)

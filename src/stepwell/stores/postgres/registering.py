"""Making versions of definitions known on PostgreSQL, and bringing their limits up to date."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from stepwell.kernel.changes import Committed
from stepwell.kernel.limits import UNLIMITED, definition_limit
from stepwell.record import VersionRow
from stepwell.stores.paces import QUEUED, THROTTLES, Repaced
from stepwell.stores.postgres.limits import wake_queued
from stepwell.stores.postgres.locking import limit_name, lock_names
from stepwell.stores.rules import check_names


async def register(
    db: asyncpg.Connection, workspace_id: str, versions: Sequence[VersionRow], now: int,
    done: Committed, paces: Sequence[Repaced] = (),
) -> None:  # fmt: skip
    """Write versions down, inside a transaction of the caller's.

    `paces` are what is new for runs that are queued, if that is one version.
    """
    taken = await db.fetch(
        "SELECT name FROM definitions WHERE workspace_id = $1 AND name = ANY($2)",
        workspace_id,
        [each.name for each in versions if each.kind == "code"],
    )
    check_names(row[0] for row in taken)
    names = {definition_limit(workspace_id, d.name): d.name for d in versions}
    if names:
        await lock_names(db, {limit_name(key): True for key in names}, [])
    if paces:
        await _pace(db, workspace_id, versions[0].name, paces, now)
    # In order, so that processes that start at the same time do not wait for each other in turn.
    await db.executemany(
        """INSERT INTO versions VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
           ON CONFLICT (workspace_id, name, version) DO UPDATE SET
               kind = $4, program = $5, retention_seconds = $6, max_concurrent_runs = $7,
               deadline_seconds = $8, revision = $9, label = $10, max_queued_runs = $11""",
        [
            (workspace_id, d.name, d.version, d.kind, d.program, d.retention_seconds,
             d.max_concurrent_runs, d.deadline_seconds, d.revision, d.label, d.max_queued_runs)
            for d in sorted(versions, key=lambda d: (d.name, d.version))
        ],
    )  # fmt: skip
    if names:
        await db.execute(
            """UPDATE limits l SET capacity = coalesce(
                   (SELECT max_concurrent_runs FROM versions
                    WHERE workspace_id = $3 AND name = g.name ORDER BY version DESC LIMIT 1), $4)
               FROM unnest($1::text[], $2::text[]) AS g (key, name)
               WHERE l.limit_key = g.key AND l.capacity IS NOT NULL""",
            list(names),
            list(names.values()),
            workspace_id,
            UNLIMITED,
        )
        await wake_queued(db, list(names), now, done)


async def _pace(
    db: asyncpg.Connection, workspace_id: str, name: str, paces: Sequence[Repaced], now: int
) -> None:
    """Let queued runs stand under what is published now."""
    # Only what belongs to runs that are locked is changed: a claim has locked its runs, and must
    # not have to wait for a row of theirs.
    any_of = " OR ".join(f"({each.where})" for each in paces)
    rows = await db.fetch(
        f"""SELECT id FROM runs r WHERE {QUEUED}
               AND EXISTS (SELECT FROM limits WHERE run_id = r.id AND ({any_of}))
            ORDER BY id FOR NO KEY UPDATE""",
        workspace_id,
        name,
    )
    ids = [row[0] for row in rows]
    for where, sets, first, end in paces:
        await db.execute(
            f"""UPDATE limits SET {sets}
                WHERE limit_key >= $1 AND limit_key < $2 AND run_id = ANY($3) AND {where}""",
            first,
            end,
            ids,
        )
    # Who was called for a turn of the old throttle is called anew, by the next sweep.
    await db.execute(
        """UPDATE runs SET due_at = NULL
           WHERE id = ANY($1) AND blocked_on >= $2 AND blocked_on < $3 AND due_at > $4""",
        ids,
        *THROTTLES,
        now,
    )

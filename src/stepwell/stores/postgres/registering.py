"""Making versions of definitions known on PostgreSQL, and bringing their limits up to date."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from stepwell.kernel.changes import Committed
from stepwell.kernel.limits import UNLIMITED, definition_limit
from stepwell.record import VersionRow
from stepwell.stores.postgres.limits import wake_queued
from stepwell.stores.postgres.locking import limit_name, lock_names
from stepwell.stores.rules import check_names


async def register(
    db: asyncpg.Connection, workspace_id: str, versions: Sequence[VersionRow], now: int,
    done: Committed,
) -> None:  # fmt: skip
    """Write versions down, inside a transaction of the caller's."""
    taken = await db.fetch(
        "SELECT name FROM definitions WHERE workspace_id = $1 AND name = ANY($2)",
        workspace_id,
        [each.name for each in versions if each.kind == "code"],
    )
    check_names(row[0] for row in taken)
    names = {definition_limit(workspace_id, d.name): d.name for d in versions}
    if names:
        await lock_names(db, {limit_name(key): True for key in names}, [])
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

"""Making versions of definitions known on SQLite, and bringing their limits up to date."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from stepwell.kernel.changes import Committed
from stepwell.kernel.limits import UNLIMITED, definition_limit
from stepwell.record import VersionRow
from stepwell.stores.rules import check_names
from stepwell.stores.sqlite.limits import wake_queued
from stepwell.stores.sqlite.rows import all_rows, pack, run


def register(
    db: apsw.Connection, workspace_id: str, versions: Sequence[VersionRow], now: int,
    done: Committed,
) -> None:  # fmt: skip
    """Write versions down, inside a transaction of the caller's."""
    code = pack([each.name for each in versions if each.kind == "code"])
    taken = all_rows(
        db,
        """SELECT name FROM definitions
           WHERE workspace_id = ? AND name IN (SELECT value FROM json_each(?))""",
        workspace_id,
        code,
    )
    check_names(row[0] for row in taken)
    for each in versions:
        run(
            db,
            "INSERT OR REPLACE INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            workspace_id, each.name, each.version, each.kind, each.program,
            each.retention_seconds, each.max_concurrent_runs, each.deadline_seconds,
            each.revision, each.label, each.max_queued_runs,
        )  # fmt: skip
    for name in {each.name for each in versions}:
        key = definition_limit(workspace_id, name)
        run(
            db,
            """UPDATE limits SET capacity = coalesce(
                   (SELECT max_concurrent_runs FROM versions
                    WHERE workspace_id = ? AND name = ? ORDER BY version DESC LIMIT 1), ?)
               WHERE limit_key = ? AND capacity IS NOT NULL""",
            workspace_id,
            name,
            UNLIMITED,
            key,
        )
        wake_queued(db, key, now, done)

"""Making versions of definitions known on SQLite, and bringing their limits up to date."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from stepwell.kernel.changes import Committed
from stepwell.kernel.limits import UNLIMITED, definition_limit
from stepwell.record import VersionRow
from stepwell.stores.paces import QUEUED, THROTTLES, Repaced
from stepwell.stores.rules import check_names
from stepwell.stores.sqlite.limits import wake_queued
from stepwell.stores.sqlite.rows import all_rows, pack, run


def register(
    db: apsw.Connection, workspace_id: str, versions: Sequence[VersionRow], now: int,
    done: Committed, paces: Sequence[Repaced] = (),
) -> None:  # fmt: skip
    """Write versions down, inside a transaction of the caller's.

    `paces` are what is new for runs that are queued, if that is one version.
    """
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
    if paces:
        _pace(db, workspace_id, versions[0].name, paces, now)
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


def _pace(
    db: apsw.Connection, workspace_id: str, name: str, paces: Sequence[Repaced], now: int
) -> None:
    """Let queued runs stand under what is published now."""
    queued = f"IN (SELECT id FROM runs WHERE {QUEUED.replace('$', '?')})"
    for where, sets, first, end in paces:
        run(
            db,
            f"""UPDATE limits SET {sets} WHERE limit_key >= ?3 AND limit_key < ?4
                   AND run_id {queued} AND {where}""",
            workspace_id,
            name,
            first,
            end,
        )
    # Who was called for a turn of the old throttle is called anew, by the next sweep.
    run(
        db,
        f"""UPDATE runs SET due_at = NULL
            WHERE blocked_on >= ?3 AND blocked_on < ?4 AND due_at > ?5 AND id {queued}""",
        workspace_id,
        name,
        *THROTTLES,
        now,
    )

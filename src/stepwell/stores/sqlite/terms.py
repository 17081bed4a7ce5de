"""Filing runs on SQLite under what their inputs say."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from stepwell.kernel.changes import StartRun
from stepwell.stores.sqlite.rows import run, run_rows


def file_terms(db: apsw.Connection, starts: Sequence[StartRun]) -> None:
    """Let the runs that are there be found by what their inputs say."""
    run_rows(
        db,
        """WITH s (id, workspace_id, term) AS (VALUES {rows})
           INSERT OR IGNORE INTO terms (run_id, workspace_id, term)
           SELECT * FROM s WHERE EXISTS (SELECT 1 FROM runs WHERE id = s.id)""",
        [(s.id, s.workspace_id, term) for s in starts for term in s.terms],
    )


def refile(db: apsw.Connection, run_id: str, change: StartRun) -> None:
    """The same for a run that gets the input of another start."""
    run(db, "DELETE FROM terms WHERE run_id = ?", run_id)
    rows = [(run_id, change.workspace_id, term) for term in change.terms]
    run_rows(db, "INSERT INTO terms (run_id, workspace_id, term) VALUES {rows}", rows)

"""The database of all simulations of a process, emptied for each: its statements stay prepared."""

from __future__ import annotations

from functools import cache

import apsw

from stepwell.kernel.states import TRANSITIONS
from stepwell.stores.sqlite.store import apply_migrations, new_connection


def pristine_database() -> apsw.Connection:
    """The database as it was before the first simulation."""
    db, tables = _made()
    if db.in_transaction:
        db.execute("ROLLBACK")
    for table in tables:
        db.execute(f"DELETE FROM main.{table}")
        db.execute(f"INSERT INTO main.{table} SELECT * FROM pristine.{table}")
    return db


@cache
def _made() -> tuple[apsw.Connection, list[str]]:
    """A store that refuses illegal changes of status, beside what its tables hold at first."""
    db = new_connection(":memory:", apsw.SQLITE_OPEN_READWRITE)
    apply_migrations(db)
    legal = " OR ".join(
        f"(OLD.status = '{before}' AND NEW.status = '{after}')"
        for before, following in TRANSITIONS.items()
        for after in following
    )
    db.execute(
        f"""CREATE TRIGGER legal_transitions BEFORE UPDATE OF status ON runs
            WHEN NOT ({legal})
            BEGIN SELECT RAISE(ABORT, 'illegal change of status'); END"""
    )
    db.execute("ATTACH ':memory:' AS pristine")
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    for table in tables:
        db.execute(f"CREATE TABLE pristine.{table} AS SELECT * FROM main.{table}")
    return db, tables

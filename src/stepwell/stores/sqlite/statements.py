"""Statements for records on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apsw

from stepwell.kernel.changes import Change, Committed
from stepwell.kernel.clock import Clock
from stepwell.record import VersionRow
from stepwell.stores.paces import Repaced
from stepwell.stores.sqlite.apply import apply_within
from stepwell.stores.sqlite.line import Line
from stepwell.stores.sqlite.registering import register
from stepwell.stores.sqlite.rows import all_rows, numbered, run, writing
from stepwell.stores.sqlite.waiting import LAST_PLACE
from stepwell.stores.statements import Statement, checked, nothing_more, overtaken


class SqliteStatements:
    """Executes the statements that records are made of."""

    # Without a sequence, places begin anew when nothing is pending: but behind all triggers.
    next_place = f"(SELECT {LAST_PLACE.format(workspace='$1')} + 1)"

    def __init__(self, read: Line, write: Line, clock: Clock) -> None:
        self._read = read
        self._write = write
        self._clock = clock

    async def fetch(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        return await self._read.run(lambda db: all_rows(db, numbered(sql), *values))

    async def amend(
        self, statements: Sequence[Statement], *, changes: Sequence[Change] = (),
        then: Callable[[Committed], Sequence[Statement]] = nothing_more,
        workspace_id: str = "", version: VersionRow | None = None,
        paces: Sequence[Repaced] = (),
    ) -> Committed:  # fmt: skip
        def work(db: apsw.Connection) -> Committed:
            with writing(db):
                _execute(db, statements)
                done = apply_within(db, changes) if changes else Committed([])
                _execute(db, then(done))
                if version is not None:
                    register(db, workspace_id, [version], self._clock.now(), done, paces)
            return done

        try:
            return await self._write.run(work)
        except apsw.ConstraintError as error:
            raise overtaken() from error


def _execute(db: apsw.Connection, statements: Sequence[Statement]) -> None:
    for statement in statements:
        run(db, numbered(statement.sql), *statement.values)
        checked(statement, db.changes())

"""Statements for records on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import asyncpg

from stepwell.kernel.changes import Change, Committed
from stepwell.kernel.clock import Clock
from stepwell.record import VersionRow
from stepwell.stores.paces import Repaced
from stepwell.stores.postgres.apply import apply_within
from stepwell.stores.postgres.connections import Pool
from stepwell.stores.postgres.registering import register
from stepwell.stores.statements import Statement, checked, nothing_more, overtaken


class PostgresStatements:
    """Executes the statements that records are made of."""

    next_place = "nextval('events_places')"

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock

    async def fetch(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        rows: list[Any] = await self._pool.run(lambda db: db.fetch(sql, *values))
        return rows

    async def amend(
        self, statements: Sequence[Statement], *, changes: Sequence[Change] = (),
        then: Callable[[Committed], Sequence[Statement]] = nothing_more,
        workspace_id: str = "", version: VersionRow | None = None,
        paces: Sequence[Repaced] = (),
    ) -> Committed:  # fmt: skip
        async def work(db: asyncpg.Connection) -> Committed:
            async with db.transaction():
                # Records first: who was overtaken has not locked a run, which a claim that came
                # just then would have left alone.
                await _execute(db, statements)
                done = await apply_within(db, changes, self._clock) if changes else Committed([])
                await _execute(db, then(done))
                if version is not None:
                    await register(db, workspace_id, [version], self._clock.now(), done, paces)
            return done

        try:
            return await self._pool.run(work)
        except asyncpg.UniqueViolationError as error:
            raise overtaken() from error


async def _execute(db: asyncpg.Connection, statements: Sequence[Statement]) -> None:
    for statement in statements:
        told = await db.execute(statement.sql, *statement.values)
        checked(statement, int(told.rpartition(" ")[2]))

"""Rows that a transaction outside of Stepwell holds: telling which, and not waiting for long."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from stepwell.kernel.changes import Change, run_ids_of
from stepwell.kernel.clock import SECOND, Clock
from stepwell.stores.postgres.columns import packable
from stepwell.stores.postgres.connections import WRITER_SETTINGS, Line

# Once somebody was found to hold something, nobody waits for as long again for some time: every
# retry of what is blocked holds up all the others of this process.
WARY_SECONDS = 20
WARY_LOCK_TIMEOUT = "50"


class Obstacles:
    """How long a batch waits for locks, and what it waited for in vain."""

    def __init__(self, line: Line, clock: Clock) -> None:
        self._line = line
        self._clock = clock
        self._wary_until: int | None = None

    async def before_batch(self) -> None:
        """Be as patient as usual again, if nothing was in the way for some time."""
        if self._wary_until is not None and self._clock.now() > self._wary_until:
            self._wary_until = None
            await self._wait_for_locks(WRITER_SETTINGS["lock_timeout"])

    async def met(self, batch: Sequence[Change]) -> set[str]:
        """The batch waited too long; the runs that somebody holds, if it is runs."""
        if self._wary_until is None:
            await self._wait_for_locks(WARY_LOCK_TIMEOUT)
        self._wary_until = self._clock.now() + WARY_SECONDS * SECOND
        run_ids = {run_id for change in batch for run_id in run_ids_of(change) if packable(run_id)}
        try:
            rows = await self._line.run(
                lambda db: db.fetch(
                    """WITH free AS MATERIALIZED (
                           SELECT id FROM runs WHERE id = ANY($1) ORDER BY id
                           FOR NO KEY UPDATE SKIP LOCKED)
                       SELECT id FROM runs
                       WHERE id = ANY($1) AND id NOT IN (SELECT id FROM free)""",
                    list(run_ids),
                )
            )
        except asyncpg.LockNotAvailableError:  # somebody holds the whole table
            return set()
        return {row[0] for row in rows}

    async def _wait_for_locks(self, milliseconds: str) -> None:
        async def work(db: asyncpg.Connection) -> None:
            await db.execute(f"SET lock_timeout = {milliseconds}")

        await self._line.run(work)

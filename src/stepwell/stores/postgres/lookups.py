"""Looking up runs by id: all who ask while a query is under way share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from stepwell.errors import StoreUnavailable
from stepwell.kernel.run import Run
from stepwell.stores.postgres import reads
from stepwell.stores.postgres.columns import packable
from stepwell.stores.postgres.connections import Pool

MAX_BATCH = 500

Wanted = tuple[str, str]


class Lookups:
    """Gathers lookups as the writer gathers changes: a thousand at once are a few queries."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._pending: list[tuple[Wanted, asyncio.Future[Run | None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def get(self, workspace_id: str, run_id: str) -> Run | None:
        if not packable(run_id):
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Run | None] = loop.create_future()
        self._pending.append(((workspace_id, run_id), future))
        if self._task is None:
            self._task = loop.create_task(self._answer_all())
        return await future

    async def _answer_all(self) -> None:
        asked: list[tuple[Wanted, asyncio.Future[Run | None]]] = []
        try:
            while self._pending:
                asked, self._pending = self._pending[:MAX_BATCH], self._pending[MAX_BATCH:]
                wanted = [pair[0] for pair in asked]
                try:
                    found = await self._pool.run(partial(reads.get_runs, wanted=wanted))
                except Exception as error:
                    _refuse(asked, error)
                else:
                    _answer(asked, found)
        finally:
            self._task = None
            _refuse([*asked, *self._pending], StoreUnavailable("This store is closed."))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _answer(
    asked: list[tuple[Wanted, asyncio.Future[Run | None]]], found: Mapping[Wanted, Run]
) -> None:
    for wanted, future in asked:
        if not future.done():
            future.set_result(found.get(wanted))


def _refuse(asked: list[tuple[Wanted, asyncio.Future[Run | None]]], error: Exception) -> None:
    for _, future in asked:
        if not future.done():
            future.set_exception(error)

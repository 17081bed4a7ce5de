"""Premises: what all workspaces share that are open in one process and on one store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stepwell.app.observing import tracing_of
from stepwell.engine.dispatcher import Dispatcher
from stepwell.engine.ending import Endings
from stepwell.engine.observer import Observer
from stepwell.engine.room import Room
from stepwell.engine.writer import Writer
from stepwell.kernel.ids import Ids
from stepwell.settings import Settings
from stepwell.store import Store
from stepwell.telemetry import Telemetry, told_to_all


class Premises:
    """A store with its writer, and those who are told of commits."""

    def __init__(
        self, store: Store, settings: Settings, telemetry: Sequence[Telemetry] = (),
        ids: Ids | None = None, room: Room | None = None,
    ) -> None:  # fmt: skip
        self.store = store
        self.ids = ids or Ids(store.clock)
        # For the workers of all workspaces together; None if each has its own.
        self.room = room
        self._tracing = tracing_of(settings, telemetry)
        self.telemetry = told_to_all([*telemetry, *self._tracing])
        self.endings = Endings(store)
        self.observer = Observer(store, self.telemetry)
        shared = settings.max_runs_in_all is not None
        self.dispatcher = Dispatcher(store, self.endings, self.observer, shared=shared)
        self.writer = Writer(store, self.dispatcher.heard)

    async def open(self) -> None:
        await self.store.open()
        self.writer.open()

    async def finish(self) -> None:
        """Commit what is left; nothing more is written, nor waited for."""
        await self.writer.close()
        await self.endings.close()

    async def close(self) -> None:
        """Tell what is left to be told, then leave the store."""
        await self.observer.close()
        for each in self._tracing:
            await asyncio.to_thread(each.close)
        await self.store.close()

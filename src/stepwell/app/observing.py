"""What others may observe of a Stepwell that is open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from stepwell.engine.dispatcher import Dispatcher
from stepwell.store import Store


class Observing:
    """One workspace in this process, as telemetry sees it."""

    def __init__(self, store: Store, workspace_id: str, dispatcher: Dispatcher) -> None:
        self._store = store
        self.workspace = workspace_id
        self._dispatcher = dispatcher

    def in_flight(self) -> Mapping[str, int]:
        """How many runs of each definition are being executed here."""
        workers = self._dispatcher.workers
        return Counter(name for worker in workers for name in worker.definitions)

    async def queue_depth(self) -> int:
        """How many runs are due and taken up by nobody."""
        now = self._store.clock.now()
        return (await self._store.unclaimed(self.workspace, now))[0]

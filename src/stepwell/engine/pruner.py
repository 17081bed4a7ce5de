"""The pruner: deletes runs whose retention has passed, and old events, refusals and documents."""

from __future__ import annotations

from stepwell.kernel.clock import SECOND
from stepwell.store import Store
from stepwell.telemetry import Telemetry

INTERVAL_SECONDS = 300.0
# What is deleted at a time: so many runs or events, and of runs so many rows. Heartbeats wait
# for it on SQLite, so it must not take long.
BATCH = 500
ROWS = 5_000
# How far back a `lookback` can reach, how long `once` remembers, and refusals are shown.
EVENTS_SECONDS = 7 * 86_400
# How long a start may take from keeping its document to its commit, and more.
DOCUMENTS_SECONDS = 86_400
DOCUMENTS = 50


async def prune_once(store: Store) -> int:
    """Delete everything that is due for deletion now; how many runs there were."""
    now, total = store.clock.now(), 0
    while deleted := await store.prune(now, BATCH, ROWS):
        total += deleted
    while await _prune_old(store, now):
        pass
    return total


class Pruner:
    """Prunes every few minutes, one process at a time across all."""

    interval_seconds = INTERVAL_SECONDS
    fires = False

    def __init__(self, store: Store, own_id: str, telemetry: Telemetry) -> None:
        self._store = store
        self._own_id = own_id
        self._telemetry = telemetry

    async def run_once(self) -> int | None:
        """Delete everything that is due for deletion, unless somebody else does."""
        now, left = self._store.clock.now(), True
        # The duty is taken anew for each batch: a long pass must not outlast it.
        while left and await self._store.take_duty("prune", self._own_id, INTERVAL_SECONDS):
            deleted = await self._store.prune(now, BATCH, ROWS)
            self._telemetry.runs_swept(deleted)
            left = bool(deleted or await _prune_old(self._store, now))
        return None


async def _prune_old(store: Store, now: int) -> int:
    """Delete some of what nobody asks for any more; 0 when nothing is left."""
    week_ago = now - EVENTS_SECONDS * SECOND
    deleted = await store.prune_events(week_ago, BATCH)
    deleted += await store.triggers.prune_refusals(week_ago, BATCH)
    deleted += await store.triggers.prune_buckets(now, BATCH)
    deleted += await store.triggers.prune_turns(now, BATCH)
    before = now - DOCUMENTS_SECONDS * SECOND
    return deleted + await store.records.prune_documents(before, now, DOCUMENTS)

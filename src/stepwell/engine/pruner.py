"""The pruner: deletes runs whose retention has passed, and old events and documents."""

from __future__ import annotations

import logging

from stepwell.kernel.clock import SECOND, sleep
from stepwell.store import Store

log = logging.getLogger("stepwell.pruner")

INTERVAL_SECONDS = 300.0
# What is deleted at a time: so many runs or events, and of runs so many rows. Heartbeats wait
# for it on SQLite, so it must not take long.
BATCH = 500
ROWS = 5_000
# How far back a `lookback` can reach, and how long `once` remembers.
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


async def prune_now_and_then(store: Store, worker_id: str) -> None:
    """Prune every few minutes, one worker at a time across all processes."""
    while True:
        await sleep(store.clock, INTERVAL_SECONDS)
        now, left = store.clock.now(), True
        try:
            # The duty is taken anew for each batch: a long pass must not outlast it.
            while left and await store.take_duty("prune", worker_id, INTERVAL_SECONDS):
                left = bool(await store.prune(now, BATCH, ROWS) or await _prune_old(store, now))
        except Exception as error:
            log.warning("Pruning failed and is tried again later: %r", error)


async def _prune_old(store: Store, now: int) -> int:
    """Delete some of what nobody asks for any more; 0 when nothing is left."""
    events = await store.prune_events(now - EVENTS_SECONDS * SECOND, BATCH)
    before = now - DOCUMENTS_SECONDS * SECOND
    return events + await store.records.prune_documents(before, now, DOCUMENTS)

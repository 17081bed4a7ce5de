"""The pruner: deletes runs whose retention has passed."""

from __future__ import annotations

import logging

from stepwell.kernel.clock import sleep
from stepwell.store import Store

log = logging.getLogger("stepwell.pruner")

INTERVAL_SECONDS = 300.0
BATCH = 500


async def prune_once(store: Store) -> int:
    """Delete everything that is due for deletion now; how many runs there were."""
    now, total = store.clock.now(), 0
    while deleted := await store.prune(now, BATCH):
        total += deleted
    return total


async def prune_now_and_then(store: Store, worker_id: str) -> None:
    """Prune every few minutes, one worker at a time across all processes."""
    while True:
        await sleep(store.clock, INTERVAL_SECONDS)
        try:
            if await store.take_duty("prune", worker_id, INTERVAL_SECONDS):
                await prune_once(store)
        except Exception as error:
            log.warning("Pruning failed and is tried again later: %r", error)

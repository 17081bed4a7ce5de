"""The reconciler: sees to runs whose worker is gone, and to those whose time is up.

Workers do that whenever they claim. A process that has none does it too, so that what is late ends
on time, and what a dead worker held is free, also while no worker is there.
"""

from __future__ import annotations

from collections.abc import Callable

from stepwell.kernel.changes import Committed
from stepwell.store import Store


class Reconciler:
    """Sweeps while this process has no worker that would."""

    interval_seconds = 5.0
    fires = False

    def __init__(
        self, store: Store, changed: Callable[[Committed], None], has_workers: Callable[[], bool]
    ) -> None:
        self._store = store
        self._changed = changed
        self._has_workers = has_workers

    async def run_once(self) -> int | None:
        """Sweep once, unless a worker of this process does."""
        if not self._has_workers():
            self._changed(await self._store.sweep())
        return None

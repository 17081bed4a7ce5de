"""The reconciler: sees to runs whose worker is gone, and to runs and gates whose time is up.

Workers do that whenever they claim, and runs do it for their gates. A process that has no worker
does it too, so that what is late ends on time, what a dead worker held is free, and a gate that
nobody can decide about any more is not open, also while no worker is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from stepwell.errors import Overtaken
from stepwell.kernel import gates
from stepwell.kernel.changes import Committed
from stepwell.store import Store

BATCH = 100


class Reconciler:
    """Sweeps while this process has no worker that would."""

    interval_seconds = 5.0
    fires = False

    def __init__(
        self, store: Store, workspace_id: str, changed: Callable[[Committed], None],
        has_workers: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._store = store
        self._workspace_id = workspace_id
        self._changed = changed
        self._has_workers = has_workers

    async def run_once(self) -> int | None:
        """Sweep once, unless a worker of this process does."""
        if not self._has_workers():
            self._changed(await self._store.sweep())
            await self._close_gates()
        return None

    async def _close_gates(self) -> None:
        records, now = self._store.records, self._store.clock.now()
        while late := await records.late_gates(self._workspace_id, now, BATCH):
            for gate in late:
                # Its run finds it so when it goes on, or has closed it just now.
                with contextlib.suppress(Overtaken):
                    await records.change_gate(self._workspace_id, gates.expired(gate))

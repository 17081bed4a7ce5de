"""Leases: a worker's own, and those of neighbours whose process is gone."""

from __future__ import annotations

import os

from stepwell.engine.host import host_name, process_gone, process_started
from stepwell.store import Store, WorkerRow


async def enlist(
    store: Store, worker_id: str, workspace_id: str, programs: list[str],
    concurrency: int, lease_seconds: float,
) -> None:  # fmt: skip
    """Begin the lease of a worker in this process."""
    await store.enlist(
        WorkerRow(
            id=worker_id,
            workspace_id=workspace_id,
            host=host_name(),
            pid=os.getpid(),
            pid_started=process_started(os.getpid()),
            concurrency=concurrency,
            programs=programs,
            started_at=store.clock.now(),
            lease_seconds=lease_seconds,
        )
    )


async def retire_dead_neighbours(store: Store) -> bool:
    """End the leases of processes of this host that are gone; whether there were any."""
    here = host_name()
    dead = [
        worker_id
        for worker_id, host, pid, started in await store.worker_processes()
        if host == here and process_gone(pid, started)
    ]
    if dead:
        await store.retire(dead)
    return bool(dead)

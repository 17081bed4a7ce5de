"""Workers: the processes that execute runs, as they last reported themselves."""

from __future__ import annotations

import builtins
from datetime import datetime

import msgspec

from stepwell.kernel.clock import SECOND, moment
from stepwell.kernel.run import WorkerInfo
from stepwell.operation import Noun, Workspace, operation

# A run that is due is usually taken within a moment.
UNCLAIMED_SECONDS = 10


class WorkerHealth(msgspec.Struct, frozen=True):
    """How the workers are, and whether runs wait for one."""

    alive: int
    last_heartbeat_at: datetime | None
    # Runs that have been due for some seconds without anybody taking them, and the oldest.
    unclaimed: int
    oldest_unclaimed: str | None
    looked_at: datetime


class Workers(Noun):
    """The workers of a workspace."""

    noun = "workers"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._engine = workspace.engine

    @operation("GET /workers", needs="read")
    async def list(self) -> builtins.list[WorkerInfo]:
        """The workers that have a lease, or runs left from one."""
        return await self._engine.workers()

    @operation("GET /workers/health", needs="read")
    async def health(self) -> WorkerHealth:
        """How many workers are alive, when one was last heard of, and which runs wait for one."""
        workers = await self._engine.workers()
        now = self._workspace.clock.now()
        unclaimed, oldest = await self._workspace.store.unclaimed(
            self._workspace.id, now - UNCLAIMED_SECONDS * SECOND
        )
        return WorkerHealth(
            alive=sum(each.alive for each in workers),
            last_heartbeat_at=max((each.heartbeat_at for each in workers), default=None),
            unclaimed=unclaimed,
            oldest_unclaimed=oldest,
            looked_at=moment(now),
        )

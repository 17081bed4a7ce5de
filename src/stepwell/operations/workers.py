"""Workers: the processes that execute runs, as they last reported themselves."""

from __future__ import annotations

import builtins

from stepwell.kernel.run import WorkerInfo
from stepwell.operation import Noun, Workspace, operation


class Workers(Noun):
    """The workers of a workspace."""

    noun = "workers"

    def __init__(self, workspace: Workspace) -> None:
        self._engine = workspace.engine

    @operation("GET /workers", needs="read")
    async def list(self) -> builtins.list[WorkerInfo]:
        """The workers that have a lease, or runs left from one."""
        return await self._engine.workers()

"""A host: the workspaces of one store, each opened when it is first needed, and their workers."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from stepwell.app.beginnings import publish_samples
from stepwell.app.doorkeeper import WORKSPACE, Doorkeeper
from stepwell.app.stepwell import Stepwell
from stepwell.engine.worker import Worker
from stepwell.errors import WorkspaceNotFound
from stepwell.kernel.clock import sleep
from stepwell.kernel.ids import Ids
from stepwell.settings import Settings
from stepwell.telemetries.prometheus import Prometheus

log = logging.getLogger("stepwell.host")

# How often a host looks for workspaces that others have made.
LOOK_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Shape:
    """How a host works."""

    workflows: tuple[Any, ...] = ()
    functions: tuple[Any, ...] = ()
    # None: it executes nothing itself.
    worker: dict[str, Any] | None = field(default_factory=dict)


class Host:
    """Opens workspaces, and executes their runs if it has workers."""

    # The workspace that there always is.
    first_id = WORKSPACE

    def __init__(self, url: str, shape: Shape, settings: Settings) -> None:
        self._url = url
        self._shape = shape
        self.settings = settings
        self._open: dict[str, Stepwell] = {}
        # By workspace, if it executes anything.
        self.workers: dict[str, Worker] = {}
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._looking: asyncio.Task[None] | None = None
        # Of all workspaces together.
        self.metrics = Prometheus()
        self.ids: Ids
        self.doorkeeper: Doorkeeper

    async def __aenter__(self) -> Host:
        try:
            first = await self._enter(self.first_id)
            self.ids = Ids(first.store.clock)
            self.doorkeeper = Doorkeeper(first.store, first.store.clock, self.ids)
            await self._look()
        except BaseException:
            await self._stack.aclose()
            raise
        if self._shape.worker is not None:
            self._looking = asyncio.create_task(self._keep_looking())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._stack.aclose()

    async def begin(self) -> None:
        """Make the first owner, and something to look at, if nobody has yet: a server does."""
        if await self.doorkeeper.first_start() is not None:
            await publish_samples(self.first)

    @property
    def first(self) -> Stepwell:
        """The workspace that there always is."""
        return self._open[self.first_id]

    async def workspace(self, workspace_id: str) -> Stepwell:
        """A workspace that there is, open."""
        found = self._open.get(workspace_id)
        if found is not None:
            return found
        async with self._opening:
            if workspace_id in self._open:
                return self._open[workspace_id]
            if workspace_id not in await self.first.store.access.workspace_ids():
                raise WorkspaceNotFound(f"There is no workspace {workspace_id!r}.")
            return await self._enter(workspace_id)

    async def _enter(self, workspace_id: str) -> Stepwell:
        shape = self._shape
        stepwell = Stepwell(
            self._url, shape.workflows, functions=shape.functions, workspace=workspace_id,
            settings=self.settings, telemetry=[self.metrics],
        )  # fmt: skip
        await self._stack.enter_async_context(stepwell)
        if shape.worker is not None:
            working = stepwell.worker(**shape.worker)
            self.workers[workspace_id] = await self._stack.enter_async_context(working)
        self._open[workspace_id] = stepwell
        return stepwell

    async def _look(self) -> None:
        """Open all workspaces, so that their runs are executed."""
        if self._shape.worker is None:
            return
        for workspace_id in await self.first.store.access.workspace_ids():
            await self.workspace(workspace_id)

    async def _keep_looking(self) -> None:
        while True:
            await sleep(self.first.store.clock, LOOK_SECONDS)
            try:
                await self._look()
            except Exception:  # the store may be away for a while
                log.exception("New workspaces could not be looked for.")

"""A host: the workspaces of one store, each opened when it is first needed, and their workers.

They share the store with its connections, the writer, what is told of them, and the room for runs:
a workspace more costs a process little.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from stepwell.app.beginnings import publish_samples
from stepwell.app.doorkeeper import WORKSPACE, Doorkeeper
from stepwell.app.keys import keyring_for
from stepwell.app.premises import Premises
from stepwell.app.stepwell import Stepwell
from stepwell.catalog import store_for
from stepwell.engine.room import Room
from stepwell.engine.surroundings import nobodys
from stepwell.engine.worker import Worker
from stepwell.engine.writer import ignore_outcome
from stepwell.errors import InvalidName, WorkspaceNotFound
from stepwell.kernel.access import check_workspace_id
from stepwell.kernel.clock import SECOND, SystemClock, sleep
from stepwell.settings import Settings
from stepwell.telemetries.prometheus import Prometheus

log = logging.getLogger("stepwell.host")

# How often a host looks for workspaces that others have made.
LOOK_SECONDS = 15.0
# How many runs a host executes at a time, unless said.
CONCURRENCY = 100
# For how long, and of how many at most, a host remembers that there are no such workspaces.
MISSING, MOST_MISSING = SECOND, 10_000


@dataclass(frozen=True, slots=True)
class Shape:
    """How a host works."""

    workflows: tuple[Any, ...] = ()
    functions: tuple[Any, ...] = ()
    # None: it executes nothing itself. `concurrency` counts the runs of all workspaces together.
    worker: dict[str, Any] | None = field(default_factory=dict)


class Host:
    """Opens workspaces, and executes their runs if it has workers."""

    # The workspace that there always is.
    first_id = WORKSPACE

    def __init__(self, url: str, shape: Shape, settings: Settings) -> None:
        self._url = url
        self._shape = shape
        self.settings = settings
        # Of all workspaces together.
        self.metrics = Prometheus()
        room = Room((shape.worker or {}).get("concurrency", CONCURRENCY))
        keyring_for(settings, url)  # one that is wrong is told of now, and not by the first secret
        store = store_for(url, SystemClock())
        self._premises = Premises(store, settings, [self.metrics], room=room)
        self.ids = self._premises.ids
        self.doorkeeper = Doorkeeper(store, store.clock, self.ids)
        self._open: dict[str, Stepwell] = {}
        # By workspace, if it executes anything.
        self.workers: dict[str, Worker] = {}
        self._opening: dict[str, asyncio.Task[Stepwell]] = {}
        self._stacks: list[AsyncExitStack] = []
        # Ids that no workspace has, and until when they need not be looked up.
        self._missing: dict[str, int] = {}
        self._looking: asyncio.Task[None] | None = None
        self._surroundings = nobodys()
        self._winding_down = False

    async def __aenter__(self) -> Host:
        # Workspaces are opened here and not where a request happens to ask for them first: what
        # they begin goes on for ever, and would be part of that request.
        self._surroundings = nobodys()
        await self._premises.open()
        try:
            await self._opened(self.first_id)
            await self._look()
        except BaseException:
            await self._close()
            raise
        if self._shape.worker is not None:
            self._looking = asyncio.create_task(self._keep_looking())
        return self

    def wind_down(self) -> None:
        """Begin no run any more, and keep nobody waiting: all workers share one grace from now."""
        self._winding_down = True
        if self._looking is not None:
            self._looking.cancel()
        for stepwell in self._open.values():
            stepwell.wind_down()

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _close(self) -> None:
        self.wind_down()
        under_way = [*self._opening.values(), *([self._looking] if self._looking else [])]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        try:
            # At once: each may take as long as its steps in progress are given.
            closing = [stack.aclose() for stack in self._stacks]
            failed = await asyncio.gather(*closing, return_exceptions=True)
            for error in failed:
                if error is not None:
                    raise error
        finally:
            await self._premises.finish()
            await self._premises.close()

    def is_writable(self) -> bool:
        """Whether the store can be written to; what lasts a moment does not count."""
        return not self._premises.writer.away

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
        known = workspace_id in self._open or workspace_id in self._opening
        if not known and await self._premises.store.access.workspace(workspace_id) is None:
            raise WorkspaceNotFound(f"There is no workspace {workspace_id!r}.")
        return await self._opened(workspace_id)

    async def guessed(self, workspace_id: str) -> Stepwell | None:
        """The same by what anybody may have made up; what was wrong is not looked up again."""
        if workspace_id in self._open:
            return self._open[workspace_id]
        now = self._premises.store.clock.now()
        if now < self._missing.get(workspace_id, 0) or not _may_exist(workspace_id):
            return None
        try:
            return await self.workspace(workspace_id)
        except WorkspaceNotFound:
            self._missing.pop(workspace_id, None)
            if len(self._missing) >= MOST_MISSING:
                del self._missing[next(iter(self._missing))]
            self._missing[workspace_id] = now + MISSING
            return None

    async def _opened(self, workspace_id: str) -> Stepwell:
        """A workspace, open; several who need it at the same time have it opened once."""
        if workspace_id in self._open:
            return self._open[workspace_id]
        opening = self._opening.get(workspace_id)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(
                self._enter(workspace_id), context=self._surroundings.copy()
            )
            self._opening[workspace_id] = opening
            opening.add_done_callback(ignore_outcome)
            opening.add_done_callback(lambda _: self._opening.pop(workspace_id))
        return await asyncio.shield(opening)  # whoever asked for it may be gone before it is open

    async def _enter(self, workspace_id: str) -> Stepwell:
        shape = self._shape
        async with AsyncExitStack() as stack:
            stepwell = Stepwell(
                self._url, shape.workflows, functions=shape.functions, workspace=workspace_id,
                settings=self.settings, premises=self._premises,
            )  # fmt: skip
            await stack.enter_async_context(stepwell)
            if shape.worker is not None and not self._winding_down:
                working = stepwell.worker(**shape.worker)
                self.workers[workspace_id] = await stack.enter_async_context(working)
            self._open[workspace_id] = stepwell
            if self._winding_down:  # opened by one of the last requests
                stepwell.wind_down()
            self._stacks.append(stack.pop_all())  # all went well: it stays open
        return stepwell

    async def _look(self) -> None:
        """Open all workspaces, so that their runs are executed."""
        if self._shape.worker is None:
            return
        for workspace_id in await self._premises.store.access.workspace_ids():
            await self._opened(workspace_id)

    async def _keep_looking(self) -> None:
        while True:
            await sleep(self._premises.store.clock, LOOK_SECONDS)
            try:
                await self._look()
            except Exception:  # the store may be away for a while
                log.exception("New workspaces could not be looked for.")


def _may_exist(workspace_id: str) -> bool:
    try:
        check_workspace_id(workspace_id)
    except InvalidName:
        return False
    return True

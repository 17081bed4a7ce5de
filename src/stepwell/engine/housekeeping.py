"""Housekeeping: duties that any process may do, and that several do at the same time unharmed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from stepwell.errors import NotOpen
from stepwell.kernel.clock import SECOND, Clock

log = logging.getLogger("stepwell.housekeeping")

# How long a duty waits that has just failed.
PAUSE_SECONDS = 1.0


class Service(Protocol):
    """One duty."""

    # It is done at least this often, whatever is heard.
    interval_seconds: float
    # Whether it is also done when some trigger may have to fire.
    fires: bool

    async def run_once(self) -> int | None:
        """Do all there is to do now; when there will be more, if that is known."""
        ...


class Housekeeping:
    """Does duties: at their time, and when something is heard that concerns them."""

    def __init__(self, clock: Clock, services: Sequence[Service]) -> None:
        self._clock = clock
        self._services = services
        self._woken = [asyncio.Event() for _ in services]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        create = asyncio.get_running_loop().create_task
        self._tasks = [
            create(self._keep(service, woken))
            for service, woken in zip(self._services, self._woken, strict=True)
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []

    def wake(self) -> None:
        """Some trigger may have to fire."""
        for service, woken in zip(self._services, self._woken, strict=True):
            if service.fires:
                woken.set()

    async def _keep(self, service: Service, woken: asyncio.Event) -> None:
        if not service.fires:  # there is no hurry
            await self._until(self._latest(service.interval_seconds), woken)
        while True:
            woken.clear()
            at: int | None = None
            pause = service.interval_seconds
            try:
                at = await service.run_once()
            except NotOpen:
                return
            except Exception as error:
                log.warning("%s failed and is tried again: %r", type(service).__name__, error)
                pause = PAUSE_SECONDS
            latest = self._latest(pause)
            await self._until(latest if at is None else min(at, latest), woken)

    def _latest(self, pause: float) -> int:
        return self._clock.now() + int(pause * SECOND)

    async def _until(self, at: int, woken: asyncio.Event) -> None:
        """Wait for that time, or until somebody wakes the duty up."""
        timer = self._clock.call_at(at, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

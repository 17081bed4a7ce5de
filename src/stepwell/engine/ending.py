"""Waiting for runs to end: at once when this process ended them, else by looking now and then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from stepwell.engine.failures import run_failure
from stepwell.errors import StepwellError
from stepwell.kernel.clock import SECOND, sleep
from stepwell.kernel.run import Run
from stepwell.store import Store

# The longer a run has been waited for, the less often it is looked at.
FIRST_LOOK, LONGEST_LOOK = 0.02, 0.5


class Endings:
    """Who waits for which run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._task: asyncio.Task[None] | None = None

    def ended(self, run_id: str) -> None:
        """The run has ended: wake whoever waits for it."""
        for future in self._waiting.pop(run_id, ()):
            if not future.done():
                future.set_result(None)

    async def wait(
        self, run_id: str, timeout: float | None, known: Callable[[], Awaitable[Run]]
    ) -> None:
        """Return once the run has ended; TimeoutError if it has not by then."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(run_id, []).append(future)
        timer = None
        if timeout is not None:
            clock = self._store.clock

            def expire() -> None:
                if not future.done():
                    future.set_exception(
                        TimeoutError(f"Run {run_id} has not ended within {timeout:g} s.")
                    )

            timer = clock.call_at(clock.now() + int(timeout * SECOND), expire)
        try:
            if (await known()).ended:
                return
            if self._task is None:
                self._task = loop.create_task(self._look())
            await future
        finally:
            if timer is not None:
                timer.cancel()
            future.cancel()
            waiting = self._waiting.get(run_id, [])
            if future in waiting:
                waiting.remove(future)
                if not waiting:
                    del self._waiting[run_id]

    async def _look(self) -> None:
        """Look for ends that other processes recorded, while anyone waits."""
        pause = FIRST_LOOK
        try:
            while self._waiting:
                await sleep(self._store.clock, pause)
                pause = min(pause * 1.3, LONGEST_LOOK)
                with contextlib.suppress(StepwellError):
                    for run_id in await self._store.ended(list(self._waiting)):
                        self.ended(run_id)
        finally:
            self._task = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    @staticmethod
    def outcome(run: Run) -> Any:
        """The output of a completed run; raises for any other end."""
        if run.status == "completed":
            return run.output
        raise run_failure(run.status, run.id, run.error)

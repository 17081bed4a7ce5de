"""Waiting for runs to end: at once when this process ended them, else by looking now and then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from stepwell.errors import StoreUnavailable
from stepwell.kernel.changes import EndRun
from stepwell.kernel.clock import TimeLimit, sleep
from stepwell.kernel.codec import decode
from stepwell.kernel.outcomes import read_error, run_failure
from stepwell.kernel.run import ErrorInfo, Run
from stepwell.store import Store

log = logging.getLogger("stepwell.ending")

# The longer a run has been waited for, the less often it is looked at.
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
# Looking at many takes long, so it is done less often.
PAUSE_PER_RUN = 0.0001
# How many ended runs are remembered, so that whoever asks late need not wait for a look.
RECENT = 4096


class Endings:
    """Who waits for which run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, list[asyncio.Future[EndRun | None]]] = {}
        self._recent: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._winding_down = False

    def ended(self, run_id: str, end: EndRun | None = None) -> None:
        """The run has ended: wake whoever waits for it, with its end if that is at hand."""
        self._recent[run_id] = None
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
        for future in self._waiting.pop(run_id, ()):
            if not future.done():
                future.set_result(end)

    async def result(
        self, run_id: str, timeout: float | None, read: Callable[[], Awaitable[Run]], *, new: bool
    ) -> Any:
        """The run's output once it has ended; TimeoutError if it has not by then.

        A run that this process started need not be looked up before it has ended.
        """
        limit = TimeLimit(self._store.clock, timeout)
        try:
            async with limit:
                return await self._result(run_id, read, new and run_id not in self._recent)
        except TimeoutError:
            if limit.passed:
                raise TimeoutError(
                    f"Run {run_id} has not ended within {timeout:g} s; "
                    f"`stepwell runs explain {run_id}` says why."
                ) from None
            raise

    async def _result(self, run_id: str, read: Callable[[], Awaitable[Run]], new: bool) -> Any:
        future: asyncio.Future[EndRun | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, []).append(future)
        try:
            if not new and (run := await read()).ended:
                return _outcome(run.status, run.id, run.output, run.error)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._poll())
            if self._winding_down:
                raise TimeoutError("Nobody is kept waiting here any longer.")
            end = await future
        finally:
            self._leave(run_id, future)
        if end is None:
            run = await read()
            return _outcome(run.status, run.id, run.output, run.error)
        output = None if end.output is None else decode(end.output)
        return _outcome(end.status, run_id, output, read_error(end.error))

    def _leave(self, run_id: str, future: asyncio.Future[Any]) -> None:
        if future.done() and not future.cancelled():
            future.exception()
        waiting = self._waiting.get(run_id, [])
        if future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._waiting[run_id]

    async def _poll(self) -> None:
        """Look for ends that other processes recorded, while anyone waits."""
        pause = FIRST_PAUSE
        try:
            while self._waiting:
                await sleep(self._store.clock, max(pause, len(self._waiting) * PAUSE_PER_RUN))
                pause = min(pause * 1.3, LONGEST_PAUSE)
                try:
                    for run_id in await self._store.ended(list(self._waiting)):
                        self.ended(run_id)
                except StoreUnavailable:
                    pass  # the next look may go through
                except Exception as error:
                    log.warning("Whether runs have ended could not be looked up: %r", error)
        finally:
            self._task = None

    def wind_down(self) -> None:
        """Let go of everybody who waits, as if their time were up."""
        self._winding_down = True
        for future in [future for waiting in self._waiting.values() for future in waiting]:
            if not future.done():
                future.set_exception(TimeoutError("Nobody is kept waiting here any longer."))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        closed = StoreUnavailable("This Stepwell was closed while the run had not ended.")
        for future in [future for waiting in self._waiting.values() for future in waiting]:
            if not future.done():
                future.set_exception(closed)


def _outcome(status: str, run_id: str, output: Any, error: ErrorInfo | None) -> Any:
    """The output of a completed run; raises for any other end."""
    if status == "completed":
        return output
    raise run_failure(status, run_id, error)

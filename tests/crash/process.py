"""A process that is stopped after so many commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from stepwell import Stepwell
from stepwell.kernel.changes import Change, Committed
from stepwell.testing.clock import FakeClock
from stepwell.testing.crash import crash
from tests.engine.support import flowing


class Crash:
    """Lets the first commits through, then stops the process for good."""

    def __init__(self, store: Any, after: int, lose_acknowledgement: bool) -> None:
        self._commit = store.commit
        self._left = after
        self._lose = lose_acknowledgement
        self.happened = asyncio.Event()
        store.commit = self.commit
        store.heartbeat = self.hang
        store.lost = self.hang

    async def hang(self, *_: Any) -> Any:
        await asyncio.Event().wait()

    async def commit(self, batch: Sequence[Change]) -> Committed:
        if self._left == 0:
            self.happened.set()
            await self.hang()
        self._left -= 1
        committed = await self._commit(batch)
        if self._left == 0 and self._lose:
            self.happened.set()
            await self.hang()
        return committed


async def _never(run_id: str) -> bool:
    return False


async def doomed(
    stepwell: Stepwell, clock: FakeClock, run_id: str, after: int, lose: bool,
    stuck: Callable[[str], Awaitable[bool]] = _never,
) -> bool:  # fmt: skip
    """Execute in this process until its crash; whether that came before the run ended or stuck.

    Its lease ends with it, not before: time flows on while a busy machine commits.
    """
    async with stepwell:
        stopping = Crash(stepwell.store, after, lose)
        worker = stepwell.worker(lease="1h", grace=0)
        await worker.__aenter__()
        async with flowing(clock, "0.02s"):
            while not (
                stopping.happened.is_set()
                or await stepwell.store.ended([run_id])
                or await stuck(run_id)
            ):
                await asyncio.sleep(0.001)
        crash(stepwell)
        clock.advance("1h")
        return stopping.happened.is_set()

"""Small things that the engine's tests share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stepwell import Stepwell
from stepwell.kernel.run import Run
from stepwell.testing.clock import FakeClock


async def eventually(condition: Callable[[], Any]) -> None:
    """Let others go on until the condition holds; pytest's timeout is the limit."""
    while not condition():
        await asyncio.sleep(0.001)


@asynccontextmanager
async def flowing(clock: FakeClock, step: str = "0.5s") -> AsyncIterator[None]:
    """Let fake time flow while inside, a little at a time, as it does for real."""

    async def flow() -> None:
        while True:
            clock.advance(step)
            await asyncio.sleep(0.001)

    task = asyncio.create_task(flow())
    try:
        yield
    finally:
        task.cancel()


async def until(stepwell: Stepwell, run_id: str, *statuses: str) -> Run:
    """The run, once it has one of these statuses."""
    while True:
        run = await stepwell.get_run(run_id)
        if run.status in statuses:
            return run
        assert not run.ended, f"It is {run.status}, and will never be {statuses}: {run.error}"
        await asyncio.sleep(0.001)


async def until_code(stepwell: Stepwell, run_id: str, code: str) -> None:
    """Return once the run explains itself with this code."""
    while (await stepwell.explain(run_id)).code != code:
        await asyncio.sleep(0.001)


async def double(x: Any) -> Any:
    return x * 2


def echo(x: Any) -> Any:
    return x


class Gate:
    """Holds the commits of a store back while it is shut."""

    def __init__(self, store: Any) -> None:
        self._commit = store.commit
        self._open = asyncio.Event()
        self._open.set()
        self.waiting = 0
        store.commit = self.commit

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def commit(self, batch: Any) -> Any:
        self.waiting += 1
        await self._open.wait()
        self.waiting -= 1
        return await self._commit(batch)


def sizes_of_firings(sw: Stepwell, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs each commit of firings starts, from now on."""
    fire = sw.store.triggers.fire
    sizes: list[int] = []

    async def measured(workspace_id: str, firings: Any, starts: Any, *more: Any) -> Any:
        sizes.append(len(starts))
        return await fire(workspace_id, firings, starts, *more)

    monkeypatch.setattr(sw.store.triggers, "fire", measured)
    return sizes

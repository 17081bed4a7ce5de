"""Reads that many ask for at once: all who ask during one read share the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextvars import Context
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# How long the next read waits for the one before it: a store that hangs there may answer here.
PATIENCE_SECONDS = 0.05


class _Reading(Generic[V]):
    """A read, and those who wait for it."""

    task: asyncio.Task[V]

    def __init__(self) -> None:
        self.waiters: list[asyncio.Future[V]] = []
        self.waiting = 0

    def ended(self, task: asyncio.Task[V]) -> None:
        error = None if task.cancelled() else task.exception()
        for waiter in self.waiters:
            if waiter.done():
                continue
            if task.cancelled():
                waiter.cancel()
            elif error is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(task.result())


class SharedReads(Generic[K, V]):
    """What is read is never older than the question, however many ask."""

    def __init__(self, read: Callable[[K], Awaitable[V]]) -> None:
        self._read = read
        # By key: the read that began last, and the one that begins when that has ended.
        self._current: dict[K, _Reading[V]] = {}
        self._next: dict[K, _Reading[V]] = {}

    async def get(self, key: K) -> V:
        reading = self._next.get(key)
        if reading is None or reading.task.done():  # all tasks of the loop were cancelled
            reading = self._next[key] = _Reading()
            answering = self._answer(key, reading, self._current.get(key))
            # It belongs to nobody in particular, least of all to the run that asks first.
            reading.task = asyncio.create_task(answering, context=Context())
            reading.task.add_done_callback(reading.ended)
        # One of its own: shielding the task would cost each who waits twice as much.
        waiter: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        reading.waiters.append(waiter)
        reading.waiting += 1
        try:
            return await waiter
        finally:
            reading.waiting -= 1
            if not reading.waiting and not reading.task.done():
                reading.task.cancel()
                self._forget(self._next, key, reading)

    async def _answer(self, key: K, own: _Reading[V], before: _Reading[V] | None) -> V:
        if before is not None:
            await asyncio.wait([before.task], timeout=PATIENCE_SECONDS)
        self._forget(self._next, key, own)
        self._current[key] = own
        try:
            return await self._read(key)
        finally:
            self._forget(self._current, key, own)

    def _forget(self, place: dict[K, _Reading[V]], key: K, reading: _Reading[V]) -> None:
        if place.get(key) is reading:
            del place[key]

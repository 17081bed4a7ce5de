"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable

from stepwell.kernel.clock import SECOND
from stepwell.kernel.durations import Duration, seconds


class FakeTimer:
    """A callback waiting for its time."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback
        # As a real timer does, it sees the context variables of whoever set it.
        self._context = contextvars.copy_context()

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        if self.callback is not None:
            self._context.run(self.callback)


class FakeClock:
    """Time that passes only by `advance`."""

    def __init__(self, start: int = 1_800_000_000 * SECOND) -> None:
        self._now = start
        self._timers: list[tuple[int, int, FakeTimer]] = []
        self._count = 0

    def now(self) -> int:
        return self._now

    def sync(self, now: int) -> None:
        """A fake clock follows nobody."""

    def call_at(self, at: int, callback: Callable[[], object]) -> FakeTimer:
        timer = FakeTimer(callback)
        self._count += 1
        heapq.heappush(self._timers, (at, self._count, timer))
        if at <= self._now:
            asyncio.get_running_loop().call_soon(self._fire)
        return timer

    def advance(self, duration: Duration) -> None:
        """Let time pass; whatever comes due on the way is called, in order."""
        target = self._now + int(seconds(duration) * SECOND)
        while self._timers and self._timers[0][0] <= target:
            self._now = max(self._now, self._timers[0][0])
            self._fire()
        self._now = target

    def _fire(self) -> None:
        while self._timers and self._timers[0][0] <= self._now:
            heapq.heappop(self._timers)[2].fire()

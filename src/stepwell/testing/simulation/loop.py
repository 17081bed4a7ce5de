"""An event loop whose time is virtual: it never waits, it jumps."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import Any

from stepwell.kernel.clock import SECOND, Timer


class Stuck(Exception):
    """Nothing is left to happen, yet somebody still waits."""


class _NoWaiting(selectors.BaseSelector):
    """Instead of waiting for files, lets time pass."""

    def __init__(self) -> None:
        self._files: dict[Any, selectors.SelectorKey] = {}
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("Nothing is scheduled any more.")
        self.now += max(timeout, 0)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._files[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._files.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._files

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._files[fileobj]


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs everything that is ready, then jumps to the next timer."""

    def __init__(self) -> None:
        self._virtual = _NoWaiting()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


class VirtualClock:
    """The engine's clock on a virtual loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start: int = 1_800_000_000) -> None:
        self._loop = loop
        self._start = start * SECOND

    def now(self) -> int:
        return self._start + round(self._loop.time() * SECOND)

    def sync(self, now: int) -> None:
        """A virtual clock follows nobody."""

    def call_at(self, at: int, callback: Callable[[], object]) -> Timer:
        return self._loop.call_later(max(0, at - self.now()) / SECOND, callback)

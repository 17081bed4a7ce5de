"""Threads for plain functions, which do not keep the process alive when it wants to end."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Work = tuple["Future[T]", Callable[[], T]]


class Threads(Executor):
    """Up to `most` daemon threads, started when needed and kept.

    The executor of the standard library waits at the end of the process for whatever its threads
    are doing, and a step function may never return.
    """

    def __init__(self, name: str, most: int) -> None:
        self._names = (f"{name}-{number}" for number in itertools.count())
        self._most = most
        self._work: SimpleQueue[Work[object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._running = 0
        self._free = 0
        self._closed = False

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self._closed:
            raise RuntimeError("these threads have been shut down")
        future: Future[T] = Future()
        with self._lock:
            if self._free > 0:
                self._free -= 1
            elif self._running < self._most:
                threading.Thread(target=self._serve, name=next(self._names), daemon=True).start()
                self._running += 1
        self._work.put((future, lambda: function(*args, **kwargs)))  # type: ignore[arg-type]
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let threads end once they are free. Nobody is waited for, whatever `wait` says."""
        self._closed = True
        for _ in range(self._running):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            future, function = work
            if future.set_running_or_notify_cancel():
                try:
                    result = function()
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del work, future, function
            with self._lock:
                self._free += 1

"""The bridge for programs that are not async: the same coroutines, on a loop of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from functools import wraps
from types import TracebackType
from typing import Any


class Bridge:
    """Runs coroutines on a thread of its own, for callers with or without a loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: whoever forgets to close must still be able to end.
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="stepwell-client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C here has to end the work there
            future.cancel()
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Waits:
    """Marks what has async methods, so that the bridge is put around it too."""


class Blocking:
    """Something async with the same names, whose methods return when they are done."""

    def __init__(self, target: Waits, bridge: Bridge) -> None:
        self._target = target
        self._bridge = bridge

    def __getattr__(self, name: str) -> Any:
        return self._across(getattr(self._target, name))

    def __dir__(self) -> list[str]:
        return dir(self._target)

    def __repr__(self) -> str:
        return f"<blocking {self._target!r}>"

    def _across(self, value: Any) -> Any:
        if isinstance(value, Waits):
            return Blocking(value, self._bridge)
        if asyncio.iscoroutine(value):
            return self._across(self._bridge.run(value))
        if isinstance(value, AsyncIterator):
            return self._each(value)
        if callable(value):

            @wraps(value)
            def call(*args: Any, **options: Any) -> Any:
                return self._across(value(*args, **options))

            return call
        return value

    def _each(self, values: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(values, self)  # which is none of the values

        while (value := self._bridge.run(following())) is not self:
            yield value

    def close(self) -> None:
        """Close it, and end the thread that it ran on."""
        try:
            self._across(self._target.close)()  # type: ignore[attr-defined]
        finally:
            self._bridge.close()

    def __enter__(self) -> Blocking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

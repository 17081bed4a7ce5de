"""The one bridge for plain functions: a context whose operations block their thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent import futures
from datetime import datetime
from typing import Any

from stepwell.engine.context import ChildHandle, Context
from stepwell.engine.surroundings import current_step, in_first_thread
from stepwell.errors import ContextMisuse, Fenced

_OPERATIONS = frozenset(
    {"step", "sleep", "sleep_until", "wait_for_event", "emit", "run_child", "start_child",
     "patched"}
)  # fmt: skip


class BlockingContext:
    """`ctx` of a workflow that is a plain function: the same operations, without `await`."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._thread = 0

    def begin(self, function: Callable[..., Any], input: Any) -> Any:
        """Call the workflow, in a thread of its own."""
        self._thread = threading.get_ident()
        return function(self, input)

    def __getattr__(self, name: str) -> Any:
        if name not in _OPERATIONS:
            return getattr(self._context, name)
        operation: Callable[..., Coroutine[Any, Any, Any]] = getattr(self._context, name)

        def blocking(*args: Any, **kwargs: Any) -> Any:
            if current_step.get() is not None:
                raise ContextMisuse(f"ctx.{name}() cannot be used inside a step function.")
            return self._block(operation(*args, **kwargs))

        return blocking

    def now(self) -> datetime:
        async def read() -> datetime:
            return self._context.now()

        return self._context.now() if current_step.get() is not None else self._block(read())

    def _block(self, operation: Coroutine[Any, Any, Any]) -> Any:
        in_first_thread.set(threading.get_ident() == self._thread)
        try:
            result = asyncio.run_coroutine_threadsafe(operation, self._loop).result()
        except futures.CancelledError:
            # Of this one name, the threads' own class is an Exception that code may swallow.
            raise Fenced from None
        return BlockingChild(result, self) if isinstance(result, ChildHandle) else result


class BlockingChild:
    """A child handle whose `result()` blocks."""

    def __init__(self, handle: ChildHandle, context: BlockingContext) -> None:
        self._handle = handle
        self._context = context
        self.id = handle.id

    def result(self) -> Any:
        return self._context._block(self._handle.result())

"""Calling user code: async or not, with a time limit, and in a thread or here."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from stepwell.errors import StepTimedOut
from stepwell.kernel.clock import Clock, TimeLimit


class ExitRequested(RuntimeError):
    """User code called sys.exit(); that ends the step, not the worker."""


class CancelledFromWithin(RuntimeError):
    """User code awaited something that was cancelled, though nobody cancelled the run."""


# What the task of a run may end with. What else user code makes of a cancellation goes no
# further: asyncio has no use for it.
PASSED_ON = (Exception, asyncio.CancelledError, KeyboardInterrupt, BaseExceptionGroup)


def interrupted() -> bool:
    """Whether the current task is being cancelled from outside."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None)
    if code is not None:  # an ordinary function: this runs for every step
        return bool(code.co_flags & inspect.CO_COROUTINE)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


async def call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], threads: Executor
) -> Any:
    """Call a function: a coroutine function here, any other in a thread."""
    try:
        if is_async(function):
            return await function(*args, **kwargs)
        result = await call_in_thread(threads, function, *args, **kwargs)
        return await result if inspect.isawaitable(result) else result
    except SystemExit as error:
        raise ExitRequested(f"sys.exit({error.code!r}) was called") from error
    except asyncio.CancelledError as error:
        if interrupted():
            raise
        raise CancelledFromWithin("something the step awaited was cancelled") from error


async def call_in_thread(
    threads: Executor, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Call a plain function in a thread, with the context variables of whoever calls."""

    def call_it() -> Any:
        try:
            return function(*args, **kwargs)
        except (StopIteration, GeneratorExit) as error:
            # Neither can pass through a future and come out as what it was.
            raise RuntimeError(f"{type(error).__name__} was raised: {error}") from error

    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(threads, run, call_it)


async def call_within(
    seconds: float, clock: Clock, step: str,
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], threads: Executor,
) -> Any:  # fmt: skip
    """The same with a time limit, on the engine's own clock."""
    limit = TimeLimit(clock, seconds)
    try:
        async with limit:
            return await call(function, args, kwargs, threads)
    except TimeoutError as error:
        if limit.passed:
            raise StepTimedOut(
                f"Step {step!r} ran longer than its timeout of {seconds:g} s.", step=step
            ) from error
        raise

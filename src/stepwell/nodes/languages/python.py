"""Python code, executed by Monty in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from threading import Lock
from typing import Any

from stepwell.errors import CodeFailed, SandboxUnavailable
from stepwell.nodes.languages.limits import GRACE_SECONDS, Limits, raised

# What is printed goes nowhere; left to Monty, all of it would pass through the worker.
_BEFORE = "def print(*values, sep=None, end=None, file=None, flush=None): pass"

# JSON is made by the sandbox, so that what has no JSON form fails as Python people know it, and
# what is too large never comes out.
_AFTER = """
import json as __json
try:
    __main = main
except NameError:
    if __odd:
        raise TypeError("the last expression has no JSON form")
    __output = __last
else:
    __output = __main(input)
    if type(__output).__name__ == "coroutine":
        __output = await __output
__text = __json.dumps(__output, allow_nan=False, ensure_ascii=False)
__text if len(__text) <= {most} else len(__text)
"""

# How Monty calls the second thing it is given, after `_BEFORE`.
_USERS_CODE = "<python-input-1>"

# What Monty gives in place of functions and coroutines.
_FUNCTION = re.compile(r"<(function .* at 0x[0-9a-f]+|coroutine object .*)>")

_MEMORY = ("memory limit exceeded", "the worker exceeded its memory limit")
_TIME = "feed time limit exceeded"


async def run_python(code: str, input: Any, limits: Limits) -> Any:
    """What `main(input)` returns or, without a `main`, the last expression."""
    monty = _monty()
    execution = Execution(monty, limits)
    try:
        async with asyncio.timeout(limits.seconds + GRACE_SECONDS):
            output = await _in_thread(execution, code, input)
    except TimeoutError:
        raise limits.time_exceeded() from None
    except monty.MontyError as error:
        raise _failure(monty, error, limits) from None
    if isinstance(output, int):
        raise limits.output_too_large(output)
    return limits.decoded(output)


def _monty() -> Any:
    # Monty asks for these in every thread, and threads must not be the first to do so at once.
    sysconfig.get_config_vars()
    # Loaded by name, so that only a process that executes Python code pays for it.
    try:
        return import_module("pydantic_monty")
    except ModuleNotFoundError as error:
        if error.name != "pydantic_monty":
            raise
        raise SandboxUnavailable(
            "Python code needs pydantic-monty, which comes with the extra `code`: "
            "pip install 'stepwell[code]'"
        ) from None


async def _in_thread(execution: Execution, code: str, input: Any) -> str | int:
    """Execute in a thread of its own, and leave nothing behind when cancelled.

    Monty has an API for asyncio too, whose threads abort the process if it ends just then.
    """
    threads = ThreadPoolExecutor(1, "stepwell-code")
    future = asyncio.get_running_loop().run_in_executor(threads, execution.run, code, input)
    threads.shutdown(wait=False)
    # Once stopped, it fails, which nobody needs to be told.
    future.add_done_callback(asyncio.Future.exception)
    try:
        await asyncio.wait([future])
    except asyncio.CancelledError:
        execution.stop()
        await asyncio.wait([future])
        raise
    return future.result()


class Execution:
    """One execution in a process of Monty's, which any thread can stop."""

    def __init__(self, monty: Any, limits: Limits) -> None:
        self._monty = monty
        self._limits = limits
        self._lock = Lock()
        self._pid: int | None = None
        self._stopped = False

    def run(self, code: str, input: Any) -> str | int:
        """The output as JSON text, or the length of that if it is too long."""
        allowed = {
            "max_memory": self._limits.memory_bytes,
            "max_feed_duration_secs": self._limits.seconds,
        }
        # A process for each call takes some 5 ms; kept ones would have to be ended by somebody.
        # Monty sleeps in this process, where it could not be stopped: sleeping takes no time.
        with (
            self._monty.Monty(max_processes=1) as pool,
            pool.checkout(limits=allowed, os_policy={"sleep": "zero"}) as session,
        ):
            self._started(session.worker_pid)
            try:
                return self._output(session, code, input)
            finally:
                self._started(None)  # from here on, the number may become another process's

    def _output(self, session: Any, code: str, input: Any) -> str | int:
        session.feed_run(_BEFORE)
        last = session.feed_run(code, inputs={"input": input})
        odd = _is_odd(self._monty, last)
        output: str | int = session.feed_run(
            _AFTER.format(most=self._limits.output_bytes),
            inputs={"__last": None if odd else last, "__odd": odd},
        )
        return output

    def _started(self, pid: int | None) -> None:
        with self._lock:
            self._pid = pid
            if self._stopped:
                self._kill()

    def stop(self) -> None:
        """Kill the process, now or as soon as there is one."""
        with self._lock:
            self._stopped = True
            self._kill()

    def _kill(self) -> None:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._pid = None


def _is_odd(monty: Any, last: Any) -> bool:
    """Whether the last expression is not data, and could not be given back."""
    if isinstance(last, str):
        return _FUNCTION.fullmatch(last) is not None
    return isinstance(
        last, (monty.MontyClassProxy, monty.MontyClassTypeProxy, monty.MontyStdTypeProxy)
    )


def _failure(monty: Any, error: Any, limits: Limits) -> CodeFailed:
    if isinstance(error, monty.MontyCrashedError):
        return limits.time_exceeded() if error.timed_out else raised(f"Python died: {error}", None)
    line = _line(monty, error)
    message = str(error.exception())
    if message.startswith(_MEMORY):
        return limits.memory_exceeded(line)
    if message.startswith(_TIME):
        return limits.time_exceeded(line)
    described = error.display("type-msg") if hasattr(error, "display") else str(error)
    return raised(described, line)


def _line(monty: Any, error: Any) -> int | None:
    """The innermost line of the user's code that the error came through, if it is known."""
    frames = error.traceback() if hasattr(error, "traceback") else []
    if not isinstance(error, monty.MontySyntaxError):
        # A frame without a function stands for a call from outside.
        frames = [each for each in frames if each.filename == _USERS_CODE and each.function_name]
    return frames[-1].line if frames else None

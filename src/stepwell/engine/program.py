"""Programs: what a worker can execute, and executing one from its beginning to its end."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol

from stepwell.engine.blocking import BlockingContext
from stepwell.engine.calls import (
    ExitRequested,
    call_in_thread,
    interrupted,
    is_async,
)
from stepwell.engine.context import Context
from stepwell.engine.execution import Execution
from stepwell.engine.failures import describe_failure, trace
from stepwell.engine.surroundings import answering, current_run
from stepwell.errors import (
    ChangeRefused,
    ContextMisuse,
    Fenced,
    RunDenied,
    StepFailed,
    Suspended,
)
from stepwell.kernel.changes import EndRun
from stepwell.kernel.codec import decode, encode_result
from stepwell.kernel.retry import Retry

log = logging.getLogger("stepwell.program")


class Program(Protocol):
    """Code that executes runs: `(ctx, input) -> output`, async or plain."""

    @property
    def program(self) -> str: ...

    @property
    def function(self) -> Callable[..., Any]: ...

    @property
    def retry(self) -> Retry | None: ...


async def execute(
    program: Program, context: Context, execution: Execution, threads: Executor,
    max_result_bytes: int,
) -> EndRun | None:  # fmt: skip
    """Execute a run; how it ended, or None if its program has left memory before the end."""
    try:
        value = decode(execution.claimed.input)
        answering.set(execution.deliveries)
        current_run.set(execution.run_id)
        execution.deliveries.goes_on()
        if is_async(program.function):
            result = await program.function(context, value)
        else:
            execution.blocking = execution.deliveries.threaded = True
            blocking = BlockingContext(context, asyncio.get_running_loop())
            result = await call_in_thread(threads, blocking.begin, program.function, value)
            if inspect.iscoroutine(result):
                result.close()
                raise ContextMisuse(
                    "The workflow is a plain function that returned a coroutine. Decorate the "
                    "async function itself with @workflow, before anything that wraps it."
                )
        output = encode_result(result, max_result_bytes)
    except BaseException as error:
        if execution.departed or isinstance(error, Suspended | Fenced):
            # User code may have seen the interruption and dressed it up, in a group perhaps.
            execution.suspended = _has_suspended(error)
            return None
        return await _failed(execution, error)
    return await _end(execution, "completed", output, None)


async def _failed(execution: Execution, error: BaseException) -> EndRun | None:
    """The program raised this: the run has failed, unless all of the process is being stopped."""
    if isinstance(error, SystemExit):
        error = ExitRequested(f"sys.exit({error.code!r}) was called")
    elif not isinstance(error, Exception) and (
        isinstance(error, KeyboardInterrupt) or interrupted()
    ):
        raise error
    if isinstance(error, RunDenied):
        return await _end(execution, "cancelled", None, describe_failure(error, None))
    if not isinstance(error, StepFailed):  # that has been said already
        log.warning("Run %s failed.\n%s", execution.run_id, trace(error))
    return await _end(execution, "failed", None, describe_failure(error, None))


def _has_suspended(error: BaseException | None) -> bool:
    """Whether this is a suspension, was made of one, or was raised while one was handled."""
    if isinstance(error, BaseExceptionGroup) and any(map(_has_suspended, error.exceptions)):
        return True
    return error is not None and (isinstance(error, Suspended) or _has_suspended(error.__context__))


async def _end(
    execution: Execution, status: str, output: str | None, error: str | None
) -> EndRun | None:
    try:
        await execution.ready()
    except Fenced:
        return None
    return execution.end(status, output, error)


def refused_end(end: EndRun, error: ChangeRefused) -> EndRun:
    """How a run ends in place of an end that the store cannot hold."""
    return EndRun(end.held, "failed", None, describe_failure(error, None), end.completed_at)

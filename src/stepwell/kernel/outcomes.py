"""How runs end badly: what the engine writes down of it, and what whoever waits is told."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from stepwell.errors import RunCancelled, RunFailed, RunNotFound, RunTimedOut, StepwellError
from stepwell.kernel.crashes import CRASH_LIMIT
from stepwell.kernel.run import ErrorInfo


class Ending(NamedTuple):
    """One run's end, however it came about."""

    run_id: str
    status: str
    output: str | None
    error: str | None
    completed_at: int


def error_text(type_: str, message: str, step: str | None = None) -> str:
    return msgspec.json.encode({"type": type_, "message": message, "step": step}).decode()


def read_error(text: str | None) -> ErrorInfo | None:
    return None if text is None else msgspec.json.decode(text, type=ErrorInfo)


def run_failure(status: str, run_id: str, info: ErrorInfo | None) -> StepwellError:
    """The error for a run that did not complete."""
    if status == "missing":
        return RunNotFound(f"The run {run_id} is no longer in the store.", run_id=run_id)
    kind = {"failed": RunFailed, "cancelled": RunCancelled, "timed_out": RunTimedOut}[status]
    return kind(run_id, info)


def child_result(status: str, output: str | None, error: str | None) -> str:
    """What a wait for a child ends with."""
    return msgspec.json.encode([status, output, error]).decode()


def crash_loop_error(step: str | None) -> str:
    where = f"Step {step!r}" if step else "The run"
    message = f"{where} took its worker down {CRASH_LIMIT} times in a row without any progress."
    return error_text("crash_loop", message, step)


def deadline_error() -> str:
    return error_text("deadline_exceeded", "The run passed its deadline.")


def ttl_error() -> str:
    return error_text("ttl_expired", "The run was still pending when its time to live ended.")

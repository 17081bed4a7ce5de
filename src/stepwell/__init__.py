"""Stepwell: durable workflows for people and agents.

The public names are imported when they are first asked for, so that whoever needs no engine, a
client of a server say, does not wait for one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell.app.run_handle import RunHandle
    from stepwell.app.stepwell import Stepwell
    from stepwell.engine.context import ChildHandle, Context
    from stepwell.errors import (
        NonRetryable,
        OutcomeUnknown,
        RunCancelled,
        RunFailed,
        RunNotFound,
        RunTimedOut,
        StepFailed,
        StepTimedOut,
        StepwellError,
        WaitTimedOut,
    )
    from stepwell.kernel.feed import RunEvent
    from stepwell.kernel.retry import Retry
    from stepwell.kernel.run import Attempt, ErrorInfo, Explanation, Page, Run, Step, WorkerInfo
    from stepwell.sdk.function import function
    from stepwell.sdk.workflow import Workflow, workflow

__version__ = "0.1.0"
__all__ = [
    "Attempt",
    "ChildHandle",
    "Context",
    "ErrorInfo",
    "Explanation",
    "NonRetryable",
    "OutcomeUnknown",
    "Page",
    "Retry",
    "Run",
    "RunCancelled",
    "RunEvent",
    "RunFailed",
    "RunHandle",
    "RunNotFound",
    "RunTimedOut",
    "Step",
    "StepFailed",
    "StepTimedOut",
    "Stepwell",
    "StepwellError",
    "WaitTimedOut",
    "WorkerInfo",
    "Workflow",
    "function",
    "workflow",
]

# Where each public name comes from; the imports above say the same to whoever checks types.
_HOMES = {
    name: module
    for module, names in {
        "stepwell.app.run_handle": ("RunHandle",),
        "stepwell.app.stepwell": ("Stepwell",),
        "stepwell.engine.context": ("ChildHandle", "Context"),
        "stepwell.errors": (
            "NonRetryable", "OutcomeUnknown", "RunCancelled", "RunFailed", "RunNotFound",
            "RunTimedOut", "StepFailed", "StepTimedOut", "StepwellError", "WaitTimedOut",
        ),
        "stepwell.kernel.feed": ("RunEvent",),
        "stepwell.kernel.retry": ("Retry",),
        "stepwell.kernel.run": (
            "Attempt", "ErrorInfo", "Explanation", "Page", "Run", "Step", "WorkerInfo",
        ),
        "stepwell.sdk.function": ("function",),
        "stepwell.sdk.workflow": ("Workflow", "workflow"),
    }.items()
    for name in names
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

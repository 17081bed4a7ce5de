"""Stepwell: durable workflows for people and agents."""

from __future__ import annotations

from stepwell.app import RunHandle, Stepwell
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

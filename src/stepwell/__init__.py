"""Stepwell: durable workflows for people and agents."""

from __future__ import annotations

from stepwell.app import RunHandle, Stepwell
from stepwell.errors import (
    NonRetryable,
    RunCancelled,
    RunFailed,
    RunNotFound,
    RunTimedOut,
    StepFailed,
    StepwellError,
    WaitTimedOut,
)
from stepwell.kernel.retry import Retry
from stepwell.sdk.workflow import Workflow, workflow

__version__ = "0.1.0"
__all__ = [
    "NonRetryable",
    "Retry",
    "RunCancelled",
    "RunFailed",
    "RunHandle",
    "RunNotFound",
    "RunTimedOut",
    "StepFailed",
    "Stepwell",
    "StepwellError",
    "WaitTimedOut",
    "Workflow",
    "workflow",
]

"""The records callers see: runs, steps, pages, explanations."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from stepwell.kernel.states import ENDED


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """What went wrong: an error code or class name, its text, and the step it came from."""

    type: str
    message: str
    step: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One durable execution of a definition."""

    id: str
    status: str
    definition: str
    version: int
    input: Any
    output: Any
    error: ErrorInfo | None
    attempt: int
    parent_run_id: str | None
    forked_from: str | None
    idempotency_key: str | None
    concurrency_key: str | None
    concurrency_limit: int | None
    priority: int
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    deadline_at: datetime | None
    # How long it is kept after its end.
    retention_seconds: int
    # What the idempotency keys of its steps begin with: the first run's id, across retries.
    key_base: str
    # The hash of the document it executes, if its definition is data.
    revision: str | None = None
    # What started it, if that is known.
    trigger: Any = None

    @property
    def ended(self) -> bool:
        return self.status in ENDED


@dataclass(frozen=True, slots=True)
class Attempt:
    """One failed attempt of a step."""

    number: int
    error: ErrorInfo
    started_at: datetime
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class Step:
    """One journaled unit of a run."""

    key: str
    kind: str
    status: str
    attempts: int
    output: Any
    error: ErrorInfo | None
    started_at: datetime
    completed_at: datetime | None
    failures: tuple[Attempt, ...] = ()
    # What is wanted, if it waits for somebody.
    about: Any = None


@dataclass(frozen=True, slots=True)
class Page:
    """Some runs, newest first, and where to go on."""

    items: list[Run]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a run is where it is."""

    code: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker process as it last reported itself."""

    id: str
    host: str
    pid: int
    concurrency: int
    programs: tuple[str, ...]
    started_at: datetime
    heartbeat_at: datetime
    expires_at: datetime
    alive: bool

"""The contract of telemetry: what the engine tells of itself, once it is durable.

All of it is told on the loop that the engine works on, so whoever listens must be quick, must
not wait and must not raise. Nothing that users gave goes further than this: of what is passed
here only names, times, counts and statuses may be shown, never an input, an output or a payload.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from stepwell.kernel.changes import ClaimedRun, LogAttempt, RecordStep, SendSignal
from stepwell.store import RunOutline

# The `traceparent` of the request that the code at hand answers: for surfaces to set.
request_trace: ContextVar[str | None] = ContextVar("stepwell_request_trace", default=None)


class Observed(Protocol):
    """A workspace in this process, for what is to be looked up and not told."""

    @property
    def workspace(self) -> str: ...

    def in_flight(self) -> Mapping[str, int]:
        """How many runs of each definition are being executed here."""
        ...

    async def queue_depth(self) -> int:
        """How many runs are due and taken up by nobody."""
        ...


class Telemetry:
    """Hears of everything, and does nothing with it."""

    # Whether it makes spans, which others may then belong to.
    traces = False

    def current(self) -> str | None:
        """The `traceparent` of whoever calls, if they are part of a trace."""
        return None

    def step_entered(self, run: ClaimedRun, key: str, attempt: int) -> object:
        """User code of a step begins here; what this returns is handed to `step_left`."""
        return None

    def step_left(self, entered: object) -> None:
        """It has come to its end."""

    def opened(self, place: Observed) -> None:
        """A workspace is at work in this process."""

    def closed(self, place: Observed) -> None:
        """It is not any more."""

    def committed(self, changes: int, seconds: float) -> None:
        """A commit of so many changes is durable."""

    def run_started(self, definition: str) -> None:
        """A run was started."""

    def run_claimed(self, run: ClaimedRun, waited_seconds: float | None) -> None:
        """A run was taken up that has been due for so long."""

    def run_ended(self, run: RunOutline) -> None:
        """A run has ended, however that came about."""

    def step_ended(self, run: ClaimedRun, step: RecordStep, logged: bool) -> None:
        """A step, sleep or wait is settled; `logged` if its last attempt is told of as well."""

    def step_retried(self, run: ClaimedRun, step: RecordStep) -> None:
        """An attempt of a step has failed, and another one follows."""

    def attempt_failed(self, run: ClaimedRun, attempt: LogAttempt) -> None:
        """An attempt of a step has failed."""

    def run_signalled(self, run: RunOutline, signal: SendSignal) -> None:
        """A signal has reached its run."""

    def schedule_fired(self, late_seconds: float) -> None:
        """A schedule was so late with a run."""

    def event_delivered(self, waited_seconds: float) -> None:
        """An event has waited for so long until its triggers heard of it."""

    def runs_swept(self, count: int) -> None:
        """So many runs were deleted, because their retention had passed."""

    def close(self) -> None:
        """Nothing more will be told. Called in a thread: what is left may take its time."""


# Nobody listens: what is told to this need not even be worked out.
SILENT = Telemetry()


def trace_at_hand(telemetry: Telemetry) -> str | None:
    """The `traceparent` of whoever calls: of code that is traced, else of a request."""
    return telemetry.current() or request_trace.get()


def told_to_all(parts: Sequence[Telemetry]) -> Telemetry:
    """One that passes on what it hears to all of these."""
    if len(parts) <= 1:
        return parts[0] if parts else SILENT
    several = Telemetry()
    for name in _TOLD:
        setattr(several, name, _to_all([getattr(part, name) for part in parts]))
    tracer = next((part for part in parts if part.traces), SILENT)
    for name in ("traces", "current", "step_entered", "step_left"):
        setattr(several, name, getattr(tracer, name))
    return several


_TOLD = [
    name
    for name, method in vars(Telemetry).items()
    if callable(method) and not name.startswith("_")
]


def _to_all(methods: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def tell(*args: Any, **kwargs: Any) -> None:
        for method in methods:
            method(*args, **kwargs)

    return tell


# Iterations of graphs stand in brackets, repetitions of names behind a `#`.
_NUMBERS = re.compile(r"\[[^\]]*\]|#\d+$")
# What nodes add to the key of what they wait for.
_ADDED = {"gate": ".decision", "task": ".task"}


def step_name(run: ClaimedRun, key: str, kind: str) -> str:
    """The name of a step without the numbers, and in graphs without the path, of its key."""
    name = _NUMBERS.sub("", key) or key
    if run.revision is None:
        return name
    return name.removesuffix(_ADDED.get(kind, "")).rpartition(".")[2] or name


# What programs call their events; of what callers make up, an id or an address has more in it.
_PLAIN_NAME = re.compile(r"[A-Za-z_.:/-]{1,50}")


def event_name(signal: SendSignal) -> str:
    """What a signal is counted as: its name, if nothing of a run or of a caller's is in it."""
    kind, _, key = signal.type.partition(":")
    name = signal.type
    if kind in ("advance", "resolve"):  # with the key of a step
        name = f"{kind}:{_NUMBERS.sub('', key).rpartition('.')[2]}"
    return name if _PLAIN_NAME.fullmatch(name) else "other"

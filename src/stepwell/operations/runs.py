"""Runs: started, looked at, talked to, stopped, and begun again."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from stepwell.errors import (
    DefinitionDisabled,
    InputInvalid,
    InvalidDefinition,
    QueueFull,
    QuotaExceeded,
    RevisionNotFound,
    RunEndedBadly,
    RunNotFailed,
    RunNotFound,
    SignalNotDelivered,
    StepNotFound,
    UnknownDefinition,
)
from stepwell.kernel.codec import decode
from stepwell.kernel.durations import seconds
from stepwell.kernel.pacing import MAX_PRIORITY
from stepwell.kernel.run import ErrorInfo, Explanation, Page, Run
from stepwell.kernel.states import RunStatus
from stepwell.operation import TIDY_UP, Count, DefinitionRef, Noun, Started, Workspace, operation

RunId = Annotated[str, Meta(description="The run's id.")]
Span = Annotated[str | float, Meta(description='Seconds, or a text such as "90s", "10m", "2d".')]
Moment = Annotated[datetime, Meta(tz=True)]

# How long a caller is kept waiting at most, whatever it prefers.
LONGEST_WAIT_SECONDS = 60.0

_STARTING = (UnknownDefinition, DefinitionDisabled, InputInvalid, QueueFull, QuotaExceeded)


class StartedRun(msgspec.Struct, frozen=True):
    """A run that was started; how it ended, if that was waited for and came in time."""

    id: str
    # False if an earlier start with the same idempotency key had made it.
    created: bool
    status: str = "pending"
    output: Any = None
    error: ErrorInfo | None = None


class RunCounts(msgspec.Struct, frozen=True):
    """How many runs of a definition there are in each status."""

    definition: str
    runs: dict[str, int]


class Runs(Noun):
    """The runs of a workspace."""

    noun = "runs"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._engine = workspace.engine

    # The run itself says who started it: a row would be a second commit for each start.
    @operation(
        "POST /definitions/{ref}/runs", needs="run", status=201, caller={"user": "name"},
        audited=False, raises=_STARTING, example={"ref": "hello", "input": {"name": "Ada"}},
    )  # fmt: skip
    async def start(
        self,
        ref: DefinitionRef,
        input: Any = None,
        *,
        idempotency_key: str | None = None,
        wait: Span | None = None,
        version: int | None = None,
        delay: Span | None = None,
        deadline: Span | None = None,
        priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None = None,
        concurrency_key: str | None = None,
        concurrency_limit: Annotated[int, Meta(ge=1)] | None = None,
        max_queued_runs: Annotated[int, Meta(ge=0)] | None = None,
        retention: Span | None = None,
        ttl: Span | None = None,
        user: str | None = None,
    ) -> StartedRun:
        """Start a run of a definition.

        A second start with the same `idempotency_key` gives back the run of the first. With `wait`
        the answer comes when the run has ended, or that time is up: at most a minute. `deadline`
        is how long it may take, `ttl` how long it may be queued, `retention` how long it is kept
        after its end.
        """
        options = {
            name: value
            for name, value in {
                "idempotency_key": idempotency_key, "version": version, "delay": delay,
                "deadline": deadline, "priority": priority, "concurrency_key": concurrency_key,
                "concurrency_limit": concurrency_limit, "max_queued_runs": max_queued_runs,
                "retention": retention, "ttl": ttl, "user": user or None,
            }.items()
            if value is not None
        }  # fmt: skip
        return await self._started(await self._engine.start(ref, input, **options), wait)

    @operation(
        "POST /runs", needs="build", status=201, caller={"user": "name"},
        raises=(*_STARTING, InvalidDefinition),
        example={"document": TIDY_UP},
    )  # fmt: skip
    async def start_document(
        self,
        document: dict[str, Any],
        input: Any = None,
        *,
        idempotency_key: str | None = None,
        wait: Span | None = None,
        user: str | None = None,
    ) -> StartedRun:
        """Start a run of a document that need not be published; the run is pinned to it."""
        started = await self._engine.start_document(
            document, input, idempotency_key=idempotency_key, user=user or None
        )
        return await self._started(started, wait)

    async def _started(self, started: Started, wait: Span | None) -> StartedRun:
        if wait is None and started.created:
            return StartedRun(started.id, started.created)
        if wait is not None:
            await self._await(started.id, wait)
        run = await self._engine.get_run(started.id)
        return StartedRun(run.id, started.created, run.status, run.output, run.error)

    async def _await(self, run_id: str, wait: Span) -> None:
        """Wait until a run has ended, or the caller wants to wait no longer."""
        # A header has nothing but text: seconds are no number there.
        number = isinstance(wait, str) and wait.replace(".", "", 1).isdecimal()
        timeout = min(seconds(float(wait) if number else wait, "wait"), LONGEST_WAIT_SECONDS)
        with suppress(RunEndedBadly, TimeoutError):
            await self._engine.result(run_id, timeout=timeout)

    # -- looking -------------------------------------------------------------------------

    @operation(
        "GET /runs", needs="read", also=("/definitions/{definition}/runs",),
        raises=(UnknownDefinition,),
    )  # fmt: skip
    async def list(
        self,
        *,
        status: builtins.list[RunStatus] | None = None,
        definition: DefinitionRef | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        input: Mapping[str, Any] | None = None,
        limit: Count = 50,
        cursor: str | None = None,
    ) -> Page:
        """Runs, the newest first: `items`, and a `next_cursor` for those behind them.

        `since` and `until` are times; a query may also have dates, which begin in UTC. `input` is
        what inputs have to contain. A cursor belongs to its list: `status`,
        `definition` and `input` stay the same.
        """
        return await self._engine.list_runs(
            status=status, definition=definition, since=since, until=until, input=input,
            limit=limit, cursor=cursor,
        )  # fmt: skip

    @operation("GET /runs/counts", needs="read")
    async def counts(self) -> builtins.list[RunCounts]:
        """How many runs of each definition are in each status."""
        return [RunCounts(*each) for each in (await self._engine.count_runs()).items()]

    @operation("GET /runs/{run_id}", needs="read", raises=(RunNotFound,))
    async def get(self, run_id: RunId) -> Run:
        """The run as it is now."""
        return await self._engine.get_run(run_id)

    @operation("GET /runs/{run_id}/explain", needs="read", raises=(RunNotFound,))
    async def explain(self, run_id: RunId) -> Explanation:
        """Why the run is where it is: a code, a sentence, and what it is about."""
        return await self._engine.explain(run_id)

    @operation(
        "GET /runs/{run_id}/document", needs="read", result="document",
        raises=(RunNotFound, RevisionNotFound),
    )  # fmt: skip
    async def document(self, run_id: RunId) -> Any:
        """The document that a run executes, published or not; not if it is one of Python code."""
        run = await self._engine.get_run(run_id)
        text = None
        if run.revision is not None:
            text = await self._workspace.store.records.document(self._workspace.id, run.revision)
        if text is None:
            raise RevisionNotFound(f"Run {run_id} executes no document.", run_id=run_id)
        return decode(text)

    # -- changing ------------------------------------------------------------------------

    @operation("POST /runs/{run_id}/cancel", needs="run", result="cancelled", raises=(RunNotFound,))
    async def cancel(self, run_id: RunId) -> bool:
        """Cancel a run and its children; false if it had already ended."""
        return await self._engine.cancel(run_id)

    @operation(
        "POST /runs/{run_id}/retry", needs="run", status=201, caller={"user": "name"},
        raises=(RunNotFound, RunNotFailed, *_STARTING),
    )  # fmt: skip
    async def retry(
        self, run_id: RunId, *, idempotency_key: str | None = None, user: str | None = None
    ) -> StartedRun:
        """A new run that goes on where a failed, cancelled or timed out one stopped.

        A second retry of the run with the same `idempotency_key` gives back the first one's.
        """
        started = await self._engine.retry(
            run_id, idempotency_key=idempotency_key, user=user or None
        )
        return await self._started(started, None)

    @operation(
        "POST /runs/{run_id}/fork", needs="run", status=201, caller={"user": "name"},
        raises=(RunNotFound, StepNotFound, *_STARTING),
        example={"from_step": "charge"},
    )  # fmt: skip
    async def fork(
        self, run_id: RunId, from_step: str, *, input: Any = msgspec.UNSET,
        version: int | None = None, idempotency_key: str | None = None,
        user: str | None = None,
    ) -> StartedRun:  # fmt: skip
        """A new run that has the journal of another up to a step, and executes that one anew.

        `input` and `version` are those of the other run unless given. A second fork of the run with
        the same `idempotency_key` gives back the first one's.
        """
        changed = ... if input is msgspec.UNSET else input
        started = await self._engine.fork(
            run_id, from_step, input=changed, version=version,
            idempotency_key=idempotency_key, user=user or None,
        )  # fmt: skip
        return await self._started(started, None)

    @operation(
        "POST /runs/{run_id}/signals/{event}", needs="run", status=202, result="delivered",
        raises=(RunNotFound, SignalNotDelivered),
        example={"event": "paid", "payload": {"by": "card"}},
    )  # fmt: skip
    async def signal(
        self, run_id: RunId, event: str, payload: Any = None, *,
        idempotency_key: str | None = None,
    ) -> bool:  # fmt: skip
        """Send a signal to a run, which keeps it until it waits for that.

        A second one of that name with the same `idempotency_key` is not sent again.
        """
        sent = await self._engine.signal(run_id, event, payload, idempotency_key=idempotency_key)
        if not sent:
            raise SignalNotDelivered(
                f"Run {run_id} has ended; no signal reaches it any more.", run_id=run_id
            )
        return True

"""One step at work: its attempts, its retries, and what is recorded of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Literal

import msgspec

from stepwell.engine.calls import call, call_within
from stepwell.engine.execution import Execution
from stepwell.engine.failures import describe_failure, trace
from stepwell.engine.surroundings import LOGGED_STEP, StepIdentity, current_step
from stepwell.errors import (
    Elsewhere,
    InvalidInput,
    OutcomeUnknown,
    ResultNotSerialisable,
    ResultTooLarge,
    StepTimedOut,
)
from stepwell.kernel.changes import Change, JournalRow, LogAttempt, OpenWait, RecordStep
from stepwell.kernel.clock import SECOND
from stepwell.kernel.codec import encode_result
from stepwell.kernel.crashes import SUSPECT
from stepwell.kernel.retry import Retry
from stepwell.kernel.states import OPEN

log = logging.getLogger("stepwell.step")

OnUnknown = Literal["fail", "retry", "ask"]


def entry_of(record: RecordStep) -> JournalRow:
    """The journal entry that a recorded change has become."""
    return JournalRow(
        record.key, record.seq, record.position, record.kind, record.status, record.attempts,
        record.output, record.error, record.started_at, record.completed_at,
    )  # fmt: skip


class StepCall:
    """A step that the journal has no result for yet."""

    def __init__(
        self, execution: Execution, key: str, seq: int, key_base: str,
        function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        retry: Retry, limit: float | None, threads: Executor, max_result_bytes: int,
    ) -> None:  # fmt: skip
        self._execution = execution
        self._key = key
        self._seq = seq
        self._idempotency_key = f"{key_base}:{key}"
        self._function = function
        self._args = args
        self._kwargs = kwargs
        self._retry = retry
        self._limit = limit
        self._threads = threads
        self._max_result_bytes = max_result_bytes
        self._failures = 0
        self.started_at = execution.clock.now()
        self._began_at: int | None = None
        self._waited = False
        # What to do when the outcome of a `once` step is not known; None for other steps.
        self._on_unknown: OnUnknown | None = None

    def in_progress(self) -> RecordStep:
        """The entry that shows this step as running."""
        return self.record("running", None, None)

    def record(self, status: str, output: str | None, error: str | None) -> RecordStep:
        """This step's journal entry as it stands."""
        running = status in OPEN
        return RecordStep(
            self._execution.held, self._key, self._seq, "step", status,
            self._failures + (1 if status in ("running", "completed") else 0),
            output, error, self.started_at,
            None if running else self._execution.clock.now(),
            settles=self._waited, began_at=self._began_at,
        )  # fmt: skip

    async def attempts(self, entry: JournalRow | None) -> JournalRow:
        """Try until it works or the policy gives up; the entry that settles the step."""
        execution = self._execution
        if entry is not None:
            self._failures = entry.attempts if entry.status == "retrying" else entry.attempts - 1
            self.started_at = entry.started_at
            if self._key in execution.waits.rows:
                await self._back_off(0)
        while True:
            began = self._began_at = execution.clock.now()
            # One of a run that may have taken its workers down is to be known by name.
            written = self._on_unknown is not None or execution.claimed.attempt > SUSPECT
            if written:
                await execution.record(self.in_progress())
            notes = execution.notes
            if notes.undecided or notes.lost:  # the function may act on it: it has to stay so
                await execution.decided()
            if not written:
                execution.writer.begun(self)
            try:
                output = await self._call()
            except Elsewhere as error:
                execution.leave()
                try:
                    await execution.elsewhere(error.program)
                finally:
                    execution.enter()
            except Exception as error:
                settled = await self._failed(error, began)
                if settled is not None:
                    return settled
            else:
                record = self.record("completed", output, None)
                await execution.record(record)
                return entry_of(record)

    async def _call(self) -> str:
        execution, attempt = self._execution, self._failures + 1
        identity = StepIdentity(execution.run_id, self._key, attempt, self._idempotency_key)
        token = current_step.set(identity)
        telemetry = execution.telemetry
        if telemetry.traces:
            entered = telemetry.step_entered(execution.claimed, self._key, attempt)
        try:
            if self._limit is None:
                value = await call(self._function, self._args, self._kwargs, self._threads)
            else:
                value = await call_within(
                    self._limit, execution.clock, self._key,
                    self._function, self._args, self._kwargs, self._threads,
                )  # fmt: skip
        finally:
            if telemetry.traces:
                telemetry.step_left(entered)
            current_step.reset(token)
            execution.writer.over(self)
        return encode_result(value, self._max_result_bytes)

    async def _failed(self, error: Exception, began: int) -> JournalRow | None:
        """Record a failure: the step's last, or one more attempt with a wait before the next."""
        execution = self._execution
        if isinstance(error, StepTimedOut) and self._on_unknown in ("fail", "ask"):
            return await self._unknown("It ran into its timeout and may still take effect.")
        self._failures += 1
        described = describe_failure(error, self._key)
        # The function did its work; doing it again would not make its result any better.
        hopeless = isinstance(error, ResultNotSerialisable | ResultTooLarge)
        attempt = LogAttempt(
            execution.held, self._key, self._failures, described, began, execution.clock.now()
        )
        final = hopeless or not self._retry.allows(error, self._failures)
        log.log(
            logging.WARNING if final else logging.INFO,
            "Run %s: attempt %d of step %r failed%s.\n%s",
            execution.run_id, self._failures, self._key, "" if final else ", to be tried again",
            trace(error), extra={LOGGED_STEP: (self._key, self._failures)},
        )  # fmt: skip
        if final:
            record = self.record("failed", None, described)
            await execution.record(attempt, record)
            return entry_of(record)
        delay = self._retry.delay(self._failures, execution.fraction())
        # Whoever was asked may have said when to ask again.
        delay = max(delay, getattr(error, "retry_after_seconds", None) or 0)
        await self._back_off(delay, attempt, self.record("retrying", None, described))
        return None

    async def _back_off(self, delay: float, *failure: Change) -> None:
        """Wait durably before the next attempt; a long wait parks the run."""
        execution = self._execution
        now = execution.clock.now()
        opening = OpenWait(
            execution.held, self._key, self._seq, "retry", now, due_at=now + int(delay * SECOND)
        )
        await self._wait(opening, *failure)

    async def _wait(self, opening: OpenWait, *companions: Change) -> str | None:
        execution = self._execution
        execution.leave()
        try:
            row = await execution.wait(self._key, opening, *companions)
        finally:
            execution.enter()
        self._waited = True
        return row.result

    # -- once ----------------------------------------------------------------------------

    async def once(self, entry: JournalRow | None, on_unknown: OnUnknown) -> JournalRow:
        """Write the intent down first, so that an interruption is known to have happened."""
        if on_unknown not in ("fail", "retry", "ask"):
            raise InvalidInput(f"on_unknown must be fail, retry or ask, not {on_unknown!r}.")
        self._on_unknown = on_unknown
        if entry is not None and entry.status == "running":
            self._failures, self.started_at = entry.attempts - 1, entry.started_at
            decided = await self._unknown("It was interrupted, and may or may not have happened.")
            if decided is not None:
                return decided
        return await self.attempts(entry)

    async def _unknown(self, reason: str) -> JournalRow | None:
        """Nobody knows whether the step took effect; None to run it again."""
        if self._on_unknown == "fail":
            return await self._fail_unknown(reason)
        return await self._ask() if self._on_unknown == "ask" else None

    async def _fail_unknown(self, reason: str) -> JournalRow:
        error = OutcomeUnknown(f"The outcome of step {self._key!r} is unknown. {reason}")
        self._failures += 1
        record = self.record("failed", None, describe_failure(error, self._key))
        await self._execution.record(record)
        return entry_of(record)

    async def _ask(self) -> JournalRow | None:
        """Wait for somebody to say what became of the step; None to run it again."""
        execution = self._execution
        companions: tuple[Change, ...] = ()
        while True:
            opening = OpenWait(
                execution.held, self._key, self._seq, "unknown", execution.clock.now(),
                event=f"resolve:{self._key}",
            )  # fmt: skip
            answer = msgspec.json.decode(await self._wait(opening, *companions) or "null")
            action = answer.get("action") if isinstance(answer, dict) else answer
            if action == "retry":
                return None
            if action == "fail":
                return await self._fail_unknown("It was resolved as failed.")
            if isinstance(answer, dict) and "output" in answer:
                output = encode_result(answer["output"], self._max_result_bytes)
                record = self.record("completed", output, None)
                await execution.record(record)
                return entry_of(record)
            log.warning(
                'Run %s: %r does not resolve step %r. Send {"action": "retry"}, '
                '{"action": "fail"} or {"output": …}.',
                execution.run_id, answer, self._key,
            )  # fmt: skip
            companions = (self.in_progress(),)  # the wait has served; it is opened anew

"""The context: what a program may do durably."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import datetime
from typing import Any

import msgspec

from stepwell.engine.awaiting import Awaiting
from stepwell.engine.calls import call_in_thread
from stepwell.engine.execution import Execution
from stepwell.engine.failures import describe_child_failure, describe_failure
from stepwell.engine.journaling import WaitOutcome, value_of
from stepwell.engine.starting import Starter
from stepwell.engine.stepcall import OnUnknown, StepCall, entry_of
from stepwell.engine.surroundings import anchor, current_step
from stepwell.errors import (
    ContextMisuse,
    InvalidInput,
    RecursionTooDeep,
    StepwellError,
    StoreUnavailable,
)
from stepwell.kernel.changes import Change, JournalRow, OpenWait, RecordStep, StartRun, WaitRow
from stepwell.kernel.clock import moment, sleep
from stepwell.kernel.codec import encode
from stepwell.kernel.durations import Duration, seconds
from stepwell.kernel.names import check_text
from stepwell.kernel.retry import Retry
from stepwell.kernel.states import OPEN, SETTLED
from stepwell.kernel.tracing import TRACEPARENT, run_span, step_span
from stepwell.record import VersionRow

# How many runs of graphs may have started each other, one below the other.
MAX_DEPTH = 1000


class Context(Awaiting):
    """Handed to every program as `ctx`. Each operation is journaled under its name."""

    def __init__(
        self, execution: Execution, starter: Starter, threads: Executor,
        retry: Retry, max_result_bytes: int,
    ) -> None:  # fmt: skip
        super().__init__(execution, starter)
        self._threads = threads
        self._retry = retry
        self._max_result_bytes = max_result_bytes
        self._key_base = execution.claimed.key_base or execution.run_id
        # Changes that ctx.patched() is being asked about for the first time.
        self._deciding: dict[str, asyncio.Future[None]] = {}

    # -- facts ---------------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._execution.run_id

    @property
    def attempt(self) -> int:
        """In a step function the step's attempt, elsewhere the run's; both count from 1."""
        step = current_step.get()
        return step.attempt if step is not None else self._execution.claimed.attempt

    @property
    def idempotency_key(self) -> str:
        """Stable across attempts: in a step function the step's, elsewhere the run's."""
        step = current_step.get()
        if step is not None:
            return step.idempotency_key
        return self._execution.claimed.idempotency_key or self._key_base

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context for requests to others: of the step at hand, or of the run."""
        step = current_step.get()
        if step is None:
            return self._traceparent(run_span(self.run_id))
        return self._traceparent(step_span(step.run_id, step.key, step.attempt))

    @property
    def cancelled(self) -> bool:
        """Whether the run was cancelled, ended, or taken over while this code runs."""
        return self._execution.cancelled

    def now(self) -> datetime:
        """The time, the same again on every replay."""
        execution = self._execution
        if current_step.get() is not None:
            at = execution.clock.now()
        else:
            key, seq = execution.keys.next_moment(anchor.get())
            entry = execution.entry(key, "now")
            if entry is None:
                at = execution.clock.now()
                execution.notes.decide(
                    RecordStep(
                        execution.held, key, seq, "now", "completed", 1, str(at), None, at, at
                    )
                )
            else:
                at = int(entry.output or 0)
        return moment(at)

    # -- steps ---------------------------------------------------------------------------

    async def step(
        self, name: str, function: Callable[..., Any], /, *args: Any,
        retry: Retry | None = None, timeout: Duration | None = None,
        once: bool = False, on_unknown: OnUnknown = "fail", **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Call a function and journal what it returns; a recorded step never runs again.

        A plain function runs in a thread, which nobody can stop: after its timeout it may go on
        beside the next attempt. With `once`, a step that was interrupted or ran into its timeout
        is not simply run again: `on_unknown` says whether to fail it, retry it, or ask by
        waiting for the signal `resolve:<step>`. A step that fails raises an error that is a
        StepFailed and also of the class its function raised.
        """
        key, seq = self._begin(name)
        execution = self._execution
        entry = execution.entry(key, "step")
        if entry is not None and entry.status in SETTLED:
            return await self._replay(entry, once=once)
        if not callable(function):
            raise InvalidInput(f"Step {key!r} was given {function!r}, which cannot be called.")
        if retry is not None and not isinstance(retry, Retry):
            raise InvalidInput(f"retry of step {key!r} must be a Retry, not {retry!r}.")
        limit = None if timeout is None else seconds(timeout, f"The timeout of step {key!r}")
        work = StepCall(
            execution, key, seq, self._key_base, function, args, kwargs, retry or self._retry,
            limit, self._threads, self._max_result_bytes,
        )  # fmt: skip
        try:  # what `_giving_up` does, without what that costs a step
            await execution.caught_up()
            execution.enter()
            try:
                if once:
                    return await self._settled(await work.once(entry, on_unknown))
                return await self._settled(await work.attempts(entry))
            finally:
                execution.leave()
        except asyncio.CancelledError:
            self._skip(key, seq, "step", work.started_at, unknown=once)
            raise

    async def in_thread(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a plain function in one of the threads that steps have."""
        return await call_in_thread(self._threads, function, *args, **kwargs)

    # -- children ------------------------------------------------------------------------

    async def start_child(
        self, name: str, definition: str, input: Any = None, **options: Any
    ) -> ChildHandle:
        """Start a child and go on; the handle has its id and a durable `result()`."""
        key, seq = self._begin(name)
        execution = self._execution
        entry = execution.entry(key, "start", "child")  # of journals from before there was `start`
        if entry is None:
            with self._giving_up(key, seq, "start"):
                await execution.caught_up()
                with self._at_work():
                    entry = await self._start_child(key, seq, definition, input, options)
                    await self._settled(entry)
        else:
            if entry.status in OPEN:  # of a run that was retried, and whose child had failed
                entry = await self._start_again(entry, definition, input, options)
            await self._replay(entry)
        return ChildHandle(self, key, value_of(entry))

    async def _start_again(
        self, entry: JournalRow, definition: str, input: Any, options: dict[str, Any]
    ) -> JournalRow:
        """Start a child once more, in the place of the first one, and before anything after it.

        What the program heard until then did not make it give this up: if it does so now, a timer
        of its own runs out only because the replay is slow.
        """
        execution = self._execution
        with self._at_work(), execution.holding_up():
            again = asyncio.ensure_future(
                self._start_child(entry.key, entry.seq, definition, input, options, entry)
            )
            while not again.done():
                try:
                    await asyncio.wait([again])
                except asyncio.CancelledError:
                    if execution.departed:
                        again.cancel()
                        raise
            return again.result()

    async def _start_child(
        self, key: str, seq: int, definition: str, input: Any, options: dict[str, Any],
        before: JournalRow | None = None,
    ) -> JournalRow:  # fmt: skip
        """Start a child and record it, in the place of the entry from `before`."""
        execution = self._execution
        now = execution.clock.now()
        record = RecordStep(execution.held, key, seq, "start", "completed", 1, None, None, now, now)
        if before is not None:
            record.position, record.in_place = before.position, True
        changes: list[Change] = [record]
        try:
            child = await self._child(key, definition, input, options)
            record.output = encode(child.id, "A child's id")
            changes.insert(0, child)
        except StepwellError as error:
            record.status, record.error = "failed", describe_failure(error, key)
        await execution.record(*changes)
        return entry_of(record)

    async def run_child(self, name: str, definition: str, input: Any = None, **options: Any) -> Any:
        """Start a child and wait for its output; raises RunFailed and its kin if it has none."""
        key, seq = self._begin(name)
        execution = self._execution
        entry = execution.entry(key, "child")
        if entry is not None and entry.status in SETTLED:
            return await self._replay(entry)
        with self._giving_up(key, seq, "child"):
            waiting = execution.waits.rows.get(key)
            if waiting is not None:
                assert waiting.child_run_id is not None
                return await self._outlast(key, seq, waiting.child_run_id)
            if entry is not None:  # of a run that was retried, and left the child at work
                return await self._outlast(key, seq, value_of(entry))
            return await self._run_child(key, seq, definition, input, options)

    async def _run_child(
        self, key: str, seq: int, definition: str, input: Any, options: dict[str, Any]
    ) -> Any:
        execution = self._execution
        with self._at_work():
            try:
                child = await self._child(key, definition, input, options)
            except StepwellError as error:
                now = execution.clock.now()
                failed = describe_failure(error, key)
                record = RecordStep(
                    execution.held, key, seq, "child", "failed", 1, None, failed, now, now
                )
                await execution.record(record)
                return await self._settled(entry_of(record))
        self._children[key] = child.id
        opening = self._child_wait(key, seq, child.id)
        entry = await self._wait(opening, _child_outcome(key, opening), child)
        return await self._settled(entry, waited=True)

    async def _child(
        self, key: str, definition: str, input: Any, options: dict[str, Any]
    ) -> StartRun:
        if "idempotency_key" in options:
            raise InvalidInput("A child needs no idempotency_key: its parent's journal is one.")
        while True:
            try:
                child = await self._starter.prepare(
                    definition,
                    input,
                    parent_run_id=self.run_id,
                    parent_deadline_at=self.claimed.deadline_at,
                    trigger=self._starts_child(key),
                    pinned=await self._own_version(definition, options),
                    **options,
                )
                child.held = self._execution.held
                return child
            except StoreUnavailable:  # no answer is no refusal: ask again, record nothing
                await sleep(self._execution.clock, 0.5)
            except StepwellError:
                raise
            except Exception as error:  # of the store's, for all that anybody can tell
                if self._execution.begins_again(error):
                    raise self._execution.leaving() from None
                raise

    def _starts_child(self, key: str) -> dict[str, Any]:
        """What started a child; whether anybody looks after it is as with its parent."""
        own = msgspec.json.decode(self.claimed.trigger) if self.claimed.trigger else {}
        depth = own.get("depth", 0) + 1
        if depth > MAX_DEPTH and self.claimed.revision is not None:
            raise RecursionTooDeep(
                f"{MAX_DEPTH:,} runs have started each other, and {key!r} would start one more. "
                "A condition that ends this never holds."
            )
        inherited = {name: own[name] for name in ("auto_advance",) if name in own}
        if (trace := self._traceparent(step_span(self.run_id, key, 1))) is not None:
            inherited[TRACEPARENT] = trace
        return {"type": "run", "run_id": self.run_id, "step": key, "depth": depth, **inherited}

    async def _own_version(self, definition: str, options: dict[str, Any]) -> VersionRow | None:
        """A run of data that starts its own definition starts the revision it has itself."""
        claimed = self.claimed
        if claimed.revision is None or definition != claimed.definition or "version" in options:
            return None
        return await self._starter.version_of(claimed.revision, claimed.version)

    def _child_wait(self, key: str, seq: int, child_run_id: str) -> OpenWait:
        execution = self._execution
        return OpenWait(
            execution.held, key, seq, "child", execution.clock.now(), child_run_id=child_run_id
        )

    async def _child_result(self, start_key: str, run_id: str) -> Any:
        key, seq = self._begin_own(f"{start_key}.result")
        entry = self._execution.entry(key, "child")
        if entry is not None and entry.status in SETTLED:
            return await self._replay(entry)
        with self._giving_up(key, seq, "child"):
            return await self._outlast(key, seq, run_id)

    async def _outlast(self, key: str, seq: int, run_id: str) -> Any:
        """Wait for a child that is there already."""
        self._children[key] = run_id
        opening = self._child_wait(key, seq, run_id)
        entry = await self._wait(opening, _child_outcome(key, opening))
        return await self._settled(entry, waited=True)

    # -- code changes --------------------------------------------------------------------

    async def patched(self, change_id: str) -> bool:
        """Whether to take the new way: True in runs that had not come this far before it."""
        check_text(change_id, "A change's id")
        execution = self._execution
        execution.writer.check_loop()
        if current_step.get() is not None:
            raise ContextMisuse("ctx.patched() cannot be used inside a step function.")
        deciding = self._deciding.get(change_id)
        if deciding is not None:  # a branch beside this one asks: they hear of it together
            await asyncio.wait([deciding])
        known = execution.patches.get(change_id)
        if known is not None:
            return known
        key = f"patch:{change_id}"
        entry = execution.entry(key, "patch")
        if entry is None and execution.replaying:
            execution.patches[change_id] = False
            return False
        execution.patches[change_id] = True
        deciding = self._deciding[change_id] = asyncio.get_running_loop().create_future()
        try:
            await self._decide(key, entry)
        finally:
            del self._deciding[change_id]
            deciding.set_result(None)
        return True

    async def _decide(self, key: str, entry: JournalRow | None) -> None:
        """Hear of the new way, or make it durable that it is taken."""
        execution = self._execution
        execution.deliveries.begins(execution.task)
        _, seq = execution.keys.next(key)
        if entry is not None:
            # It may have been given up by whoever asked first: that is not in the journal.
            await self._turn_of(entry)
            self._outcome(entry)
            return
        with self._at_work():
            now = execution.clock.now()
            record = RecordStep(
                execution.held, key, seq, "patch", "completed", 1, "true", None, now, now
            )
            execution.notes.decide(record)
            await execution.record()
            await self._settled(entry_of(record))


class ChildHandle:
    """A child run that was started."""

    def __init__(self, context: Context, key: str, run_id: str) -> None:
        self._context = context
        self._key = key
        self.id = run_id

    async def result(self) -> Any:
        """The child's output, waited for durably."""
        return await self._context._child_result(self._key, self.id)


def _child_outcome(key: str, opening: OpenWait) -> WaitOutcome:
    def outcome(row: WaitRow) -> tuple[str, str | None, str | None]:
        assert row.result is not None
        assert opening.child_run_id is not None
        status, output, error = msgspec.json.decode(row.result)
        if status == "completed":
            return "completed", output, None
        return "failed", None, describe_child_failure(status, opening.child_run_id, error, key)

    return outcome

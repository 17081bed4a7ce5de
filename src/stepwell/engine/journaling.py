"""How durable operations begin, are replayed, and end: what all of them have in common."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from stepwell.engine.execution import Execution
from stepwell.engine.failures import recorded_failure
from stepwell.engine.starting import Starter
from stepwell.engine.stepcall import entry_of
from stepwell.engine.surroundings import anchor, current_step
from stepwell.errors import ContextMisuse
from stepwell.kernel.changes import Change, ClaimedRun, JournalRow, OpenWait, RecordStep, WaitRow
from stepwell.kernel.codec import MAX_RESULT_BYTES, decode, encode
from stepwell.kernel.names import check_step_name, is_repeated
from stepwell.kernel.states import SETTLED
from stepwell.kernel.tracing import passed_on

# How a wait that has ended goes into the journal: status, output, error.
WaitOutcome = Callable[[WaitRow], tuple[str, str | None, str | None]]


class Journaling:
    """Operations against one run's journal."""

    def __init__(self, execution: Execution, starter: Starter) -> None:
        self._execution = execution
        self._starter = starter
        # The children that are waited for, by the key of the wait: a retry finds them again.
        self._children: dict[str, str] = {}
        # Parts of a graph in which children are not wanted any more once they are given up.
        self._abandoned: list[str] = []

    def _begin(self, name: str) -> tuple[str, int]:
        return self._begin_own(check_step_name(name))

    def _begin_own(self, name: str) -> tuple[str, int]:
        """The same for a name of the engine's making, which may be longer than others."""
        self._execution.writer.check_loop()
        if current_step.get() is not None:
            raise ContextMisuse(
                f"{name!r} was called inside a step function; durable operations belong in the "
                "workflow function, or in a child run."
            )
        self._execution.deliveries.begins(self._execution.task)
        # What ends like a repetition must not be taken for one.
        return self._execution.keys.next(f"{name}." if is_repeated(name) else name)

    async def _replay(self, entry: JournalRow, *, once: bool = False) -> Any:
        if entry.status == "skipped":
            # The program gave this up before and will do so again; until then it waits.
            await asyncio.get_running_loop().create_future()
        try:
            await self._turn_of(entry)
        except asyncio.CancelledError:
            self._skip(entry.key, entry.seq, entry.kind, entry.started_at, unknown=once)
            raise
        return self._outcome(entry)

    async def _turn_of(self, entry: JournalRow) -> None:
        """Return when it is time to hear of a recorded result; CancelledError if it is given up."""
        execution = self._execution
        deliveries = execution.deliveries
        turn = deliveries.replayed(entry.position)
        while turn is not None:
            try:
                await turn
                return
            except asyncio.CancelledError:
                if execution.departed or not (deliveries.timed and execution.replaying):
                    raise
                # More was recorded after it, so the program has seen this result: its timer runs
                # out only because the replay is slow.
                turn = deliveries.again(entry.position)

    def _skip(
        self, key: str, seq: int, kind: str, started_at: int, *, unknown: bool = False,
        output: str | None = None,
    ) -> None:  # fmt: skip
        """Note that the program gave this up before it saw a result. What a wait took goes back.

        It is written with whatever is recorded next, and not before: all of the program may be
        being cancelled, to go on elsewhere. What is `unknown` may have happened all the same.
        """
        execution = self._execution
        if execution.departed:
            return
        execution.notes.decide(
            RecordStep(
                execution.held, key, seq, kind, "skipped", 1, output, None, started_at,
                None if unknown else execution.clock.now(), settles=True,
            )
        )  # fmt: skip

    async def _settled(self, entry: JournalRow, *, waited: bool = False) -> Any:
        """The result of what was just recorded; what was waited for is not under way any more."""
        under_way = 0 if waited else 1
        turn = self._execution.deliveries.recorded(entry.position, under_way=under_way)
        if turn is not None:
            await turn
        return self._outcome(entry)

    @contextmanager
    def _giving_up(self, key: str, seq: int, kind: str) -> Iterator[None]:
        """Note it if the program cancels this operation, wherever it stands, before its result."""
        try:
            yield
        except asyncio.CancelledError:
            child_run_id = self._children.get(key)
            self._skip(
                key, seq, kind, self._execution.clock.now(),
                output=None if child_run_id is None else encode(child_run_id, "A child's id"),
            )  # fmt: skip
            if child_run_id is not None and self._is_abandoned(key):
                cancellation = self._starter.cancellation(child_run_id)
                cancellation.held = self._execution.held
                self._execution.notes.add(cancellation)
            raise
        finally:
            self._children.pop(key, None)

    def _is_abandoned(self, key: str) -> bool:
        inside = (
            each in ("", key) or key.startswith((f"{each}.", f"{each}[", f"{each}#"))
            for each in self._abandoned
        )
        return not self._execution.departed and any(inside)

    @property
    def claimed(self) -> ClaimedRun:
        """The run as it was claimed."""
        return self._execution.claimed

    def _traceparent(self, span_id: str) -> str | None:
        """The W3C trace context for whoever is asked to do something by that span of the run."""
        claimed, traces = self.claimed, self._execution.telemetry.traces
        return passed_on(claimed.id, claimed.trigger, span_id, traces=traces)

    def has_recorded(self, key: str) -> bool:
        """Whether the journal has an end for this already."""
        entry = self._execution.entries.get(key)
        return entry is not None and entry.status in SETTLED

    def at_work(self) -> AbstractContextManager[None]:
        """While inside, the run is not given back for only waiting."""
        return self._at_work()

    def waits_for(self, key: str) -> bool:
        """Whether the run has a wait of that key since before its program was begun."""
        return key in self._execution.waits.rows

    def rest_in_branches(self, turns: int) -> None:
        """Say that the program only ever waits for its branches, and they only durably.

        `turns` of the loop are what it takes at most until a result has come to where the
        program goes on because of it.
        """
        execution = self._execution
        execution.blocking = True
        execution.park_turns = max(execution.park_turns, turns)
        execution.deliveries.settle_turns = max(execution.deliveries.settle_turns, turns)

    async def elsewhere(self, program: str) -> None:
        """Wait for a worker that has this program, and let the run go there."""
        await self._execution.elsewhere(program)

    def abandon(self, key: str = "") -> None:
        """Cancel the children that are given up from now on, everywhere or only inside this key.

        Others are left alone: a retry of their parent may still wait for them.
        """
        self._abandoned.append(key)

    def remark(self, key: str, status: str, output: Any = None, error: Any = None) -> None:
        """Note how a part of a graph ended, for people; what has an entry of its own needs none.

        Nothing depends on it: the interpreter works it out again whenever it must.
        """
        execution = self._execution
        if execution.keys.has(key):
            return
        key, seq = execution.keys.next(key)
        if key in execution.entries:  # from before it was retried, perhaps as something it did
            return
        now = execution.clock.now()
        shown = None if output is None else encode(output, "An output", sys.maxsize)
        if shown is not None and len(shown) > MAX_RESULT_BYTES:
            shown = None  # it can be seen in its parts
        execution.notes.add(
            RecordStep(
                execution.held, key, seq, "node", status, 1, shown,
                None if error is None else encode(error, "An error"), now, now,
            )
        )  # fmt: skip

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """The program does not only wait while this is under way."""
        self._execution.enter()
        try:
            yield
        finally:
            self._execution.leave()

    def _outcome(self, entry: JournalRow) -> Any:
        anchor.set(entry.key)
        self._execution.deliveries.goes_on()
        if entry.status == "failed":
            raise recorded_failure(entry)
        return value_of(entry)

    async def _wait(
        self, opening: OpenWait, outcome: WaitOutcome,
        *companions: Change,
    ) -> JournalRow:  # fmt: skip
        """Wait, then record how the wait ended.

        The end of a wait is durable before anyone hears of it. So a program that has nothing
        else under way may go on at once, and the entry is written along with its next one.
        """
        execution = self._execution
        row = await execution.wait(opening.key, opening, *companions)
        status, output, error = outcome(row)
        record = RecordStep(
            execution.held, opening.key, opening.seq, opening.kind, status, 1, output, error,
            row.created_at or opening.created_at, execution.clock.now(), settles=True,
        )  # fmt: skip
        deliveries = execution.deliveries
        if deliveries.outstanding == 0 and deliveries.idle and not deliveries.replaying:
            execution.notes.add(record)
        else:
            with self._at_work():
                await execution.record(record)
        return entry_of(record)


def value_of(entry: JournalRow) -> Any:
    return None if entry.output is None else decode(entry.output)

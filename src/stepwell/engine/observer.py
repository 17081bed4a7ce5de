"""The observer: tells telemetry what became durable, in terms of runs, steps and signals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from stepwell.engine.surroundings import nobodys
from stepwell.kernel.changes import (
    FENCED,
    Change,
    Claimed,
    ClaimRuns,
    Committed,
    EndRun,
    LogAttempt,
    RecordStep,
    SendSignal,
    StartRun,
)
from stepwell.kernel.clock import SECOND
from stepwell.kernel.states import NOTED, REPLAYED
from stepwell.store import RunOutline, Store
from stepwell.telemetry import SILENT, Telemetry

log = logging.getLogger("stepwell.observer")

# Of how many runs that others hold it is looked up what they are of, and how many at a time; in
# a flood of signals or cancellations the rest goes untold.
MOST_UNKNOWN, LOOKED_UP = 10_000, 500


class Observer:
    """Makes sense of commits for telemetry."""

    def __init__(self, store: Store, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry
        # Runs that this process does not hold: they have ended, or were sent signals.
        self._ended: dict[str, None] = {}
        self._signals: list[SendSignal] = []
        self._looking: asyncio.Task[None] | None = None

    def heard(self, batch: Sequence[Change], committed: Committed) -> None:
        """A commit of this process's own is durable."""
        telemetry = self._telemetry
        if telemetry is SILENT:
            return
        telemetry.committed(len(batch), committed.took / SECOND)
        own: set[str] = set()
        logged: set[tuple[str, str]] = set()
        for change, outcome in zip(batch, committed.outcomes, strict=True):
            if outcome == FENCED:
                continue
            if type(change) is RecordStep:
                self._step(change, logged)
            elif type(change) is EndRun:
                own.add(change.held.run_id)
                self._end(change)
            elif type(change) is ClaimRuns:
                self._claim(change, outcome)
            elif type(change) is StartRun:
                if outcome[1]:
                    telemetry.run_started(change.definition)
            elif type(change) is LogAttempt:  # before the entry that it belongs to
                logged.add((change.held.run_id, change.key))
                if change.held.claimed is not None:
                    telemetry.attempt_failed(change.held.claimed, change)
            elif type(change) is SendSignal and outcome and len(self._signals) < MOST_UNKNOWN:
                self._signals.append(change)
        self.ended(run_id for run_id in committed.ended if run_id not in own)
        if self._signals:
            self._look_soon()

    def started(self, starts: Sequence[StartRun], committed: Committed) -> None:
        """Triggers have started runs; where a start met an earlier one, that counts."""
        for start, (_, created) in zip(starts, committed.outcomes, strict=True):
            if created:
                self._telemetry.run_started(start.definition)

    def ended(self, run_ids: Iterable[str]) -> None:
        """Runs have ended that were not held here, or not any more."""
        if self._telemetry is SILENT:
            return
        self._ended.update((run_id, None) for run_id in run_ids)
        while len(self._ended) > MOST_UNKNOWN:
            self._ended.popitem()
        if self._ended:
            self._look_soon()

    async def close(self) -> None:
        """Wait until all that was heard is told."""
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=1)
            if self._looking is not None:
                self._looking.cancel()

    def _step(self, change: RecordStep, logged: set[tuple[str, str]]) -> None:
        run = change.held.claimed
        if run is None or change.kind in NOTED:
            return
        if change.status in REPLAYED:
            told = bool(logged) and (change.held.run_id, change.key) in logged
            self._telemetry.step_ended(run, change, told)
        elif change.status == "retrying":
            self._telemetry.step_retried(run, change)

    def _end(self, change: EndRun) -> None:
        if (run := change.held.claimed) is not None:
            self._telemetry.run_ended(
                RunOutline(
                    run.id, run.definition, run.version, change.status, run.created_at,
                    change.completed_at, run.trigger,
                )
            )  # fmt: skip

    def _claim(self, ask: ClaimRuns, claimed: Claimed) -> None:
        for run in claimed.runs:
            if not run.nudge:
                waited = None if run.due_at is None else max(ask.now - run.due_at, 0) / SECOND
                self._telemetry.run_claimed(run, waited)

    def _look_soon(self) -> None:
        if self._looking is None:
            loop = asyncio.get_running_loop()
            self._looking = loop.create_task(self._look_up(), context=nobodys())

    async def _look_up(self) -> None:
        """Find out what runs are of that this process does not hold, and tell of them."""
        try:
            while self._ended or self._signals:
                ended = list(self._ended)[:LOOKED_UP]
                signals, self._signals = self._signals[:LOOKED_UP], self._signals[LOOKED_UP:]
                for run_id in ended:
                    del self._ended[run_id]
                await self._tell(ended, signals)
        except Exception as error:  # the engine goes on, and so does telemetry with what is next
            log.warning("What others did could not be looked up: %r", error)
        finally:
            self._looking = None

    async def _tell(self, ended: Sequence[str], signals: Sequence[SendSignal]) -> None:
        wanted = {*ended, *(signal.run_id for signal in signals)}
        found = {run.id: run for run in await self._store.outlines(list(wanted))}
        for signal in signals:
            if signal.run_id in found:
                self._telemetry.run_signalled(found[signal.run_id], signal)
        for run_id in ended:
            if run_id in found:
                self._telemetry.run_ended(found[run_id])

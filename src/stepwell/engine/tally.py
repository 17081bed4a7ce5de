"""The tally: what became of triggers that fire very often, written down now and then.

A webhook may fire, and refuse, thousands of times a second. That it fired last at some time, and
why it refused, is worth a row now and then, but not one for each: what gathers between two writes
is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec

from stepwell.engine.firing import fired, refused
from stepwell.errors import Overtaken, StepwellError
from stepwell.kernel.clock import SECOND, Clock, Timer
from stepwell.kernel.records import Firing, RefusalRecord, TriggerRecord
from stepwell.store import Store

log = logging.getLogger("stepwell.tally")

# How long it gathers, once it has written something.
PAUSE_SECONDS = 1.0
# Refusals of different kinds in that time; more are counted with the last one of their trigger.
MOST = 100


class Tally:
    """Gathers what becomes of triggers, and writes it down."""

    def __init__(self, store: Store, workspace_id: str) -> None:
        self._triggers = store.triggers
        self._clock: Clock = store.clock
        self._workspace_id = workspace_id
        self._after: dict[str, TriggerRecord] = {}
        self._before: dict[str, TriggerRecord] = {}
        self._refusals: dict[tuple[str, str, str], RefusalRecord] = {}
        self._writing: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._free_at = 0

    def fired(self, trigger: TriggerRecord, run_id: str) -> None:
        """A trigger has started a run."""
        now = self._clock.now()
        self._note(trigger, fired(self._after.get(trigger.id, trigger), run_id, now))

    def refused(self, trigger: TriggerRecord, refusal: RefusalRecord) -> None:
        """A trigger has started none."""
        key = (trigger.id, refusal.code, refusal.message)
        if len(self._refusals) >= MOST and key not in self._refusals:
            key = (trigger.id, refusal.code, "")
        known = self._refusals.get(key)
        count = refusal.count if known is None else known.count + refusal.count
        self._refusals[key] = msgspec.structs.replace(refusal, count=count)
        self._note(trigger, refused(self._after.get(trigger.id, trigger), refusal))

    def _note(self, trigger: TriggerRecord, after: TriggerRecord) -> None:
        self._before.setdefault(trigger.id, trigger)
        self._after[trigger.id] = after
        if self._writing is None and self._timer is None:
            if self._clock.now() >= self._free_at:
                self._write()
            else:
                self._timer = self._clock.call_at(self._free_at, self._write)

    def _write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._free_at = self._clock.now() + int(PAUSE_SECONDS * SECOND)
        self._writing = asyncio.get_running_loop().create_task(self._written())

    async def drained(self) -> None:
        """Return once everything so far is written."""
        while self._after or self._writing is not None:
            if self._writing is None:
                self._write()
            assert self._writing is not None
            await asyncio.wait([self._writing])

    async def _written(self) -> None:
        after, self._after = self._after, {}
        before, self._before = self._before, {}
        refusals, self._refusals = self._refusals, {}
        try:
            if refusals:
                await self._triggers.refuse(self._workspace_id, list(refusals.values()))
            for trigger_id, was in before.items():
                await self._fate(Firing(after[trigger_id], was))
        except StepwellError as error:
            log.warning("What became of triggers could not be written: %s", error)
        finally:
            self._writing = None

    async def _fate(self, firing: Firing) -> None:
        with contextlib.suppress(Overtaken):  # it was changed meanwhile, and begins anew
            await self._triggers.fire(self._workspace_id, [firing], [])

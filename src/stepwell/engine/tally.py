"""The tally: what became of triggers that fire very often, written down now and then.

A webhook may fire, and refuse, thousands of times a second. That it fired last at some time, and
why it refused, is worth a row now and then, but not one for each: what gathers between two writes
is counted. What the store would not take is kept, once, and sent again as it is, so that nothing
is counted twice; what is noted meanwhile goes after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec

from stepwell.engine.firing import fired, refused
from stepwell.errors import Overtaken, StoreUnavailable
from stepwell.kernel.clock import SECOND, Clock, Timer
from stepwell.kernel.records import Firing, RefusalRecord, TriggerRecord
from stepwell.store import Store

log = logging.getLogger("stepwell.tally")

# How long it gathers, once it has written something.
PAUSE_SECONDS = 1.0
# Refusals of different kinds in that time; more are counted with the last one of their trigger.
MOST = 100
# How often the same is tried if the store fails in a way that nobody expects.
TRIES = 3


class Noted:
    """What has gathered, by trigger."""

    def __init__(self) -> None:
        # What it becomes, and the record that it was.
        self.fates: dict[str, Firing] = {}
        self.refusals: dict[tuple[str, str, str], RefusalRecord] = {}
        self.failures = 0

    def __bool__(self) -> bool:
        return bool(self.fates or self.refusals)


class Tally:
    """Gathers what becomes of triggers, and writes it down."""

    def __init__(self, store: Store, workspace_id: str) -> None:
        self._triggers = store.triggers
        self._clock: Clock = store.clock
        self._workspace_id = workspace_id
        self._noted = Noted()
        # What is being written, or could not be.
        self._sent = Noted()
        self._writing: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._free_at = 0
        self._closed = False

    def fired(self, trigger: TriggerRecord, run_id: str | None) -> None:
        """A trigger has started a run, or emitted events and none."""
        self._note(trigger, fired(self._latest(trigger), run_id, self._clock.now()))

    def refused(
        self, trigger: TriggerRecord, refusal: RefusalRecord, *, counts: bool = True
    ) -> None:
        """A trigger has started none; whether that counts as a failure of it."""
        refusals = self._noted.refusals
        key = (trigger.id, refusal.code, refusal.message)
        if len(refusals) >= MOST and key not in refusals:
            key = (trigger.id, refusal.code, "")
        known = refusals.get(key)
        count = refusal.count if known is None else known.count + refusal.count
        refusals[key] = msgspec.structs.replace(refusal, count=count)
        if counts:
            self._note(trigger, refused(self._latest(trigger), refusal))
        else:
            self._arm()

    def _latest(self, trigger: TriggerRecord) -> TriggerRecord:
        """What is known of a trigger, unless somebody has changed it since."""
        for noted in (self._noted, self._sent):
            known = noted.fates.get(trigger.id)
            if known is not None and known.trigger.serial >= trigger.serial:
                return known.trigger
        return trigger

    def _note(self, trigger: TriggerRecord, after: TriggerRecord) -> None:
        known = self._noted.fates.get(trigger.id)
        stands = known is not None and known.was.serial >= trigger.serial
        was = known.was if known is not None and stands else trigger
        self._noted.fates[trigger.id] = Firing(after, was)
        self._arm()

    def _arm(self) -> None:
        """See to it that what is left will be written."""
        if self._writing is not None or self._timer is not None or self._closed:
            return
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
        """Return once everything so far is written, or could not be."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._writing is None and (self._noted or self._sent):
            self._write()
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def close(self) -> None:
        """Write what is left, then no more."""
        await self.drained()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _written(self) -> None:
        try:
            if self._sent:
                await self._send()
            self._sent, self._noted = self._noted, Noted()
            await self._send()
        except StoreUnavailable as error:
            log.warning("What became of triggers could not be written yet: %s", error)
        except Exception:
            self._sent.failures += 1
            log.exception("What became of triggers could not be written.")
            if self._sent.failures >= TRIES:
                self._sent = Noted()
        finally:
            self._writing = None
            if self._noted or self._sent:
                self._arm()

    async def _send(self) -> None:
        sent = self._sent
        if sent.refusals:
            await self._triggers.refuse(self._workspace_id, list(sent.refusals.values()))
            sent.refusals = {}
        for trigger_id, firing in list(sent.fates.items()):
            with contextlib.suppress(Overtaken):  # it was changed meanwhile, and begins anew
                await self._triggers.fire(self._workspace_id, [firing], [])
            del sent.fates[trigger_id]

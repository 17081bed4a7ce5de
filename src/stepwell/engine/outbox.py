"""The outbox: starts the runs of triggers that fire for events.

An event that some trigger may fire for is pending from the moment it is written. The runs it
starts are written in the transaction that says it is not pending any more, in the order of the
events; so each trigger starts one run for each event, however many processes are at it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stepwell.engine.firing import Firer, alone, is_unread
from stepwell.engine.volley import Volley
from stepwell.errors import Overtaken, StepwellError, StoreUnavailable, TriggerDisabled
from stepwell.kernel.changes import StartRun
from stepwell.kernel.clock import SECOND
from stepwell.kernel.records import EventRecord, Firing, TriggerRecord
from stepwell.store import Store
from stepwell.telemetry import Telemetry

# How many events, and how many runs of theirs, share a commit; an event is never divided, unless
# its runs are very large.
BATCH, MOST_STARTS = 100, 500
# How long an event that this process does not know what to do with is left to others, and how often
# it looks whether they did.
PATIENCE_SECONDS, PAUSE_SECONDS = 600, 5
# How long it is left to them at least once it is the next one, however old it is: they have to look
# for it, too.
GRACE_SECONDS = 60


class Outbox:
    """Delivers the events of a workspace to its triggers."""

    # Pending events are told of; this is for what was not heard.
    interval_seconds = 30.0
    fires = True

    def __init__(self, store: Store, workspace_id: str, firer: Firer, telemetry: Telemetry) -> None:
        self._triggers = store.triggers
        self._clock = store.clock
        self._workspace_id = workspace_id
        self._firer = firer
        self._telemetry = telemetry
        # Since when events are left to others, by their ids.
        self._left: dict[str, int] = {}
        self._has_told = False

    async def run_once(self) -> int | None:
        """Deliver everything that is pending; when to look again for what others have to."""
        await self._tell_others()
        limit, apart = BATCH, False
        while events := await self._triggers.pending_events(self._workspace_id, limit):
            try:
                if not await self._deliver(events, apart):
                    return self._clock.now() + PAUSE_SECONDS * SECOND
                limit, apart = min(2 * limit, BATCH), False
            except Overtaken:
                # Somebody else has delivered some of them, or a trigger was changed. Look again.
                limit = max(limit // 2, 1)
            except StoreUnavailable:
                raise
            except StepwellError:  # the store will not have some run
                if apart:
                    raise
                limit, apart = 1, len(events) == 1
        self._left.clear()
        return None

    async def _tell_others(self) -> None:
        """Once: what nobody could read and this process can is worth waiting for again."""
        if self._has_told:
            return
        unread = [
            each for each in await self._triggers.triggers(self._workspace_id)
            if each.event is not None and is_unread(each) and not await self._firer.fault_of(each)
        ]  # fmt: skip
        news = [Firing(msgspec.structs.replace(each, last_error=None), each) for each in unread]
        try:
            if news:
                await self._firer.commit(news, [])
        except Overtaken:
            return  # one was changed just now; next time
        self._has_told = True

    async def _deliver(self, events: Sequence[tuple[int, EventRecord]], apart: bool) -> bool:
        """Deliver these, or those before one that only others can; whether there were any."""
        listening = await self._listening([event for _, event in events])
        volley = Volley(self._firer, self._clock.now(), apart=apart)
        done: list[str] = []
        foreign: dict[str, bool] = {}
        for place, event in events:
            if len(volley.starts) >= MOST_STARTS or volley.is_large:
                break
            # One from before a trigger was made or enabled is none of its business.
            wanted = [each for each in listening.get(event.type, ()) if place > (each.place or 0)]
            if await self._is_for_others(event, wanted, foreign):
                break
            done.append(event.id)
            for trigger in wanted:
                await volley.start(trigger, self._start(trigger, event))
        await volley.commit(done)
        now = self._clock.now()
        for _, event in events[: len(done)]:
            self._telemetry.event_delivered(max(now - event.created_at, 0) / SECOND)
        return bool(done)

    async def _is_for_others(
        self, event: EventRecord, wanted: Sequence[TriggerRecord], foreign: dict[str, bool]
    ) -> bool:
        """Whether something was written by a newer version, which may yet see to it.

        Which triggers are `foreign` is looked for once for each.
        """
        for trigger in wanted:
            if trigger.id not in foreign:
                foreign[trigger.id] = await self._is_foreign(trigger)
        if not any(foreign[trigger.id] for trigger in wanted):
            return False
        now = self._clock.now()
        left_at = self._left.setdefault(event.id, now)
        # What comes after it must not wait for ever, also if the clock was set back since it came.
        patience = min(event.created_at, left_at) + PATIENCE_SECONDS * SECOND
        return now <= max(patience, left_at + GRACE_SECONDS * SECOND)

    async def _is_foreign(self, trigger: TriggerRecord) -> bool:
        fault = await self._firer.fault_of(trigger) if trigger.active else None
        # Nobody saw to the last one either, if that is what was said of it.
        return fault is not None and not self._firer.has_said(trigger, fault)

    async def _listening(self, events: Sequence[EventRecord]) -> dict[str, list[TriggerRecord]]:
        types = list(dict.fromkeys(event.type for event in events))
        found: dict[str, list[TriggerRecord]] = {}
        for trigger in await self._triggers.listening(self._workspace_id, types):
            assert trigger.event is not None
            found.setdefault(trigger.event, []).append(trigger)
        return found

    async def _start(self, trigger: TriggerRecord, event: EventRecord) -> StartRun | None:
        with alone(trigger):
            kind, config = self._firer.read(trigger)
            if not kind.wants(config, event):
                return None
        if not trigger.active:
            raise TriggerDisabled("The trigger was disabled when the event came.")
        about = {"id": event.id, "type": event.type, "key": event.key}
        return await self._firer.prepare(
            trigger, event.payload, event.id, event.traceparent, event=about
        )

"""The outbox: starts the runs of triggers that fire for events.

An event that some trigger may fire for is pending from the moment it is written. The runs it
starts are written in the transaction that says it is not pending any more, in the order of the
events; so each trigger starts one run for each event, however many processes are at it.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.engine.firing import Firer, alone
from stepwell.engine.volley import Volley
from stepwell.errors import (
    Overtaken,
    StepwellError,
    StoreUnavailable,
    TriggerDisabled,
    TriggerInvalid,
)
from stepwell.kernel.changes import StartRun
from stepwell.kernel.clock import SECOND
from stepwell.kernel.records import EventRecord, TriggerRecord
from stepwell.store import Store

# How many events, and how many runs of theirs, share a commit; an event is never divided, unless
# its runs are very large.
BATCH, MOST_STARTS = 100, 500
# How long an event that this process does not know what to do with is left to others, and how often
# it looks whether they did.
PATIENCE_SECONDS, PAUSE_SECONDS = 600, 5


class Outbox:
    """Delivers the events of a workspace to its triggers."""

    # Pending events are told of; this is for what was not heard.
    interval_seconds = 30.0
    fires = True

    def __init__(self, store: Store, workspace_id: str, firer: Firer) -> None:
        self._triggers = store.triggers
        self._clock = store.clock
        self._workspace_id = workspace_id
        self._firer = firer

    async def run_once(self) -> int | None:
        """Deliver everything that is pending; when to look again for what others have to."""
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
        return None

    async def _deliver(self, events: Sequence[tuple[int, EventRecord]], apart: bool) -> bool:
        """Deliver these, or those before one that only others can; whether there were any."""
        listening = await self._listening([event for _, event in events])
        volley = Volley(self._firer, self._clock.now(), apart=apart)
        done: list[str] = []
        for place, event in events:
            if len(volley.starts) >= MOST_STARTS or volley.is_large:
                break
            # One from before a trigger was made or enabled is none of its business.
            wanted = [each for each in listening.get(event.type, ()) if place > (each.place or 0)]
            if self._is_for_others(event, wanted):
                break
            done.append(event.id)
            for trigger in wanted:
                await volley.start(trigger, self._start(trigger, event))
        await volley.commit(done)
        return bool(done)

    def _is_for_others(self, event: EventRecord, wanted: Sequence[TriggerRecord]) -> bool:
        """Whether a trigger was written by a newer version, which may yet see to it."""
        if event.created_at < self._clock.now() - PATIENCE_SECONDS * SECOND:
            return False  # nobody did: what comes after it must not wait for ever
        for trigger in wanted:
            try:
                with alone(trigger):
                    self._firer.read(trigger)
            except TriggerInvalid as error:
                # Nobody saw to the last one either, if that is what was said of it.
                if trigger.active and not self._firer.has_said(trigger, error):
                    return True
        return False

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
        return await self._firer.prepare(trigger, event.payload, event.id, event=about)

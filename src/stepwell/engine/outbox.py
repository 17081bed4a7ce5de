"""The outbox: starts the runs of triggers that fire for events.

An event that some trigger may fire for is pending from the moment it is written. The runs it
starts are written in the transaction that says it is not pending any more, in the order of the
events; so each trigger starts one run for each event, however many processes are at it.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.engine.firing import Firer, alone, fired, refused
from stepwell.errors import Overtaken, StepwellError, StoreUnavailable
from stepwell.kernel.changes import StartRun
from stepwell.kernel.records import EventRecord, Firing, RefusalRecord, TriggerRecord
from stepwell.store import Store

# How many events share a commit.
BATCH = 100


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
        """Deliver everything that is pending; nothing here waits for a time."""
        limit, apart = BATCH, False
        while events := await self._triggers.pending_events(self._workspace_id, limit):
            try:
                await self._deliver(events, apart)
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

    async def _deliver(self, events: Sequence[EventRecord], apart: bool) -> None:
        """Deliver these at once, or their runs `apart`: then one that is refused is alone in it."""
        listening = await self._listening(events)
        now = self._clock.now()
        after = {each.id: each for found in listening.values() for each in found}
        before = dict(after)
        starts: list[StartRun] = []
        refusals: list[RefusalRecord] = []
        for event in events:
            for trigger in listening.get(event.type, ()):
                if not trigger.active or event.created_at < trigger.since:
                    continue
                try:
                    start = await self._start(trigger, event)
                    if start is not None and apart:
                        # Its key makes it one run, however often it comes to this.
                        await self._firer.commit([], [start])
                except StoreUnavailable:
                    raise
                except StepwellError as error:
                    refusals.append(refusal := self._firer.refusal(trigger, error, now))
                    after[trigger.id] = refused(after[trigger.id], refusal)
                    continue
                if start is not None:
                    starts.append(start)
                    after[trigger.id] = fired(after[trigger.id], start.id, now)
        firings = [Firing(after[id], was) for id, was in before.items() if after[id] is not was]
        ids = [event.id for event in events]
        left = [] if apart else starts
        await self._firer.commit(firings, left, refusals, ids)

    async def _listening(self, events: Sequence[EventRecord]) -> dict[str, list[TriggerRecord]]:
        types = list(dict.fromkeys(event.type for event in events))
        found: dict[str, list[TriggerRecord]] = {}
        for trigger in await self._triggers.listening(self._workspace_id, types):
            assert trigger.event is not None
            found.setdefault(trigger.event, []).append(trigger)
        return found

    async def _start(self, trigger: TriggerRecord, event: EventRecord) -> StartRun | None:
        with alone(trigger):
            kind = self._firer.type_of(trigger)
            if not kind.wants(kind.valid(trigger.config, trigger.timezone), event):
                return None
        about = {"id": event.id, "type": event.type, "key": event.key}
        return await self._firer.prepare(trigger, event.payload, event.id, event=about)

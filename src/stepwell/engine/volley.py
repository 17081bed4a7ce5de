"""A volley: firings of some triggers that are committed together."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

import msgspec

from stepwell.engine.firing import Firer, fired, refused
from stepwell.errors import StepwellError, StoreUnavailable
from stepwell.kernel.changes import StartRun
from stepwell.kernel.records import Firing, RefusalRecord, TriggerRecord


class Volley:
    """Runs to be started, and what becomes of the triggers that start them.

    If the store will not have one of the runs, it has none of the volley. Then the same is done
    with the runs `apart`, each in a commit of its own, so that one that is refused is alone in it:
    their keys make them the same runs, however often it comes to this.
    """

    def __init__(self, firer: Firer, now: int, *, apart: bool) -> None:
        self._firer = firer
        self._now = now
        self._apart = apart
        self._before: dict[str, TriggerRecord] = {}
        self._after: dict[str, TriggerRecord] = {}
        self._refusals: dict[tuple[str, str, str], RefusalRecord] = {}
        self.starts: list[StartRun] = []

    def state(self, trigger: TriggerRecord) -> TriggerRecord:
        """The record of a trigger as it will be."""
        return self._after.get(trigger.id, trigger)

    def put(self, trigger: TriggerRecord, after: TriggerRecord) -> None:
        """The record of a trigger will be that."""
        self._before.setdefault(trigger.id, trigger)
        self._after[trigger.id] = after

    async def start(self, trigger: TriggerRecord, prepared: Awaitable[StartRun | None]) -> None:
        """Start the run that is being prepared, if there is to be one."""
        try:
            start = await prepared
            if start is None:
                return
            run_id = start.id
            if self._apart:
                run_id, _ = (await self._firer.commit([], [start])).outcomes[0]
        except StoreUnavailable:
            raise
        except StepwellError as error:
            self.refuse(trigger, error)
            return
        if not self._apart:
            self.starts.append(start)
        self.put(trigger, fired(self.state(trigger), run_id, self._now))

    def refuse(self, trigger: TriggerRecord, error: StepwellError) -> None:
        """Say that a trigger could start no run, in its record too."""
        self.put(trigger, refused(self.state(trigger), self.note(trigger, error)))

    def note(self, trigger: TriggerRecord, error: StepwellError, count: int = 1) -> RefusalRecord:
        """Say why runs are not started; those that are alike are counted."""
        made = self._firer.refusal(trigger, error, self._now)
        known = self._refusals.setdefault((trigger.id, made.code, made.message), made)
        count += 0 if known is made else known.count
        self._refusals[trigger.id, made.code, made.message] = msgspec.structs.replace(
            known, count=count
        )
        return made

    async def commit(self, events: Sequence[str] = ()) -> None:
        """Write all of it; `events` are those that it was for."""
        firings = [Firing(self._after[id], was) for id, was in self._before.items()]
        if firings or events or self._refusals:
            await self._firer.commit(firings, self.starts, list(self._refusals.values()), events)

"""The ticker: starts the runs of schedules that are due.

A schedule knows when it has to fire next. Its runs, and the time after that, are written in one
transaction, which goes through only if nobody else was faster; so each tick starts one run,
however many processes tick and wherever they die.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stepwell.engine.firing import MOST_FAILURES, Firer, alone, fired, refused
from stepwell.errors import Overtaken, StepwellError, StoreUnavailable
from stepwell.kernel.changes import StartRun
from stepwell.kernel.clock import moment
from stepwell.kernel.records import Firing, RefusalRecord, TriggerRecord
from stepwell.store import Store

# How many schedules share a commit.
BATCH = 100


class Ticker:
    """Fires the schedules of a workspace."""

    # Nothing but a change of the schedules makes one due before its time, and that is told; this
    # is for what was not heard.
    interval_seconds = 30.0
    fires = True

    def __init__(self, store: Store, workspace_id: str, firer: Firer) -> None:
        self._triggers = store.triggers
        self._clock = store.clock
        self._workspace_id = workspace_id
        self._firer = firer

    async def run_once(self) -> int | None:
        """Fire everything that is due; when the next one will be."""
        while due := await self._triggers.due(self._workspace_id, self._clock.now(), BATCH):
            if not await self._fire(due):
                for each in due:
                    await self._fire([each])
        return await self._triggers.next_at(self._workspace_id)

    async def _fire(self, due: Sequence[TriggerRecord]) -> bool:
        """Fire these at once; False if there are several and one of them is in the way."""
        now = self._clock.now()
        firings: list[Firing] = []
        starts: list[StartRun] = []
        refusals: list[RefusalRecord] = []
        for trigger in due:
            after = await self._fired(trigger, now, starts, refusals)
            firings.append(Firing(after, trigger))
        try:
            await self._firer.commit(firings, starts, refusals)
        except Overtaken:
            return len(due) == 1  # somebody else has fired it, or changed it
        except StoreUnavailable:
            raise
        except StepwellError as error:  # the store will not have some run
            if len(due) > 1:
                return False
            refusal = self._firer.refusal(due[0], error, now)
            unfired = msgspec.structs.replace(due[0], next_at=firings[0].trigger.next_at)
            firing = Firing(_failed(unfired, refusal), due[0])
            await self._firer.commit([firing], [], [refusal])
        return True

    async def _fired(
        self, trigger: TriggerRecord, now: int, starts: list[StartRun],
        refusals: list[RefusalRecord],
    ) -> TriggerRecord:  # fmt: skip
        """The record of a schedule after its ticks; their runs and refusals are added."""
        assert trigger.next_at is not None
        try:
            with alone(trigger):
                kind = self._firer.type_of(trigger)
                config = kind.valid(trigger.config, trigger.timezone)
                schedule = kind.schedule(config, trigger.timezone, trigger.since)
                assert schedule is not None
                due = schedule.due(trigger.next_at - 1, now)
        except StepwellError as error:  # it was written by somebody who knows other types
            refusals.append(refusal := self._firer.refusal(trigger, error, now))
            return _paused(refused(trigger, refusal), refusal)
        after = msgspec.structs.replace(trigger, next_at=due.next_at)
        for tick in due.fires:
            at = moment(tick).isoformat()
            try:
                start = await self._firer.prepare(
                    trigger, {"scheduled_at": at}, str(tick), scheduled_at=at
                )
            except StoreUnavailable:
                raise
            except StepwellError as error:
                refusals.append(refusal := self._firer.refusal(trigger, error, now))
                after = _failed(after, refusal)
                if after.paused is not None:
                    break
            else:
                starts.append(start)
                after = fired(after, start.id, now)
        return after


def _failed(trigger: TriggerRecord, refusal: RefusalRecord) -> TriggerRecord:
    """The record of a schedule that could start no run, paused if that happens all the time."""
    after = refused(trigger, refusal)
    return _paused(after, refusal) if after.failures >= MOST_FAILURES else after


def _paused(trigger: TriggerRecord, refusal: RefusalRecord) -> TriggerRecord:
    said = f"No run could be started {trigger.failures} times in a row. {refusal.message}"
    return msgspec.structs.replace(trigger, next_at=None, paused=said)

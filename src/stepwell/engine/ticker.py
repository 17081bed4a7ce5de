"""The ticker: starts the runs of schedules that are due.

A schedule knows when it has to fire next. Its runs, and the time after that, are written in one
transaction, which goes through only if nobody else was faster; so each tick starts one run,
however many processes tick and wherever they die.
"""

from __future__ import annotations

import msgspec

from stepwell.engine.firing import Firer, alone
from stepwell.engine.volley import Volley
from stepwell.errors import Overtaken, StepwellError, StoreUnavailable, TimesMissed
from stepwell.kernel.clock import SECOND, moment
from stepwell.kernel.records import TriggerRecord
from stepwell.kernel.schedules import Due
from stepwell.store import Store
from stepwell.telemetry import Telemetry

# How many schedules, and how many runs of theirs, share a commit.
BATCH, MOST_STARTS = 100, 500
# After so many failures in a row a schedule is paused.
MOST_FAILURES = 3


class Ticker:
    """Fires the schedules of a workspace."""

    # Nothing but a change of the schedules makes one due before its time, and that is told; this
    # is for what was not heard.
    interval_seconds = 30.0
    fires = True

    def __init__(self, store: Store, workspace_id: str, firer: Firer, telemetry: Telemetry) -> None:
        self._triggers = store.triggers
        self._clock = store.clock
        self._workspace_id = workspace_id
        self._firer = firer
        self._telemetry = telemetry

    async def run_once(self) -> int | None:
        """Fire everything that is due; when the next one will be."""
        # What is on time now is so to the end, however long that takes.
        now = self._clock.now()
        after: TriggerRecord | None = None
        limit, apart = BATCH, False
        while due := await self._triggers.due(self._workspace_id, now, limit, after):
            try:
                after = await self._fire(due, now, apart)
                limit, apart = min(2 * limit, BATCH), False
            except Overtaken:
                # Somebody else has fired some of them, or has changed one. Look again.
                limit = max(limit // 2, 1)
            except StoreUnavailable:
                raise
            except StepwellError:  # the store will not have some run
                if apart:
                    raise
                limit, apart = 1, len(due) == 1
        return await self._triggers.next_at(self._workspace_id, now)

    async def _fire(self, due: list[TriggerRecord], now: int, apart: bool) -> TriggerRecord | None:
        """Fire these, as many of them as fit into a commit; behind which one to go on."""
        volley = Volley(self._firer, now, apart=apart)
        last, ticks = due[-1], list[int]()
        for trigger in due:
            all_of_it = await self._add(volley, trigger, now, ticks)
            if not all_of_it or len(volley.starts) >= MOST_STARTS:
                last = trigger
                break
        await volley.commit()
        for tick in ticks:
            self._telemetry.schedule_fired((self._clock.now() - tick) / SECOND)
        # One that has more to fire is due still, and as early as it was or a little later.
        return last if all_of_it else msgspec.structs.replace(last, id="")

    async def _add(
        self, volley: Volley, trigger: TriggerRecord, now: int, ticks: list[int]
    ) -> bool:
        """Add the ticks of a schedule to a volley; False if it has more than fit."""
        try:
            due = self._due(trigger, now)
            if fault := await self._firer.fault_of(trigger):
                raise fault
        except StoreUnavailable:
            raise
        except StepwellError as error:
            # It was written by somebody who knows more, and will know what to do: it is left to
            # them, and looked at again later.
            if not self._firer.has_said(trigger, error):
                volley.refuse(trigger, error)
            return True
        room = max(MOST_STARTS - len(volley.starts), 1)
        left = due.fires[room:]
        if due.missed:
            volley.note(trigger, TimesMissed(_missed(due, trigger)), due.missed)
        next_at = left[0] if left else due.next_at
        volley.put(trigger, msgspec.structs.replace(trigger, next_at=next_at))
        for tick in due.fires[:room]:
            at = moment(tick).isoformat()
            prepared = self._firer.prepare(
                trigger, {"scheduled_at": at}, str(tick), scheduled_at=at
            )
            await volley.start(trigger, prepared)
            ticks.append(tick)
            after = volley.state(trigger)
            if after.failures >= MOST_FAILURES:
                volley.put(trigger, _paused(after))
                return True
        return not left

    def _due(self, trigger: TriggerRecord, now: int) -> Due:
        assert trigger.next_at is not None
        with alone(trigger):
            kind, config = self._firer.read(trigger)
            schedule = kind.schedule(config, trigger.timezone, trigger.since)
            assert schedule is not None
            return schedule.due(trigger.next_at - 1, now)


def _missed(due: Due, trigger: TriggerRecord) -> str:
    times = "One time was" if due.missed == 1 else f"{due.missed:,} times were"
    least = "At least " if due.at_least else ""
    said = f"{least}{times.lower() if least else times} missed: nothing was there to fire"
    return f"{said}. Its misfire policy is {trigger.config.get('misfire', 'skip')!r}."


def _paused(trigger: TriggerRecord) -> TriggerRecord:
    said = f"No run could be started {trigger.failures} times in a row. {trigger.last_error}"
    return msgspec.structs.replace(trigger, next_at=None, paused=said)

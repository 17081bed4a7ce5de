"""A volley: firings of some triggers that are committed together."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

import msgspec

from stepwell.engine.firing import Firer, fired, refused
from stepwell.errors import Overtaken, StepwellError, StoreUnavailable
from stepwell.kernel.changes import StartRun
from stepwell.kernel.records import Firing, RefusalRecord, TriggerRecord

# How large the inputs may be that share a commit.
MOST_BYTES = 16 * 2**20


class Volley:
    """Runs to be started, and what becomes of the triggers that start them.

    If the store will not have one of the runs, it has none of the volley. Then the same is done
    with the runs `apart`, each in a commit of its own, so that one that is refused is alone in it:
    their keys make them the same runs, however often it comes to this. For the same reason runs
    whose inputs are too large for one commit may be started before the rest is written.
    """

    def __init__(self, firer: Firer, now: int, *, apart: bool) -> None:
        self._firer = firer
        self._now = now
        self._apart = apart
        self._before: dict[str, TriggerRecord] = {}
        self._after: dict[str, TriggerRecord] = {}
        self._refusals: dict[tuple[str, str, str], RefusalRecord] = {}
        self.starts: list[StartRun] = []
        self._bytes = 0
        # Whether it was too large for one commit: nothing more should be added then.
        self.is_large = False

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
        except (Overtaken, StoreUnavailable):  # nothing is wrong with the run
            raise
        except StepwellError as error:
            self.refuse(trigger, error)
            return
        self.put(trigger, fired(self.state(trigger), run_id, self._now))
        if not self._apart:
            self.starts.append(start)
            self._bytes += len(start.input)
            if self._bytes >= MOST_BYTES:
                await self._start_these()

    async def _start_these(self) -> None:
        """Start the runs that there are so far; what else there is comes later."""
        done = await self._firer.commit([], self.starts)
        names = {
            start.id: run_id for start, (run_id, _) in zip(self.starts, done.outcomes, strict=True)
        }
        for id, after in self._after.items():
            if (found := names.get(after.last_run_id or "")) is not None:
                self._after[id] = msgspec.structs.replace(after, last_run_id=found)
        self.starts, self._bytes, self.is_large = [], 0, True

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

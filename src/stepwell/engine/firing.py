"""Firing: what a trigger was told becomes a run, or a refusal that says why not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from stepwell.engine.starting import Starter
from stepwell.errors import (
    DefinitionDisabled,
    QuotaExceeded,
    RateLimited,
    StepwellError,
    TriggerDisabled,
    TriggerInvalid,
)
from stepwell.kernel.changes import Committed, StartRun
from stepwell.kernel.ids import Ids
from stepwell.kernel.mapping import mapped
from stepwell.kernel.names import bounded
from stepwell.kernel.records import Firing, RefusalRecord, TriggerRecord
from stepwell.store import Store
from stepwell.trigger import TriggerType

log = logging.getLogger("stepwell.firing")

# Why nothing was started although nothing is wrong: these are no failures of the trigger.
REFUSED = (DefinitionDisabled.code, TriggerDisabled.code, QuotaExceeded.code, RateLimited.code)
# After so many failures in a row a schedule is paused.
MOST_FAILURES = 3
MAX_MESSAGE = 1000

TriggerTypes = Callable[[], Mapping[str, TriggerType]]


class Firer:
    """Prepares the runs that triggers start."""

    def __init__(
        self, store: Store, workspace_id: str, starter: Starter, ids: Ids, types: TriggerTypes,
        changed: Callable[[Committed], None],
    ) -> None:  # fmt: skip
        self._triggers = store.triggers
        self._workspace_id = workspace_id
        self._starter = starter
        self._ids = ids
        self._types = types
        self._changed = changed

    def type_of(self, trigger: TriggerRecord) -> TriggerType:
        found = self._types().get(trigger.type)
        if found is None:  # another process has a package that brings it
            raise TriggerInvalid(f"There is no trigger type {trigger.type!r} here.")
        return found

    async def prepare(
        self, trigger: TriggerRecord, payload: Any, key: str | None, **about: Any
    ) -> StartRun:
        """The start of a run; two firings of a trigger with one key are one.

        `about` is what the run can see of its trigger, beside what that is.
        """
        with alone(trigger):
            config = self.type_of(trigger).valid(trigger.config, trigger.timezone)
            input = payload if config.map is None else mapped(config.map, payload)
        return await self._starter.prepare(
            trigger.definition, input, loose=config.map is None,
            trigger={"type": trigger.type, "id": trigger.id, "name": trigger.name, **about},
            idempotency_key=None if key is None else bounded(f"{trigger.type}:{trigger.id}:{key}"),
        )  # fmt: skip

    async def commit(
        self, firings: Sequence[Firing], starts: Sequence[StartRun],
        refusals: Sequence[RefusalRecord] = (), events: Sequence[str] = (),
    ) -> Committed:  # fmt: skip
        """Start runs and say that triggers have fired for them, and let workers hear of it."""
        done = await self._triggers.fire(self._workspace_id, firings, starts, refusals, events)
        self._changed(done)
        return done

    async def fire(self, trigger: TriggerRecord, payload: Any, key: str | None) -> tuple[str, bool]:
        """Start a run because somebody says so; its id, and whether it is new."""
        own = None if key is None else f"hand:{key}"
        start = await self.prepare(trigger, payload, own, by_hand=True)
        run_id, created = (await self.commit([], [start])).outcomes[0]
        return run_id, created

    def refusal(self, trigger: TriggerRecord, error: StepwellError, now: int) -> RefusalRecord:
        """Why a trigger has started nothing."""
        message = error.message[:MAX_MESSAGE].replace("\0", "")
        return RefusalRecord(self._ids.new(), trigger.id, error.code, message, now)


@contextmanager
def alone(trigger: TriggerRecord) -> Iterator[None]:
    """Whatever its type raises is a fault of this trigger, and must not hold up the others."""
    try:
        yield
    except StepwellError:
        raise
    except Exception as error:
        log.warning("The trigger type %s has failed.", trigger.type, exc_info=error)
        raise TriggerInvalid(f"The trigger type {trigger.type!r} has failed: {error!r}") from error


def fired(trigger: TriggerRecord, run_id: str, now: int, **fields: Any) -> TriggerRecord:
    """The record of a trigger that has started a run."""
    return msgspec.structs.replace(
        trigger, last_fired_at=now, last_run_id=run_id, last_error=None, failures=0, **fields
    )


def refused(trigger: TriggerRecord, refusal: RefusalRecord, **fields: Any) -> TriggerRecord:
    """The record of a trigger that could start none."""
    failed = refusal.code not in REFUSED
    return msgspec.structs.replace(
        trigger, last_error=f"{refusal.code}: {refusal.message}",
        failures=trigger.failures + failed, **fields,
    )  # fmt: skip

"""Firing: what a trigger was told becomes a run, or a refusal that says why not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from stepwell.engine.starting import Starter
from stepwell.errors import (
    DefinitionDisabled,
    InvalidDefinition,
    InvalidInput,
    QueueFull,
    QuotaExceeded,
    RateLimited,
    RevisionNotFound,
    StepwellError,
    StoreUnavailable,
    TriggerDisabled,
    TriggerInvalid,
    UnknownDefinition,
)
from stepwell.kernel.changes import Committed, StartRun
from stepwell.kernel.ids import Ids
from stepwell.kernel.mapping import Map, read_map
from stepwell.kernel.names import bounded, check_text
from stepwell.kernel.records import Firing, RefusalRecord, TriggerRecord
from stepwell.store import Store
from stepwell.trigger import TriggerType

log = logging.getLogger("stepwell.firing")

# Why nothing was started although nothing is wrong: these are no failures of the trigger.
REFUSED = tuple(
    each.code
    for each in (DefinitionDisabled, TriggerDisabled, QuotaExceeded, QueueFull, RateLimited)
)
MAX_MESSAGE = 1000
# Configs that are kept as they were read.
MAX_READ = 1000

TriggerTypes = Callable[[], Mapping[str, TriggerType]]


class _Read(NamedTuple):
    """A trigger as it was read, until it is changed."""

    serial: int
    kind: TriggerType
    config: Any
    map: Map | None


class Firer:
    """Prepares the runs that triggers start."""

    def __init__(
        self, store: Store, workspace_id: str, starter: Starter, ids: Ids, types: TriggerTypes,
        changed: Callable[[Committed], None],
        started: Callable[[Sequence[StartRun], Committed], None],
    ) -> None:  # fmt: skip
        self._triggers = store.triggers
        self._clock = store.clock
        self._workspace_id = workspace_id
        self._starter = starter
        self._ids = ids
        self._types = types
        self._changed = changed
        self._started = started
        self._read: dict[str, _Read] = {}

    def read(self, trigger: TriggerRecord) -> tuple[TriggerType, Any]:
        """The type of a trigger, and its config; raises TriggerInvalid."""
        known = self._known(trigger)
        return known.kind, known.config

    def _known(self, trigger: TriggerRecord) -> _Read:
        known = self._read.get(trigger.id)
        if known is None or known.serial != trigger.serial:
            kind = self._types().get(trigger.type)
            if kind is None:  # another process has a package that brings it
                raise TriggerInvalid(f"There is no trigger type {trigger.type!r} here.")
            config = kind.valid(trigger.config, trigger.timezone)
            map = None if config.map is None else read_map(config.map, stored=True)
            if len(self._read) >= MAX_READ:
                self._read.clear()
            known = self._read[trigger.id] = _Read(trigger.serial, kind, config, map)
        return known

    async def fault_of(self, trigger: TriggerRecord) -> StepwellError | None:
        """Why this process cannot read a trigger, or the document of its runs, if it cannot."""
        try:
            with alone(trigger):
                self.read(trigger)
                await self._starter.check_readable(trigger.definition)
        except StoreUnavailable:
            raise
        except (UnknownDefinition, RevisionNotFound):
            return None  # nobody could start it
        except StepwellError as error:
            return error
        return None

    async def prepare(
        self, trigger: TriggerRecord, payload: Any, key: str | None,
        traceparent: str | None = None, user: str | None = None, **about: Any,
    ) -> StartRun:  # fmt: skip
        """The start of a run; two firings of a trigger with one key are one.

        `user` is who fires it, if somebody does; `about` is what the run can see of its trigger,
        beside what that is.
        """
        own_key = None if key is None else bounded(f"{trigger.type}:{trigger.id}:{key}")
        with alone(trigger):
            known = self._known(trigger)
            input = payload if known.map is None else known.map.of(payload)
            return await self._starter.prepare(
                trigger.definition, input, loose=known.kind.loose and known.map is None,
                trigger={"type": trigger.type, "id": trigger.id, "name": trigger.name, **about},
                idempotency_key=own_key, traceparent=traceparent, user=user,
            )  # fmt: skip

    async def commit(
        self, firings: Sequence[Firing], starts: Sequence[StartRun],
        refusals: Sequence[RefusalRecord] = (), events: Sequence[str] = (),
    ) -> Committed:  # fmt: skip
        """Start runs and say that triggers have fired for them, and let workers hear of it."""
        done = await self._triggers.fire(self._workspace_id, firings, starts, refusals, events)
        self._changed(done)
        self._started(starts, done)
        return done

    async def fire(
        self, trigger: TriggerRecord, payload: Any, key: str | None, user: str | None = None,
        traceparent: str | None = None,
    ) -> tuple[str, bool]:  # fmt: skip
        """Start a run because somebody says so; its id, and whether it is new."""
        own = None if key is None else f"hand:{check_text(key, 'The key of a firing')}"
        try:
            if not trigger.active:
                why = trigger.paused or "It is disabled."
                raise TriggerDisabled(f"The trigger {trigger.name!r} does not fire. {why}")
            kind, config = self.read(trigger)
            if not kind.starts(config):
                raise InvalidInput(
                    f"The trigger {trigger.name!r} starts no runs, it emits events. Emit one: "
                    "stepwell events emit"
                )
            start = await self.prepare(trigger, payload, own, traceparent, user, by_hand=True)
            run_id, created = (await self.commit([], [start])).outcomes[0]
        except StoreUnavailable:
            raise
        except StepwellError as error:
            refusal = self.refusal(trigger, error, self._clock.now())
            await self._triggers.refuse(self._workspace_id, [refusal])
            raise
        return run_id, created

    def has_said(self, trigger: TriggerRecord, error: StepwellError) -> bool:
        """Whether the record of a trigger says just this already."""
        refusal = self.refusal(trigger, error, 0)
        return trigger.last_error == refused(trigger, refusal).last_error

    def refusal(self, trigger: TriggerRecord, error: StepwellError, now: int) -> RefusalRecord:
        """Why a trigger has started nothing.

        It is kept, so what was in the payload, and may be secret, is not in it.
        """
        message = str(error.details.get("masked", error.message))[:MAX_MESSAGE].replace("\0", "")
        return RefusalRecord(self._ids.new(), trigger.id, error.code, message, now)


@contextmanager
def alone(trigger: TriggerRecord) -> Iterator[None]:
    """Whatever else is raised here is a fault of this trigger, and must not hold up others."""
    try:
        yield
    except StepwellError:
        raise
    except Exception as error:
        log.warning("The trigger %s has failed.", trigger.id, exc_info=error)
        raise TriggerInvalid(
            f"The {trigger.type} trigger has failed with {type(error).__name__}; the log says how."
        ) from error


def is_unread(trigger: TriggerRecord) -> bool:
    """Whether the last thing that was said of a trigger is that it could not be read."""
    codes = (TriggerInvalid.code, InvalidDefinition.code)
    return (trigger.last_error or "").startswith(tuple(f"{code}:" for code in codes))


def fired(trigger: TriggerRecord, run_id: str | None, now: int, **fields: Any) -> TriggerRecord:
    """The record of a trigger that has started a run, or emitted events and none."""
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

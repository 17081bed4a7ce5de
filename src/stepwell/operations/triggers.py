"""Triggers: made, looked at, changed, enabled and disabled, fired by hand, deleted.

Those that stand in the document of a definition are made and changed by publishing it, and can be
enabled, disabled and fired here like the others.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from stepwell.errors import (
    Conflict,
    DefinitionDisabled,
    InputInvalid,
    InvalidInput,
    Overtaken,
    QueueFull,
    QuotaExceeded,
    TriggerDisabled,
    TriggerExists,
    TriggerInvalid,
    TriggerNotFound,
    UnknownDefinition,
)
from stepwell.graph.definition import ID
from stepwell.graph.problems import Problem, Problems
from stepwell.kernel.codec import decode, encode
from stepwell.kernel.names import check_count, show
from stepwell.kernel.records import RefusalRecord, TriggerRecord
from stepwell.operation import Count, DefinitionRef, Noun, Workspace, operation
from stepwell.operations.arming import armed, refuse_past, refuse_taken_path, renewed, type_named
from stepwell.operations.fitting import doubts_of, refuse_unknown_inputs, version_of, zone_of
from stepwell.operations.revising import check_flag
from stepwell.operations.trigger_views import (
    PREVIEWED,
    Preview,
    TriggerView,
    previewed,
    remedy,
    view,
)

MOST_PREVIEWED = 1000
MOST_REFUSALS = 1000
# How often a change is made again from what somebody else has just written.
TRIES = 50


class Fired(msgspec.Struct, frozen=True):
    """What came of firing a trigger by hand."""

    run_id: str
    # False if there was a run for that key already.
    created: bool


class Triggers(Noun):
    """The triggers of a workspace."""

    noun = "triggers"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._records = workspace.store.triggers

    # -- looking -------------------------------------------------------------------------

    async def list(self, definition: str | None = None) -> builtins.list[TriggerRecord]:
        """All triggers, or those of a definition, by name."""
        await self._workspace.settled()
        found = await self._records.triggers(self._workspace.id, definition)
        if not found and definition is not None:
            await version_of(self._workspace, definition)  # raises if there is none
        return found

    async def get(self, trigger: str) -> TriggerRecord:
        """A trigger by its id, or by `definition/name`."""
        await self._workspace.settled()
        definition, slash, name = str(trigger).partition("/")
        found = None
        if slash and definition.isprintable():  # no other can be stored
            listed = await self._records.triggers(self._workspace.id, definition)
            found = next((each for each in listed if each.name == name), None)
        elif definition.isprintable():
            found = await self._records.trigger(self._workspace.id, definition)
        if found is None:
            meant = await self._meant(definition, name)
            raise TriggerNotFound(
                f"There is no trigger {show(trigger)}. "
                f"{meant or 'Name it by its id or as DEFINITION/NAME.'}",
                trigger=trigger,
            )
        return found

    async def _meant(self, definition: str, name: str) -> str:
        """The trigger whose name is closest, as a hint; of that definition if it has any."""
        known = await self._records.triggers(self._workspace.id, None)
        own = [each for each in known if each.definition == definition]
        close = get_close_matches(name[:100], [each.name for each in own], 1)
        if close or own:
            return f"Did you mean '{definition}/{close[0]}'?" if close else ""
        names = [f"{each.definition}/{each.name}" for each in known]
        return Problems().did_you_mean(f"{definition}/{name}", names)

    @operation("GET /triggers", needs="read", name="triggers.list", raises=(UnknownDefinition,))
    async def views(self, definition: DefinitionRef | None = None) -> builtins.list[TriggerView]:
        """All triggers, or those of a definition: what they wait for, and why they do not fire."""
        return [TriggerView(**each) for each in await self.shown(*await self.list(definition))]

    @operation(
        "GET /triggers/{trigger}", needs="read", name="triggers.get", raises=(TriggerNotFound,)
    )
    async def view(self, trigger: str) -> TriggerView:
        """A trigger by its id, or by `definition/name`."""
        return await self._viewed(await self.get(trigger))

    async def _viewed(self, trigger: TriggerRecord) -> TriggerView:
        return TriggerView(**(await self.shown(trigger))[0])

    @operation("GET /triggers/{trigger}/refusals", needs="read", raises=(TriggerNotFound,))
    async def refusals(self, trigger: str, limit: Count = 100) -> builtins.list[RefusalRecord]:
        """Firings of the last 7 days that started no run, the newest first."""
        found = await self.get(trigger)
        limit = min(check_count(limit, "limit"), MOST_REFUSALS)
        return await self._records.refusals(self._workspace.id, found.id, limit)

    @operation(
        "GET /triggers/{trigger}/preview", needs="read", raises=(TriggerNotFound, TriggerInvalid)
    )
    async def preview(self, trigger: str, count: Count = PREVIEWED) -> Preview:
        """The next times at which a trigger fires; none if it does not wait for a time."""
        if check_count(count, "count") > MOST_PREVIEWED:
            raise InvalidInput(f"count is at most {MOST_PREVIEWED:,}, not {count:,}.")
        return previewed(self._workspace, await self.get(trigger), count)

    async def shown(self, *triggers: TriggerRecord) -> builtins.list[dict[str, Any]]:
        """Records as people and programs read them: status, next times, why they do not fire."""
        definitions = await self._workspace.store.records.definitions(self._workspace.id)
        off = {each.name for each in definitions if not each.enabled}
        return [view(self._workspace, each, each.definition not in off) for each in triggers]

    async def doubts(self, trigger: TriggerRecord) -> builtins.list[Problem]:
        """What is allowed, and yet hardly meant: no run it could start, secrets not there."""
        return await doubts_of(self._workspace, trigger)

    @operation(
        "GET /triggers/{trigger}/doubts", needs="read", name="triggers.doubts",
        raises=(TriggerNotFound,),
    )  # fmt: skip
    async def doubts_of(self, trigger: str) -> builtins.list[Problem]:
        """What is allowed about a trigger, and yet hardly meant.

        It can start no run, since it does not give what the definition requires; or secrets that
        it names are not there.
        """
        return await self.doubts(await self.get(trigger))

    # -- changing ------------------------------------------------------------------------

    async def create(
        self, definition: str, type: str, config: Mapping[str, Any] | None = None, *,
        name: str | None = None, timezone: str | None = None, enabled: bool = True,
    ) -> TriggerRecord:  # fmt: skip
        """Make a trigger by hand; it stays whatever is published.

        `timezone` is for definitions in Python; those that are data have one.
        """
        check_flag(enabled, "enabled")
        zone = await zone_of(self._workspace, definition, timezone)
        type = type_named(self._workspace.types().triggers, type).name
        named = _check_name(name if name is not None else type)
        now = self._workspace.clock.now()
        record = TriggerRecord(
            id=self._workspace.ids.new(), definition=definition, name=named, type=type,
            origin="hand", serial=1, enabled=enabled, timezone=zone,
            config=_check_config({} if config is None else config),
            created_at=now, updated_at=now, since=now,
        )  # fmt: skip
        record = armed(record, self._workspace)
        refuse_past(record)
        await refuse_unknown_inputs(self._workspace, record)
        await refuse_taken_path(self._workspace, record)
        try:
            self._workspace.changed(await self._records.put(self._workspace.id, record))
        except Overtaken:
            await refuse_taken_path(self._workspace, record)
            raise TriggerExists(
                f"Another trigger of {definition!r} has the name {named!r}."
            ) from None
        return record

    @operation(
        "POST /triggers", needs="build", name="triggers.create", status=201,
        raises=(UnknownDefinition, TriggerInvalid, TriggerExists, QuotaExceeded),
        example={"definition": "hello", "type": "schedule", "config": {"cron": "0 9 * * *"}},
    )  # fmt: skip
    async def make(
        self, definition: DefinitionRef, type: str, config: Mapping[str, Any] | None = None, *,
        name: str | None = None, timezone: str | None = None, enabled: bool = True,
    ) -> TriggerView:  # fmt: skip
        """Make a trigger by hand; it stays whatever is published.

        `timezone` is for definitions in Python; those that are data have one.
        """
        made = await self.create(
            definition, type, config, name=name, timezone=timezone, enabled=enabled
        )
        return await self._viewed(made)

    async def update(
        self, trigger: str, config: Mapping[str, Any], *, serial: int | None = None,
        if_match: str | None = None,
    ) -> TriggerRecord:  # fmt: skip
        """Give a trigger another config; from now on it fires by that.

        `serial` is that of the record which this was made from, `if_match` its etag: nobody else's
        change is undone.
        """

        def change(record: TriggerRecord) -> TriggerRecord:
            if serial is not None and record.serial != serial:
                raise Conflict(
                    f"The trigger {record.name!r} was changed meanwhile: its serial is "
                    f"{record.serial}, not {serial}.", changes=[], serial=record.serial,
                )  # fmt: skip
            if record.origin == "document":
                raise InvalidInput(
                    f"The trigger {record.name!r} stands in the document of "
                    f"{record.definition!r}: change it there, and publish that."
                )
            return msgspec.structs.replace(record, config=_check_config(config))

        return await self._change(trigger, change, if_match)

    @operation(
        "PUT /triggers/{trigger}", needs="build", name="triggers.update",
        raises=(TriggerNotFound, TriggerInvalid, TriggerExists, Conflict, QuotaExceeded),
        example={"config": {"cron": "0 9 * * *"}},
    )  # fmt: skip
    async def change(
        self, trigger: str, config: Mapping[str, Any], *, serial: int | None = None,
        if_match: str | None = None,
    ) -> TriggerView:  # fmt: skip
        """Give a trigger another config; from now on it fires by that.

        `serial` is that of the record which this was made from, `if_match` its etag: nobody else's
        change is undone.
        """
        changed = await self.update(trigger, config, serial=serial, if_match=if_match)
        return await self._viewed(changed)

    async def enable(self, trigger: str, *, if_match: str | None = None) -> TriggerRecord:
        """Let a trigger fire; nothing that it missed meanwhile is made up for."""
        return await self._change(
            trigger,
            lambda record: msgspec.structs.replace(record, enabled=True, paused=None),
            if_match,
        )

    @operation(
        "POST /triggers/{trigger}/enable", needs="build", name="triggers.enable",
        raises=(TriggerNotFound, TriggerInvalid, Conflict),
    )  # fmt: skip
    async def switch_on(self, trigger: str, *, if_match: str | None = None) -> TriggerView:
        """Let a trigger fire; nothing that it missed meanwhile is made up for."""
        return await self._viewed(await self.enable(trigger, if_match=if_match))

    async def disable(self, trigger: str, *, if_match: str | None = None) -> TriggerRecord:
        """Let a trigger fire no more."""
        return await self._change(
            trigger, lambda record: msgspec.structs.replace(record, enabled=False), if_match
        )

    @operation(
        "POST /triggers/{trigger}/disable", needs="build", name="triggers.disable",
        raises=(TriggerNotFound, Conflict),
    )  # fmt: skip
    async def switch_off(self, trigger: str, *, if_match: str | None = None) -> TriggerView:
        """Let a trigger fire no more."""
        return await self._viewed(await self.disable(trigger, if_match=if_match))

    @operation(
        "DELETE /triggers/{trigger}", needs="build", destructive=True,
        raises=(TriggerNotFound, Conflict),
    )  # fmt: skip
    async def delete(self, trigger: str, *, if_match: str | None = None) -> None:
        """Delete a trigger that was made by hand."""
        found = await self.get(trigger)
        _check_match(found, if_match)
        if found.origin == "document":
            raise InvalidInput(
                f"The trigger {found.name!r} stands in the document of {found.definition!r}: "
                "disable it, or publish that without it."
            )
        if not await self._records.delete(self._workspace.id, found.id):
            raise TriggerNotFound(f"There is no trigger {show(trigger)} any more.")

    @operation(
        "POST /triggers/{trigger}/fire", needs="run", status=201, caller={"user": "name"},
        example={"payload": {}},
        raises=(
            TriggerNotFound, TriggerDisabled, TriggerInvalid, UnknownDefinition,
            DefinitionDisabled, InputInvalid, QueueFull, QuotaExceeded,
        ),
    )  # fmt: skip
    async def fire(
        self, trigger: str, payload: Any = None, *, key: str | None = None,
        idempotency_key: str | None = None, user: str | None = None,
    ) -> Fired:  # fmt: skip
        """Start a run as the trigger would, with that payload; its id, and whether it is new.

        A second firing with the same `key` gives back the run of the first; `idempotency_key` is
        that as well, if there is no `key`. What a trigger checks before it fires is not: filter,
        signature and rate. Fields of the payload that the definition does not know are left out,
        as they would be then.
        """
        found = await self.get(trigger)
        try:
            own = key if key is not None else idempotency_key
            given = {} if payload is None else payload
            fired = await self._workspace.fire(found, given, own, user or None)
        except TriggerDisabled as error:
            error.message += f" {remedy(found)}"
            raise
        return Fired(*fired)

    async def _change(
        self, trigger: str, change: Callable[[TriggerRecord], TriggerRecord],
        if_match: str | None,
    ) -> TriggerRecord:  # fmt: skip
        for _ in range(TRIES):
            before = await self.get(trigger)
            after = change(before)
            if after == before:
                return before
            _check_match(before, if_match)
            after = renewed(after, before, self._workspace)
            if after.config != before.config:
                refuse_past(after)
                await refuse_unknown_inputs(self._workspace, after)
            await refuse_taken_path(self._workspace, after)
            try:
                self._workspace.changed(await self._records.put(self._workspace.id, after))
            except Overtaken:
                continue
            return after
        raise Conflict("Others change this trigger all the time; try again.", changes=[])


def _check_match(record: TriggerRecord, if_match: str | None) -> None:
    if if_match not in (None, record.etag):
        raise Conflict(
            f"The trigger {record.name!r} was changed meanwhile.", changes=[], etag=record.etag
        )


def _check_config(config: Any) -> dict[str, Any]:
    """A config as it comes back from JSON."""
    if not isinstance(config, Mapping):
        raise InvalidInput(f"The config of a trigger is a mapping, not {show(config)}.")
    found: dict[str, Any] = decode(encode(dict(config), "The config"))
    return found


def _check_name(name: Any) -> str:
    if not isinstance(name, str) or not ID.fullmatch(name):
        raise InvalidInput(
            f"A trigger cannot be called {show(name)}: names have letters, digits, '_' and '-', "
            "at most 100."
        )
    return name

"""Triggers: made, looked at, changed, enabled and disabled, fired by hand, deleted.

Those that stand in the document of a definition are made and changed by publishing it, and can be
enabled, disabled and fired here like the others.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stepwell.errors import (
    Conflict,
    InvalidInput,
    Overtaken,
    TriggerExists,
    TriggerInvalid,
    TriggerNotFound,
    UnknownDefinition,
)
from stepwell.graph.definition import ID
from stepwell.kernel.clock import moment
from stepwell.kernel.codec import decode, encode
from stepwell.kernel.names import check_count, show
from stepwell.kernel.records import RefusalRecord, TriggerRecord
from stepwell.kernel.zones import local, zone_named
from stepwell.operation import Workspace
from stepwell.operations.arming import armed, refuse_taken_path, renewed, type_named
from stepwell.operations.revising import check_flag

PREVIEWED = 5
MOST_PREVIEWED = 1000
MOST_REFUSALS = 1000
# How often a change is made again from what somebody else has just written.
TRIES = 50


class Preview(msgspec.Struct, frozen=True):
    """When a trigger fires next, and how that is said."""

    description: str
    # Times with the offset of the trigger's zone.
    next: builtins.list[str]


class Triggers:
    """The triggers of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._records = workspace.store.triggers

    # -- looking -------------------------------------------------------------------------

    async def list(self, definition: str | None = None) -> builtins.list[TriggerRecord]:
        """All triggers, or those of a definition, by name."""
        await self._workspace.fired()
        return await self._records.triggers(self._workspace.id, definition)

    async def get(self, trigger: str) -> TriggerRecord:
        """A trigger by its id, or by `definition/name`."""
        await self._workspace.fired()
        definition, slash, name = str(trigger).partition("/")
        found = None
        if slash and definition.isprintable():  # no other can be stored
            listed = await self._records.triggers(self._workspace.id, definition)
            found = next((each for each in listed if each.name == name), None)
        elif definition.isprintable():
            found = await self._records.trigger(self._workspace.id, definition)
        if found is None:
            raise TriggerNotFound(
                f"There is no trigger {show(trigger)}. Name it by its id or as DEFINITION/NAME.",
                trigger=trigger,
            )
        return found

    async def refusals(self, trigger: str, limit: int = 100) -> builtins.list[RefusalRecord]:
        """Firings of the last 7 days that started no run, the newest first."""
        found = await self.get(trigger)
        limit = min(check_count(limit, "limit"), MOST_REFUSALS)
        return await self._records.refusals(self._workspace.id, found.id, limit)

    async def preview(self, trigger: str, count: int = PREVIEWED) -> Preview:
        """The next times at which a trigger fires; none if it does not wait for a time."""
        return self.previewed(await self.get(trigger), count)

    def previewed(self, trigger: TriggerRecord, count: int = PREVIEWED) -> Preview:
        """The same for a record that is at hand."""
        count = min(check_count(count, "count"), MOST_PREVIEWED)
        kind = type_named(self._workspace.types().triggers, trigger.type)
        config = kind.valid(trigger.config, trigger.timezone)
        schedule = kind.schedule(config, trigger.timezone, trigger.since)
        if schedule is None:
            return Preview(kind.title, [])
        zone = zone_named(trigger.timezone)
        fires = schedule.next_fires(self._workspace.clock.now(), count)
        return Preview(schedule.described(), [local(at, zone).isoformat() for at in fires])

    def shown(self, trigger: TriggerRecord) -> dict[str, Any]:
        """A record as people and programs read it, with its status and its next times."""
        found: dict[str, Any] = msgspec.to_builtins(trigger)
        for name in ("created_at", "updated_at", "last_fired_at"):
            if found[name] is not None:
                found[name] = moment(found[name]).isoformat()
        try:
            preview = self.previewed(trigger)
        except TriggerInvalid as error:  # it was written by somebody who knows more
            preview = Preview(error.message, [])
        status = "paused" if trigger.paused else "enabled" if trigger.enabled else "disabled"
        return {key: found[key] for key in found if key not in ("since", "next_at", "serial")} | {
            "status": status, "description": trigger.paused or preview.description,
            "next": preview.next if trigger.active else [],
        }  # fmt: skip

    # -- changing ------------------------------------------------------------------------

    async def create(
        self, definition: str, type: str, config: Mapping[str, Any] | None = None, *,
        name: str | None = None, timezone: str | None = None, enabled: bool = True,
    ) -> TriggerRecord:  # fmt: skip
        """Make a trigger by hand; it stays whatever is published.

        `timezone` is for definitions in Python; those that are data have one.
        """
        check_flag(enabled, "enabled")
        zone = await self._zone(definition, timezone)
        named = _check_name(name if name is not None else type)
        now = self._workspace.clock.now()
        record = TriggerRecord(
            id=self._workspace.ids.new(), definition=definition, name=named, type=type,
            origin="hand", serial=1, enabled=enabled, timezone=zone,
            config=_check_config({} if config is None else config),
            created_at=now, updated_at=now, since=now,
        )  # fmt: skip
        record = armed(record, self._workspace)
        await refuse_taken_path(self._workspace, record)
        try:
            self._workspace.changed(await self._records.put(self._workspace.id, record))
        except Overtaken:
            await refuse_taken_path(self._workspace, record)
            raise TriggerExists(
                f"Another trigger of {definition!r} has the name {named!r}."
            ) from None
        return record

    async def update(self, trigger: str, config: Mapping[str, Any]) -> TriggerRecord:
        """Give a trigger another config; from now on it fires by that."""

        def change(record: TriggerRecord) -> TriggerRecord:
            if record.origin == "document":
                raise InvalidInput(
                    f"The trigger {record.name!r} stands in the document of "
                    f"{record.definition!r}: change it there, and publish that."
                )
            return msgspec.structs.replace(record, config=_check_config(config))

        return await self._change(trigger, change)

    async def enable(self, trigger: str) -> TriggerRecord:
        """Let a trigger fire; nothing that it missed meanwhile is made up for."""
        return await self._change(
            trigger,
            lambda record: msgspec.structs.replace(record, enabled=True, paused=None),
        )

    async def disable(self, trigger: str) -> TriggerRecord:
        """Let a trigger fire no more."""
        return await self._change(
            trigger, lambda record: msgspec.structs.replace(record, enabled=False)
        )

    async def delete(self, trigger: str) -> None:
        """Delete a trigger that was made by hand."""
        found = await self.get(trigger)
        if found.origin == "document":
            raise InvalidInput(
                f"The trigger {found.name!r} stands in the document of {found.definition!r}: "
                "disable it, or publish that without it."
            )
        if not await self._records.delete(self._workspace.id, found.id):
            raise TriggerNotFound(f"There is no trigger {show(trigger)} any more.")

    async def fire(
        self, trigger: str, payload: Any = None, *, key: str | None = None
    ) -> tuple[str, bool]:
        """Start a run as the trigger would, with that payload; its id, and whether it is new."""
        found = await self.get(trigger)
        return await self._workspace.fire(found, {} if payload is None else payload, key)

    async def _change(
        self, trigger: str, change: Callable[[TriggerRecord], TriggerRecord]
    ) -> TriggerRecord:
        for _ in range(TRIES):
            before = await self.get(trigger)
            after = change(before)
            if after == before:
                return before
            after = renewed(after, before, self._workspace)
            await refuse_taken_path(self._workspace, after)
            try:
                self._workspace.changed(await self._records.put(self._workspace.id, after))
            except Overtaken:
                continue
            return after
        raise Conflict("Others change this trigger all the time; try again.", changes=[])

    async def _zone(self, definition: str, given: str | None) -> str:
        row = await self._workspace.store.version(self._workspace.id, definition, None)
        if row is None:
            raise UnknownDefinition(
                f"There is no definition {show(definition)}.", definition=definition
            )
        if row.revision is None:
            return given or "UTC"
        if given is not None:
            raise InvalidInput(
                f"{definition!r} is data: its document says the time zone, for all its triggers."
            )
        text = await self._workspace.store.records.document(self._workspace.id, row.revision)
        document = {} if text is None else msgspec.json.decode(text)
        return str(document.get("timezone") or "UTC")


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

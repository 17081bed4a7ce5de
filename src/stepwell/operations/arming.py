"""Arming triggers: from what is written about one to the record that fires."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import msgspec

from stepwell.errors import QuotaExceeded, TriggerExists, TriggerInvalid
from stepwell.graph.definition import Definition
from stepwell.graph.problems import Problem
from stepwell.graph.triggers import COMMON
from stepwell.kernel.names import show
from stepwell.kernel.plans import Plan
from stepwell.kernel.records import TriggerRecord
from stepwell.kernel.schedules import Schedule
from stepwell.operation import Workspace
from stepwell.trigger import TriggerType

PATH_BYTES = 24

Types = Mapping[str, TriggerType]


def type_named(types: Types, name: str) -> TriggerType:
    """The trigger type of that name; raises TriggerInvalid."""
    named = {alias: each for each in types.values() for alias in (each.name, *each.aliases)}
    if name not in named:
        hint = (
            f" Did you mean {close[0]!r}?" if (close := get_close_matches(str(name), types)) else ""
        )
        known = ", ".join(sorted(types))
        raise TriggerInvalid(f"There is no trigger type {show(name)}; there are {known}.{hint}")
    return named[name]


def armed(
    record: TriggerRecord, workspace: Workspace, before: TriggerRecord | None = None
) -> TriggerRecord:
    """The record with what the store looks for: its event, its path, its next time.

    `before` is what it was; a schedule with the same times has its next one still, be it overdue.
    """
    kind = type_named(workspace.types().triggers, record.type)
    config = kind.valid(record.config, record.timezone)
    schedule = kind.schedule(config, record.timezone, record.since)
    next_at = None
    if schedule is not None:
        _refuse_too_often(record, schedule, workspace.plan)
        next_at = schedule.next_after(workspace.clock.now())
        if before is not None and before.active:
            was = _schedule(before, workspace)
            next_at = before.next_at if was and schedule.has_times_of(was) else next_at
    path = kind.path(config)
    if path == "":  # one that nobody can guess, and that stays
        path = record.path or secrets.token_urlsafe(PATH_BYTES)
    return msgspec.structs.replace(
        record, event=kind.event(config), path=path, next_at=next_at if record.active else None
    )


def _schedule(record: TriggerRecord, workspace: Workspace) -> Schedule | None:
    try:
        kind = type_named(workspace.types().triggers, record.type)
        config = kind.valid(record.config, record.timezone)
    except TriggerInvalid:  # it was written by somebody who knows more
        return None
    return kind.schedule(config, record.timezone, record.since)


def _refuse_too_often(record: TriggerRecord, schedule: Schedule, plan: Plan) -> None:
    """Raise if the times of a schedule are closer than the plan allows."""
    if said := _too_often(record.name, schedule, plan):
        raise QuotaExceeded(said, **plan.facts("schedule_seconds"))


def _too_often(name: str, schedule: Schedule, plan: Plan) -> str | None:
    least, apart = plan.schedule_seconds, schedule.shortest_interval()
    if least is None or apart >= least:
        return None
    return (
        f"The trigger {name!r} fires every {apart:g} s; the plan {plan.name!r} allows a schedule "
        f"every {least:,} s."
    )


def beyond_plan(definition: Definition, workspace: Workspace) -> list[Problem]:
    """What of a definition, which is right as such, the plan does not allow."""
    found = []
    for index, trigger in enumerate(definition.triggers):
        kind = type_named(workspace.types().triggers, trigger["type"])
        config = kind.valid(_config_of(trigger), definition.timezone)
        schedule = kind.schedule(config, definition.timezone, 0)
        if schedule and (said := _too_often(trigger["id"], schedule, workspace.plan)):
            found.append(Problem(f"triggers[{index}]", QuotaExceeded.code, said))
    return found


def _config_of(trigger: Mapping[str, Any]) -> dict[str, Any]:
    return {key: trigger[key] for key in trigger if key not in COMMON}


def refuse_past(record: TriggerRecord) -> None:
    """Raise if a trigger would never fire, because its time has passed."""
    at = record.config.get("at")
    if at is not None and record.active and record.next_at is None:
        raise TriggerInvalid(f"at: {show(at)} has passed already, in {record.timezone}.")


async def refuse_taken_path(
    workspace: Workspace, record: TriggerRecord, changing: Collection[str] = ()
) -> None:
    """Raise if another trigger has the path of this one, and is not `changing` with it."""
    if record.path is None:
        return
    other = await workspace.store.triggers.trigger_at(workspace.id, record.path)
    if other is not None and other.id != record.id and other.id not in changing:
        raise TriggerExists(
            f"The webhook {other.definition}/{other.name} has the path {record.path!r} already."
        )


class Followed(NamedTuple):
    """What becomes of the triggers of a definition."""

    # Those that are new or changed, and those that are to go.
    changed: list[TriggerRecord]
    gone: list[TriggerRecord]
    # All that there will be, by name.
    kept: list[TriggerRecord]


class Following:
    """What has to become of the triggers of a definition that is published."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def enabled(self, name: str) -> list[TriggerRecord]:
        """The triggers of a definition that was disabled until now, if that changes them."""
        found = await self._workspace.store.triggers.triggers(self._workspace.id, name)
        anew = [(each, begun_anew(each, each, self._workspace)) for each in found]
        return [after for before, after in anew if after != before]

    async def of(self, definition: Definition, *, anew: bool = False) -> Followed:
        """What becomes of them; they begin `anew` if the definition was disabled until now."""
        found = await self._workspace.store.triggers.triggers(self._workspace.id, definition.name)
        known = {each.name: each for each in found}
        now = self._workspace.clock.now()
        written = {each["id"]: each for each in definition.triggers}
        changed: list[TriggerRecord] = []
        for name, trigger in written.items():
            before = known.get(name)
            if before is not None and before.origin == "hand":
                raise TriggerExists(
                    f"The document has a trigger {name!r}, and one of that name was made by hand. "
                    f"Rename the one, or delete the other: stepwell triggers delete "
                    f"{definition.name}/{name}"
                )
            after = self._written(definition, trigger, before, now)
            if anew and before is not None:
                after = begun_anew(after, before, self._workspace)
            if after != before:
                changed.append(after)
        for each in found:
            if each.origin == "hand":
                moved = self._changed(each, now, timezone=definition.timezone)
                if anew:
                    moved = begun_anew(moved, each, self._workspace)
                if moved != each:
                    changed.append(moved)
        gone = [each for each in found if each.origin == "document" and each.name not in written]
        for each in changed:  # a path may go from one to another
            await refuse_taken_path(self._workspace, each, [t.id for t in (*changed, *gone)])
        kept = known | {each.name: each for each in changed}
        left = {each.name for each in gone}
        return Followed(changed, gone, [kept[name] for name in sorted(kept) if name not in left])

    def _written(
        self, definition: Definition, trigger: Mapping[str, Any], before: TriggerRecord | None,
        now: int,
    ) -> TriggerRecord:  # fmt: skip
        """The record of a trigger that stands in the document."""
        fields: dict[str, Any] = {
            "type": trigger["type"], "origin": "document", "timezone": definition.timezone,
            "config": _config_of(trigger),
        }  # fmt: skip
        if "enabled" in trigger:  # else it stays as somebody has left it
            fields["enabled"] = trigger["enabled"]
        if before is not None:
            return self._changed(before, now, **fields)
        new = TriggerRecord(
            id=self._workspace.ids.new(), definition=definition.name, name=trigger["id"],
            serial=1, created_at=now, updated_at=now, since=now, **({"enabled": True} | fields),
        )  # fmt: skip
        return armed(new, self._workspace)

    def _changed(self, before: TriggerRecord, now: int, **fields: Any) -> TriggerRecord:
        """The record with these fields; itself if it has them."""
        after = msgspec.structs.replace(before, **fields)
        if after == before:
            return before
        return renewed(after, before, self._workspace)


def renewed(after: TriggerRecord, before: TriggerRecord, workspace: Workspace) -> TriggerRecord:
    """The record of a trigger that somebody has made of what it was before.

    One that was not active, or fires for something else, begins anew. What has happened for any
    other one, and was not seen to yet, is not lost.
    """
    now = workspace.clock.now()
    after = msgspec.structs.replace(
        after, serial=before.serial + 1, updated_at=now, paused=None, failures=0, last_error=None
    )
    anew = not before.active or after.type != before.type
    if anew or after.config.get("every") != before.config.get("every"):
        after = msgspec.structs.replace(after, since=now)
    if not after.enabled and _tells(after) == _tells(before):
        # One that is only switched off need not be fit for anything, nor known to this process.
        after = msgspec.structs.replace(after, next_at=None)
    else:
        after = armed(after, workspace, before)
    if anew or after.event != before.event:
        after = msgspec.structs.replace(after, place=None)
    return after


def begun_anew(after: TriggerRecord, before: TriggerRecord, workspace: Workspace) -> TriggerRecord:
    """The record of a trigger, which was `before`, when its definition is enabled again.

    Nothing that has happened until now is made up for, whether a process was there or not.
    """
    if not after.active or (after.next_at is None and after.event is None):
        return after
    now = workspace.clock.now()
    after = msgspec.structs.replace(
        after, serial=before.serial + 1, updated_at=now, since=now, place=None, failures=0,
        last_error=None,
    )  # fmt: skip
    if after.next_at is None:
        return after
    schedule = _schedule(after, workspace)
    # Whoever can read it looks for its next time from here on.
    next_at = max(after.next_at, now) if schedule is None else schedule.next_after(now)
    return msgspec.structs.replace(after, next_at=next_at)


def _tells(record: TriggerRecord) -> tuple[Any, ...]:
    """What says when a trigger fires, and for what."""
    return record.type, record.timezone, record.config

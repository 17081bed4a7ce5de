"""Triggers as people and programs read them: what they wait for, when, and why they do not fire."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from stepwell.errors import TriggerInvalid
from stepwell.kernel.access import FIRST_WORKSPACE
from stepwell.kernel.clock import to_datetime
from stepwell.kernel.records import Origin, TriggerRecord, trigger_etag
from stepwell.kernel.zones import local, zone_named
from stepwell.operation import Workspace
from stepwell.operations.arming import type_named
from stepwell.record import Upcoming

PREVIEWED = 5
_TIMES = ("created_at", "updated_at", "last_fired_at")
_HIDDEN = ("since", "next_at", "place")


class Preview(msgspec.Struct, frozen=True):
    """What a trigger waits for, and when it fires next if that is a time."""

    description: str
    timezone: str
    # Times with the offset of the zone.
    next: list[str]


class TriggerView(msgspec.Struct, frozen=True):
    """A trigger as it is: what it waits for, and why it does not fire if it does not."""

    id: str
    definition: str
    name: str
    type: str
    origin: Origin
    serial: int
    enabled: bool
    config: dict[str, Any]
    timezone: str
    created_at: datetime
    updated_at: datetime
    event: str | None
    path: str | None
    # Where deliveries to its webhook go, below the address of the server.
    webhook_url: str | None
    last_fired_at: datetime | None
    last_run_id: str | None
    last_error: str | None
    failures: int
    paused: str | None
    status: Literal["enabled", "disabled", "paused", "over"]
    why: str | None
    description: str
    # Times with the offset of the zone.
    next: list[str]

    @property
    def etag(self) -> str:
        return trigger_etag(self.id, self.serial)


def previewed(workspace: Workspace, trigger: TriggerRecord, count: int = PREVIEWED) -> Preview:
    """What a trigger waits for, with so many of its times."""
    kind = type_named(workspace.types().triggers, trigger.type)
    config = kind.valid(trigger.config, trigger.timezone)
    schedule = kind.schedule(config, trigger.timezone, trigger.since)
    if schedule is None:
        return Preview(kind.described(config), trigger.timezone, [])
    zone = zone_named(trigger.timezone)
    fires = schedule.next_fires(workspace.clock.now(), count)
    shown = [local(at, zone).isoformat() for at in fires]
    return Preview(schedule.described(), trigger.timezone, shown)


def view(workspace: Workspace, trigger: TriggerRecord, enabled: bool) -> dict[str, Any]:
    """A record with its status, its next times, and why it does not fire if it does not.

    `enabled` says whether its definition is.
    """
    found: dict[str, Any] = msgspec.structs.asdict(trigger)
    for name in _TIMES:
        found[name] = None if found[name] is None else to_datetime(found[name])
    try:
        preview = previewed(workspace, trigger)
    except TriggerInvalid as error:  # it was written by somebody who knows more
        preview = Preview(error.message, trigger.timezone, [])
    status, why = _status(trigger, preview, enabled)
    return {name: found[name] for name in found if name not in _HIDDEN} | {
        "webhook_url": _webhook_url(workspace.id, trigger.path), "status": status, "why": why,
        "description": preview.description,
        "next": preview.next if status == "enabled" else [],
    }  # fmt: skip


def upcoming(
    workspace: Workspace, triggers: Sequence[TriggerRecord], enabled: bool
) -> list[Upcoming]:
    """The schedules among the triggers of a definition, which is `enabled` or not."""
    views = [view(workspace, each, enabled) for each in triggers if each.type == "schedule"]
    return [Upcoming(each["name"], each["description"], each["next"]) for each in views]


def _webhook_url(workspace_id: str, path: str | None) -> str | None:
    if path is None:
        return None
    return f"/hooks/{path}" if workspace_id == FIRST_WORKSPACE else f"/hooks/@{workspace_id}/{path}"


def _status(trigger: TriggerRecord, preview: Preview, enabled: bool) -> tuple[str, str | None]:
    """How a trigger is, and why so if it does not fire."""
    if not trigger.enabled:
        return "disabled", remedy(trigger)
    if trigger.paused is not None:
        return "paused", f"{trigger.paused} {remedy(trigger)}"
    if not enabled:
        again = f"stepwell definitions enable {trigger.definition}"
        return "disabled", f"Its definition is disabled. It fires again after: {again}"
    if trigger.type == "schedule" and trigger.next_at is None:
        return "over", "Its time has passed."
    return "enabled", None


def remedy(trigger: TriggerRecord) -> str:
    """What makes a trigger fire again that is disabled or paused."""
    when = "It fires again after" if not trigger.enabled else "Once mended"
    return f"{when}: stepwell triggers enable {trigger.definition}/{trigger.name}"

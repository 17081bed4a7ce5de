"""The trigger `schedule`: it is time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from stepwell.graph.problems import Problems, below
from stepwell.kernel.schedules import FIELDS, Misfire, Schedule, schedule_problems
from stepwell.trigger import TriggerConfig, TriggerType

# Zones are the definition's; they are also called so by those who look for one here.
_ZONES = ("timezone", "tz", "zone")


class Config(TriggerConfig):
    cron: str | None = Field(
        None, description='Five fields like "0 2 * * 1-5", or a name like "@daily".'
    )
    every: str | int | float | None = Field(None, description='In even steps, like "15m".')
    at: str | None = Field(
        None, description="Once: a time in ISO 8601, of the time zone unless it has an offset."
    )
    misfire: Misfire = Field(
        "skip",
        description="What becomes of times that passed while nobody was there: they are skipped, "
        "the latest is made up for, or all are, up to the limit.",
    )
    limit: int = Field(10, description="How many missed times `all` makes up for.")
    grace: str | int | float = Field(
        "60s", description="A run that is started so much later is not late."
    )


class ScheduleTrigger(TriggerType):
    """Fires at times: by a cron expression, in even steps, or once.

    The time zone is that of the definition. The payload has `scheduled_at`, the time it was for.
    """

    name, title, config = "schedule", "Schedule", Config
    aliases = ("trigger_schedule",)

    def check(self, config: Mapping[str, Any], zone: str, path: str, problems: Problems) -> None:
        for name in _ZONES:
            if name in config:
                problems.error(
                    below(path, name), "unknown_field", "A trigger has no time zone of its own.",
                    "Write timezone beside the definition's name.",
                )  # fmt: skip
        own = (*FIELDS, *_ZONES)
        super().check({k: config[k] for k in config if k not in own}, zone, path, problems)
        for found in schedule_problems(config, zone):
            if found.field == "timezone" and path:
                continue  # the document has it, and is told
            at = below(path, found.field) if found.field else path
            problems.error(at, found.code, found.message, found.hint)

    def told(self) -> Any:
        return {"scheduled_at": "2026-01-31T09:00:00+00:00"}

    def is_over(self, config: Mapping[str, Any], zone: str, now: int) -> bool:
        return Schedule.read(config, zone, now).next_after(now) is None

    def schedule(self, config: Config, zone: str, anchor: int) -> Schedule:
        return Schedule.read(config.model_dump(), zone, anchor)


schedule = ScheduleTrigger()

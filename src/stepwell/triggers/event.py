"""The trigger `event`: something happened in the workspace."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from stepwell.config import plainly
from stepwell.graph.conditions import check_expression, evaluate
from stepwell.graph.problems import Problems
from stepwell.graph.refs import Names
from stepwell.kernel.clock import moment
from stepwell.kernel.codec import encode
from stepwell.kernel.matching import check_match, contains
from stepwell.kernel.names import check_text
from stepwell.kernel.records import EventRecord
from stepwell.trigger import TriggerConfig, TriggerType

# What a condition sees: the event as a whole, and what it carries.
_VARIABLES = ("event", "payload")


class Config(TriggerConfig):
    event: str = Field(description="The type of the events it fires for.")
    filter: dict[str, Any] | str | None = Field(
        None,
        description="Which of them: a mapping that the payload must contain, or CEL text over "
        "`payload` and `event` (`id`, `type`, `key`, `created_at`).",
    )

    @field_validator("event")
    @classmethod
    def _check_event(cls, value: str) -> str:
        return plainly(check_text, value, "An event's type")

    @field_validator("filter")
    @classmethod
    def _check_filter(cls, value: dict[str, Any] | str | None) -> dict[str, Any] | str | None:
        if isinstance(value, dict):
            return plainly(check_match, value, "filter")
        if value is not None:
            problems = Problems()
            check_expression(value, _VARIABLES, "filter", problems, Names(()))
            for found in problems.found:
                raise ValueError(f"{found.message} {found.hint}".strip())
        return value


class Event(TriggerType):
    """Fires for each event of a type, in the order in which they were emitted, once for each.

    The payload of the event is that of the firing.
    """

    name, title, config = "event", "Event", Config
    aliases = ("trigger_event",)

    def described(self, config: Config) -> str:
        said = f"For each event {config.event!r}"
        if isinstance(config.filter, str):
            return f"{said} with {config.filter}."
        return (
            f"{said}."
            if config.filter is None
            else f"{said} that has {encode(config.filter, 'filter')}."
        )

    def event(self, config: Config) -> str:
        return config.event

    def wants(self, config: Config, event: EventRecord) -> bool:
        if isinstance(config.filter, str):
            return evaluate(config.filter, _VARIABLES, _seen(event))
        return config.filter is None or contains(event.payload, config.filter)


def _seen(event: EventRecord) -> dict[str, Any]:
    about = {
        "id": event.id, "type": event.type, "key": event.key,
        "created_at": moment(event.created_at).isoformat(),
    }  # fmt: skip
    return {"event": about, "payload": event.payload}


event = Event()

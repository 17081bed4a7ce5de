"""The contract of a trigger type: one file with a config, and what a trigger of it waits for.

    class Config(TriggerConfig):
        event: str = Field(description="The type of the events it fires for.")

    class Event(TriggerType):
        '''Fires for events of the workspace.'''

        name, title, config = "event", "Event", Config

        def event(self, config: Config) -> str:
            return config.event

A trigger waits for a time (`schedule`), for an event (`event`, `wants`), for a request to its
`path`, or for somebody who fires it. What it is told then is its payload; `map` makes the input
of the run from it. Nothing here does anything: the engine fires.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

import pydantic
from pydantic import Field

from stepwell.config import Config, note, said
from stepwell.errors import TriggerInvalid
from stepwell.graph.problems import Problems
from stepwell.kernel.records import EventRecord
from stepwell.kernel.schedules import Schedule

# What a trigger has beside its config.
COMMON = ("id", "type", "title", "enabled")


class TriggerConfig(Config):
    """What is written about a trigger, beside its id and type."""

    map: dict[str, Any] | None = Field(
        None,
        description="The input of the run: names with a JSONPath into the payload, or a value.",
    )


class TriggerType:
    """A type of trigger."""

    name: ClassVar[str]
    title: ClassVar[str]
    config: ClassVar[type[TriggerConfig]]
    # Names that it has elsewhere.
    aliases: ClassVar[tuple[str, ...]] = ()

    @property
    def help(self) -> str:
        return inspect.getdoc(type(self)) or ""

    def check(self, config: Mapping[str, Any], zone: str, path: str, problems: Problems) -> None:
        """Note everything wrong with a config."""
        try:
            self.read(config, zone)
        except pydantic.ValidationError as error:
            for each in error.errors(include_url=False, include_input=False):
                note(each, self.name, self.config, path, problems)

    def read(self, config: Mapping[str, Any], zone: str) -> Any:
        """The config as a model; raises pydantic's ValidationError."""
        return self.config.model_validate(config, context={"timezone": zone})

    def valid(self, config: Mapping[str, Any], zone: str) -> Any:
        """The same; raises TriggerInvalid with all that is wrong."""
        try:
            return self.read(config, zone)
        except pydantic.ValidationError as error:
            wrong = [
                {"field": ".".join(map(str, each["loc"])), "message": said(each)}
                for each in error.errors(include_url=False, include_input=False)
            ]
            shown = "; ".join(
                f"{each['field']}: {each['message']}" if each["field"] else each["message"]
                for each in wrong
            )
            raise TriggerInvalid(
                f"The config of a {self.name} trigger does not fit: {shown}.", problems=wrong
            ) from None

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the config."""
        return self.config.model_json_schema()

    # -- what it waits for ---------------------------------------------------------------

    def schedule(self, config: Any, zone: str, anchor: int) -> Schedule | None:
        """The times at which it fires; those that repeat are counted from `anchor`."""
        return None

    def event(self, config: Any) -> str | None:
        """The type of the events that it fires for."""
        return None

    def wants(self, config: Any, event: EventRecord) -> bool:
        """Whether it fires for this event of its type; may raise ConditionFailed."""
        return True

    def path(self, config: Any) -> str | None:
        """The path of the requests that it fires for; empty if one is to be made up."""
        return None

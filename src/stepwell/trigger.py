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
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import msgspec
import pydantic
from pydantic import Field, field_validator

from stepwell.config import Config, note, plainly
from stepwell.errors import TriggerInvalid
from stepwell.graph.problems import Problem, Problems
from stepwell.kernel.mapping import read_map
from stepwell.kernel.records import EventRecord
from stepwell.kernel.schedules import Schedule


class TriggerConfig(Config):
    """What is written about a trigger, beside its id and type."""

    map: dict[str, Any] | None = Field(
        None,
        description="The input of the run: names with a JSONPath into the payload, or a value.",
    )

    @field_validator("map")
    @classmethod
    def _check_map(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            plainly(partial(read_map, stored=True), value)  # slips are told when it is saved
        return value


class Request(msgspec.Struct, frozen=True):
    """A request as it came, before anybody has looked into it."""

    method: str
    headers: list[tuple[str | bytes, str | bytes]]
    body: bytes
    query: str | bytes = b""


class Told(msgspec.Struct, frozen=True):
    """An event that somebody outside reports; one with its type and key is enough.

    Unless each delivery counts.
    """

    type: str
    payload: Any
    key: str


class Delivery(msgspec.Struct, frozen=True):
    """What a request says, once it is believed."""

    payload: Any
    # Two requests with the same are one; None if each counts.
    key: str | None
    # Whether it starts a run, and what events it reports.
    starts: bool = True
    events: list[Told] = []
    # Of a sender who only asks whether somebody is there: what it wants to hear.
    challenge: str | None = None


class Rate(msgspec.Struct, frozen=True):
    """So many in so many seconds."""

    limit: int
    seconds: float


class TriggerType:
    """A type of trigger."""

    name: ClassVar[str]
    title: ClassVar[str]
    config: ClassVar[type[TriggerConfig]]
    # Names that it has elsewhere.
    aliases: ClassVar[tuple[str, ...]] = ()
    # Whether fields of its payload that the definition does not know are left out, not refused.
    loose: ClassVar[bool] = True

    @property
    def help(self) -> str:
        return inspect.getdoc(type(self)) or ""

    def check(self, config: Mapping[str, Any], zone: str, path: str, problems: Problems) -> None:
        """Note everything wrong with a config, in that time zone."""
        try:
            self.config.model_validate(config)
        except pydantic.ValidationError as error:
            for each in error.errors(include_url=False, include_input=False):
                note(each, f"{self.name} trigger", self.config, path, problems)

    def valid(self, config: Mapping[str, Any], zone: str) -> Any:
        """The config as its model; raises TriggerInvalid with all that is wrong."""
        problems = Problems()
        self.check(config, zone, "", problems)
        self.refuse(problems)
        return self.config.model_validate(config)

    def refuse(self, problems: Problems) -> None:
        """Raise TriggerInvalid with all that is wrong, if anything is."""
        if problems.ok:
            return
        shown = " ".join(_said(each) for each in problems.found)
        raise TriggerInvalid(
            f"This {self.name} trigger cannot be. {shown}",
            problems=[
                {"path": each.path, "code": each.code, "message": each.message, "hint": each.hint}
                for each in problems.found
            ],
        )

    def secrets_of(self, config: Mapping[str, Any]) -> Sequence[str]:
        """The names of secrets in a config that may be wrong."""
        try:
            return self.secrets(self.config.model_validate(config))
        except pydantic.ValidationError:
            return ()

    def told(self) -> Any:
        """A payload like all that its triggers are told; None if they may be told anything."""
        return None

    def is_over(self, config: Mapping[str, Any], zone: str, now: int) -> bool:
        """Whether a trigger with this config, which is right, never fires after `now`."""
        return False

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the config."""
        return self.config.model_json_schema()

    def described(self, config: Any) -> str:
        """What a trigger waits for, in a sentence; schedules say so themselves."""
        return f"{self.title}."

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

    def starts(self, config: Any) -> bool:
        """Whether it starts runs; else it only emits events."""
        return True

    def secrets(self, config: Any) -> Sequence[str]:
        """The names of secrets that requests are checked by."""
        return ()

    def rate(self, config: Any) -> Rate | None:
        """How many requests it takes."""
        return None

    def receive(self, config: Any, request: Request, secrets: Sequence[str], now: int) -> Delivery:
        """What a request to its path says; raises a StepwellError if it is not believed."""
        raise TriggerInvalid(f"A {self.name} trigger takes no requests.")


def _said(problem: Problem) -> str:
    """What is wrong, and with which field."""
    about = problem.path and not problem.message.startswith(problem.path)
    return f"{problem.path}: " * bool(about) + f"{problem.message} {problem.hint}".strip()

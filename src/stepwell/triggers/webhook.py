"""The trigger `webhook`: somebody outside sends a request."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from stepwell.config import OneOrMoreTexts, WrittenDuration, plainly
from stepwell.errors import RequestUnfit
from stepwell.kernel.durations import seconds
from stepwell.kernel.jsonpath import NOTHING
from stepwell.kernel.names import check_text
from stepwell.trigger import Delivery, Rate, Request, Told, TriggerConfig, TriggerType
from stepwell.triggers.inbound.bodies import payload_of, read_data, signed_data
from stepwell.triggers.inbound.cloudevents import (
    events_inside,
    mode_of,
    payload_of_event,
    read_events,
)
from stepwell.triggers.inbound.delivery import delivery_key, event_id
from stepwell.triggers.inbound.github import github_events
from stepwell.triggers.inbound.headers import Headers
from stepwell.triggers.inbound.signatures import PRESETS, only_body_counts, verify
from stepwell.triggers.inbound.slack import challenge_of

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_PATH = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")
_RATE = re.compile(r"(\d{1,9})\s*/\s*(.+)")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
MAX_PATH = 200


class Config(TriggerConfig):
    path: str = Field(
        "",
        description="Where requests go, below the address of webhooks; made up, so that nobody "
        "can guess it, unless said.",
    )
    method: OneOrMoreTexts = Field(["POST"], description="The methods that it takes.")
    verify: str | None = Field(None, description=f"How requests are signed: {', '.join(PRESETS)}.")
    secret: OneOrMoreTexts = Field(
        [], description="The name of the secret they are signed with; two while it is changed."
    )
    header: str | None = Field(None, description="Where the signature is, for hmac and header.")
    tolerance: WrittenDuration = Field("5m", description="How old a signed request may be.")
    headers: dict[str, str] = Field(
        {}, description="Headers that a request must have, with these values."
    )
    rate: str | None = Field(
        None, description='How many requests it takes, like "30/1m"; more are refused.'
    )
    dedupe: bool = Field(
        True,
        strict=True,
        description="Whether the same delivery, by its id or else by what it says, counts once.",
    )
    becomes: Literal["run", "events", "both"] = Field(
        "run",
        description="Whether a request starts a run, or is emitted: as what a delivery of GitHub "
        "reports, as the CloudEvents that it is, or as `event`.",
    )
    event: str | None = Field(
        None, description="The type of the event that any other request is emitted as."
    )

    @field_validator("path")
    @classmethod
    def _check_path(cls, value: str) -> str:
        if value and (len(value) > MAX_PATH or not _PATH.fullmatch(value)):
            raise ValueError(
                f"a path has letters, digits, '-', '_', '.' and '~', at most {MAX_PATH}, and '/' "
                "between them: it does not begin or end with one"
            )
        return value

    @field_validator("method")
    @classmethod
    def _check_method(cls, value: str | list[str]) -> list[str]:
        found = [value] if isinstance(value, str) else value
        for each in found:
            if each.upper() not in METHODS:
                raise ValueError(f"{each!r:.50} is no method; there are {', '.join(METHODS)}")
        if not found:
            raise ValueError("there must be a method")
        return [each.upper() for each in found]

    @field_validator("verify")
    @classmethod
    def _check_verify(cls, value: str | None) -> str | None:
        if value is not None and value not in PRESETS:
            raise ValueError(f"{value!r:.50} is not known; there are {', '.join(PRESETS)}")
        return value

    @field_validator("secret")
    @classmethod
    def _check_secret(cls, value: str | list[str]) -> list[str]:
        found = [value] if isinstance(value, str) else value
        if len(found) > 2 or not all(found):
            raise ValueError("there are one or two secrets, by their names")
        return found

    @field_validator("header")
    @classmethod
    def _check_header(cls, value: str | None) -> str | None:
        if value is not None and not _HEADER.fullmatch(value):
            raise ValueError(f"{value!r:.50} is not the name of a header")
        return value

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not _HEADER.fullmatch(name):
                raise ValueError(f"{name!r:.50} is not the name of a header")
        return value

    @field_validator("rate")
    @classmethod
    def _check_rate(cls, value: str | None) -> str | None:
        if value is not None:
            plainly(read_rate, value)
        return value

    @field_validator("event")
    @classmethod
    def _check_event(cls, value: str | None) -> str | None:
        return None if value is None else plainly(check_text, value, "An event's type")

    @model_validator(mode="after")
    def _check_together(self) -> Config:
        if self.verify is not None and not self.secret:
            raise ValueError(f"verify: {self.verify} needs a secret, by its name")
        if self.verify is None and self.secret:
            raise ValueError("a secret needs verify, which says how requests are signed with it")
        if self.header is not None and self.verify not in ("hmac", "header"):
            raise ValueError("header is for verify: hmac and verify: header")
        if self.event is not None and self.becomes == "run":
            raise ValueError("event needs becomes: events, or both")
        return self


def read_rate(text: str) -> Rate:
    """How many in which time, like `30/1m`."""
    match = _RATE.fullmatch(text.strip())
    if match is None or int(match[1]) < 1 or seconds(match[2], "rate") <= 0:
        raise RequestUnfit(f'a rate is written like "30/1m", not {text!r:.50}')
    return Rate(int(match[1]), seconds(match[2], "rate"))


class Webhook(TriggerType):
    """Fires for each request to its path that is believed; the answer is the id of the run.

    The payload is what the body says, with `query` and `headers` of the request.
    """

    name, title, config = "webhook", "Webhook", Config
    aliases = ("trigger_webhook",)

    def described(self, config: Config) -> str:
        signed = "" if config.verify is None else f", signed by {config.verify}"
        emits = {"run": "", "events": ", as events", "both": ", as a run and as events"}
        return f"For each {' or '.join(config.method)} to its path{signed}{emits[config.becomes]}."

    def starts(self, config: Config) -> bool:
        return config.becomes != "events"

    def path(self, config: Config) -> str:
        return config.path

    def secrets(self, config: Config) -> Sequence[str]:
        return config.secret

    def rate(self, config: Config) -> Rate | None:
        return None if config.rate is None else read_rate(config.rate)

    def receive(
        self, config: Config, request: Request, secrets: Sequence[str], now: int
    ) -> Delivery:
        headers = Headers(request.headers)
        if request.method.upper() not in config.method:
            raise RequestUnfit(
                f"This webhook takes {' and '.join(config.method)}.",
                reason="method",
            )
        _check_wanted(headers, config.headers)
        if config.verify is not None:
            verify(
                config.verify, headers, request.body, secrets, now, header=config.header,
                tolerance_seconds=seconds(config.tolerance),
            )  # fmt: skip
        signed = only_body_counts(config.verify)
        if signed and mode_of(headers) == "binary":
            raise RequestUnfit(
                "In binary mode the attributes of a CloudEvent are headers, which "
                f"verify: {config.verify} does not sign. Send it in structured mode.",
                reason="unsigned",
            )
        data = read_data(headers, request.body)
        said = signed_data(headers, request.body, data) if signed else data
        if config.verify == "slack" and (challenge := challenge_of(said)) is not None:
            return Delivery(None, None, starts=False, challenge=challenge)
        known = delivery_key(
            config.verify, headers, said, request.method, request.query, request.body
        )
        hidden = [config.header] if config.header else []
        payload = payload_of(data, headers, request.query, hidden=[*hidden, *config.headers])
        events = []
        if config.becomes != "run":
            found = _cloudevents(headers, request.body, said if signed else NOTHING)
            events = found or _others(config, headers, data, said, known)
            if not events and config.becomes == "events" and not _is_known(config, headers):
                raise RequestUnfit(
                    "This webhook emits events, and this is neither a CloudEvent nor a delivery "
                    "of GitHub. Give it an `event`, the type that other requests are emitted as.",
                    reason="no_event",
                )
        key = known if config.dedupe else None
        return Delivery(payload, key, starts=self.starts(config), events=events)


def _check_wanted(headers: Headers, wanted: Mapping[str, str]) -> None:
    for name, value in wanted.items():
        given = headers.get(name, "")
        if not hmac.compare_digest(given.encode(), value.encode()):
            raise RequestUnfit(f"The header {name} is not as it must be.", reason="header")


def _is_known(config: Config, headers: Headers) -> bool:
    """Whether a request is of a kind that reports events, though maybe none just now."""
    return _is_github(config, headers) or mode_of(headers) is not None


def _is_github(config: Config, headers: Headers) -> bool:
    if only_body_counts(config.verify):
        return config.verify == "github"
    return "x-github-event" in headers


def _cloudevents(headers: Headers, body: bytes, signed: Any) -> list[Told]:
    """The CloudEvents of a request; what is signed is one also if its headers deny it."""
    events = read_events(headers, body) if mode_of(headers) is not None else events_inside(signed)
    return [Told(each.type, payload_of_event(each), event_id(each)) for each in events]


def _others(config: Config, headers: Headers, data: Any, said: Any, known: str) -> list[Told]:
    """What any other request reports."""
    github = github_events(said) if _is_github(config, headers) else []
    found = [Told(each.type, each.payload, known) for each in github]
    if not found and config.event is not None and mode_of(headers) is None:
        found = [Told(config.event, None if data is NOTHING else data, known)]
    return found


webhook = Webhook()

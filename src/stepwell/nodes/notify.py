"""The node `notify`: tells people something."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, AliasChoices, Field, model_validator

from stepwell.node import Call, NodeConfig, Words, node
from stepwell.nodes.addresses import Guard
from stepwell.nodes.answers import check_status
from stepwell.nodes.apprise_targets import push
from stepwell.nodes.http import Url
from stepwell.nodes.outgoing import Outgoing, exchange

# More of what a webhook says is of no interest.
_MAX_ANSWER_BYTES = 10_000
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def _check_target(target: str) -> str:
    if not _SCHEME.match(target):
        raise ValueError("A target is a URL such as mailto://… or slack://….")
    return target


Target = Annotated[str, AfterValidator(_check_target)]


class Config(NodeConfig):
    message: Words = Field(
        min_length=1,
        validation_alias=AliasChoices("message", "message_template"),
        description="What to say.",
    )
    title: Words = Field("", description="A line above it.")
    targets: Annotated[list[Target], Field(min_length=1)] | None = Field(
        None,
        description="Whom to tell, as Apprise URLs (mailto://, slack://, ntfy:// …); use secrets.",
    )
    channel: Literal["slack", "webhook"] | None = Field(
        None, description="Instead of targets: what kind of URL the target is."
    )
    target: Url | None = Field(
        None, description="An incoming webhook of Slack, or any URL that takes JSON."
    )

    @model_validator(mode="before")
    @classmethod
    def _not_both(cls, given: Any) -> Any:
        # Looked at before the fields are, which stop at the first reference.
        fields = given if isinstance(given, dict) else {}
        ways = [fields.get("targets"), fields.get("channel") or fields.get("target")]
        if all(way is not None for way in ways):
            raise ValueError("Give either targets, or a channel and its target.")
        return given

    @model_validator(mode="after")
    def _somebody(self) -> Config:
        if self.targets is None and (self.channel is None or self.target is None):
            raise ValueError("Give targets, or a channel and its target.")
        return self


@node(
    "notify", title="Notify", group="output", config=Config, aliases=("output_notify",),
    timeout="30s", max_timeout="10m",
)  # fmt: skip
async def notify(config: Config, call: Call) -> dict[str, Any]:
    """Send a message to people; the output says to how many targets it was `sent`.

    If some targets fail, the step does, and its next attempt sends to all of them again.
    """
    guard = Guard(call.host.allow_private)
    if config.targets is not None:
        await push(config.targets, config.title, config.message, guard)
        return {"sent": len(config.targets)}
    await _post(config, call, guard)
    return {"sent": 1}


async def _post(config: Config, call: Call, guard: Guard) -> None:
    assert config.target is not None
    request = Outgoing(
        "POST",
        config.target,
        {"content-type": "application/json", "idempotency-key": call.idempotency_key},
        msgspec.json.encode(_payload(config, call)),
        # The URL of a webhook is as good as a password.
        f"The {config.channel} notification",
    )
    answer = await exchange(request, guard, max_bytes=_MAX_ANSWER_BYTES)
    check_status(answer, request.name)


def _payload(config: Config, call: Call) -> dict[str, Any]:
    if config.channel == "slack":
        return {"text": f"*{config.title}*\n{config.message}" if config.title else config.message}
    return {
        "title": config.title,
        "message": config.message,
        "run_id": call.run_id,
        "step": call.key,
    }

"""The node `wait_event`: waits for an event of the workspace, or a signal to its run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from stepwell.errors import InvalidInput
from stepwell.kernel.matching import check_match
from stepwell.node import Call, NodeConfig, WrittenDuration, node


def _check_match(match: dict[str, Any]) -> dict[str, Any]:
    try:
        check_match(match, "The match")
    except InvalidInput as error:
        raise ValueError(error.message) from None
    return match


class Config(NodeConfig):
    event: str = Field(min_length=1, max_length=200, description="The type to wait for.")
    match: Annotated[dict[str, Any], AfterValidator(_check_match)] | None = Field(
        None, description="What the payload must contain."
    )
    timeout: WrittenDuration | None = Field(
        None, description="How long to wait at most; left out: for as long as it takes."
    )
    lookback: WrittenDuration | None = Field(
        None, description="From how long before events count too, up to 7 days."
    )
    on_timeout: Literal["null", "fail"] = Field(
        "null", description="Whether the output is null after the timeout, or the step fails."
    )


@node(
    "wait_event", title="Wait for event", group="control", config=Config, durable=True
)  # fmt: skip
async def wait_event(config: Config, call: Call) -> Any:
    """Wait for an event; the output is its payload."""
    return await call.durably.wait_for_event(
        call.key,
        config.event,
        match=config.match,
        timeout=config.timeout,
        lookback=config.lookback,
        raise_on_timeout=config.on_timeout == "fail",
    )

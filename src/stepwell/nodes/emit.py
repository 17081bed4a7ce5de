"""The node `emit`: tells the workspace that something has happened."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, Field

from stepwell.node import Call, NodeConfig, Words, node


class Config(NodeConfig):
    event: str = Field(
        min_length=1,
        max_length=200,
        validation_alias=AliasChoices("event", "type"),
        description="The type of the event.",
    )
    payload: Any = Field(None, description="What there is to know about it.")
    key: Words | None = Field(None, description="What it is about; with `once`, what is unique.")
    once: bool = Field(False, description="Whether only the first of this type and key counts.")


@node("emit", title="Emit event", group="output", config=Config, durable=True)
async def emit(config: Config, call: Call) -> None:
    """Emit an event, which can start runs and end waits."""
    await call.durably.emit_as(
        call.key, config.event, config.payload, key=config.key, once=config.once
    )

"""The node type `transform`: a value put together from others."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from stepwell.node import Call, NodeConfig, node


class Config(NodeConfig):
    """The value."""

    value: Any = Field(description="The output; references in it are replaced by what they name.")


@node("transform", title="Transform", group="data", config=Config)
async def transform(config: Config, call: Call) -> Any:
    """Put values of earlier steps together into a new one."""
    return config.value

"""The node `run`: starts a run of another definition, or of its own."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from stepwell.node import Call, NodeConfig, node


class Config(NodeConfig):
    definition: str = Field(min_length=1, description="The name of the definition.")
    input: Any = Field(None, description="The input of the run.")
    wait: bool = Field(True, description="Whether to wait for the run and take its output.")
    version: int | None = Field(None, ge=1, description="Left out: the newest.")


@node(
    "run", title="Run", group="control", config=Config, durable=True, aliases=("subworkflow",)
)  # fmt: skip
async def run(config: Config, call: Call) -> Any:
    """Start a run; the output is its output, or its `run_id` if it is not waited for."""
    options: dict[str, Any] = {} if config.version is None else {"version": config.version}
    child = (call.key, config.definition, config.input)
    if config.wait:
        return await call.durably.run_child(*child, **options)
    started = await call.durably.start_child(*child, **options)
    return {"run_id": started.id}

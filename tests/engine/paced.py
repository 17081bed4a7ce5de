"""What tests of limits and plans start."""

from __future__ import annotations

from typing import Any

from stepwell import workflow


@workflow
async def quick(ctx: Any, input: Any) -> Any:
    return input


@workflow
async def waits(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("go")


def graph(name: str = "paced", **fields: Any) -> dict[str, Any]:
    node = {"id": "a", "type": "transform", "config": {"value": "@input"}}
    return {"name": name, "nodes": [node], **fields}

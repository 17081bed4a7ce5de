"""Tools that are always the same: one for each operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import mcp_types as types
import msgspec

from stepwell.catalog import operations
from stepwell.mcp.answers import read, schema_of
from stepwell.mcp.seat import Seat
from stepwell.operation import Operation, Permission

# What is about who may do what, their own passwords and tokens too: no matter of agents. With a
# token of a gate one would decide in the place of those whom it asks.
WITHHELD = frozenset(
    {
        "users", "tokens", "workspaces", "audit", "gates.token", "gates.answer",
        "gates.decide.token",
    }
)  # fmt: skip
# By the methods of HTTP that say so.
_IDEMPOTENT = frozenset({"GET", "PUT", "DELETE"})


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool, what it takes to use it, and what it does; the value is shown as it is."""

    tool: types.Tool
    needs: Permission
    call: Callable[[Seat, Mapping[str, Any]], Awaitable[Any]]


@cache
def operation_offers() -> Mapping[str, Offer]:
    """The tools for operations, by their names."""
    found = [
        _offer(each) for each in operations().values() if not WITHHELD & {each.noun, each.name}
    ]
    return {each.tool.name: each for each in found}


def tool_name(operation: str) -> str:
    """What the tool of an operation is called: not every client takes dots."""
    return operation.replace(".", "_")


def _offer(operation: Operation) -> Offer:
    without = {each for each in operation.parameters if f"{operation.name}.{each}" in WITHHELD}
    arguments = operation.arguments(without=without)

    async def call(seat: Seat, given: Mapping[str, Any]) -> Any:
        taken = msgspec.structs.asdict(read(given, arguments))
        return operation.shown(await seat.call(operation.name, **taken))

    tool = types.Tool(
        name=tool_name(operation.name),
        description=operation.description,
        input_schema=schema_of(arguments),
        annotations=types.ToolAnnotations(
            read_only_hint=not operation.changes,
            destructive_hint=operation.destructive,
            idempotent_hint=operation.method in _IDEMPOTENT,
            open_world_hint=False,
        ),
    )
    return Offer(tool, operation.needs, call)

"""`stepwell nodes`: the types of nodes there are, and what each is configured with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stepwell.catalog import node_types
from stepwell.cli.arguments import as_json
from stepwell.cli.output import emit, table
from stepwell.errors import InvalidInput
from stepwell.graph.control import CONTROL, ControlType

if TYPE_CHECKING:
    from stepwell.node import NodeType


@click.group()
def nodes() -> None:
    """Types of nodes for definitions.

    \b
    Example:
      stepwell nodes list
    """


@nodes.command("list")
@as_json
def list_(as_json: bool) -> None:
    """List the types, with the names that they have elsewhere.

    \b
    Example:
      stepwell nodes list --json
    """
    found = sorted(_all().values(), key=lambda each: each.name)
    if as_json:
        emit({"items": [_about(each) for each in found]})
        return
    rows = [
        (each.name, each.group, ", ".join(each.aliases) or "–", each.help.splitlines()[0])
        for each in found
    ]
    click.echo("\n".join(table(("type", "group", "also", "what it does"), rows)))


@nodes.command()
@click.argument("type", metavar="TYPE")
@as_json
def schema(type: str, as_json: bool) -> None:
    """Print the JSON Schema of a type's config; it is JSON with and without --json.

    \b
    Example:
      stepwell nodes schema http
    """
    types = _all()
    found = types.get(node_types().aliases.get(type, type))
    if found is None:
        raise InvalidInput(f"There is no node type {type!r}; there are {', '.join(sorted(types))}.")
    emit(found.schema())


def _all() -> dict[str, NodeType | ControlType]:
    return {**CONTROL, **node_types().by_name}


def _about(found: NodeType | ControlType) -> dict[str, Any]:
    return {
        "type": found.name,
        "title": found.title,
        "group": found.group,
        "aliases": found.aliases,
        "help": found.help,
        "durable": not found.acts,
        "timeout_seconds": found.timeout,
        "max_timeout_seconds": found.max_timeout,
        "config": found.schema(),
    }

"""`stepwell mcp` gives an agent the tools of a store, on standard input and output."""

from __future__ import annotations

import asyncio
import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.arguments import store_alone
from stepwell.cli.oneself import own_name
from stepwell.cli.session import WORKSPACE, store_url
from stepwell.errors import WorkspaceNotFound
from stepwell.operation import Caller

if TYPE_CHECKING:
    from stepwell.app import Stepwell

LONGEST_WAIT_SECONDS = 60


@click.command()
@click.option(
    "--level",
    type=click.Choice(["read", "run", "build"]),
    default="run",
    show_default=True,
    help="Only to look; to start and decide, too; to edit and publish, too.",
)
@click.option("--workspace", default=WORKSPACE, show_default=True, metavar="NAME")
@click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(0, LONGEST_WAIT_SECONDS),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="How long a tool that starts a run waits for its output.",
)
@click.option("--url", metavar="URL", help="Of the server where people look at runs and gates.")
@store_alone
def mcp(
    level: Any, workspace: str, wait_seconds: float, url: str | None, store: str | None
) -> None:
    """Serve tools to an agent by the Model Context Protocol, over standard input and output.

    Meant to be started by the agent's client, which has this command in its configuration.
    Every enabled definition is a tool, beside those for definitions and runs. Runs are executed
    by workers, which have to be started elsewhere. There is no --json here: standard output
    belongs to the protocol, and what is to be said to people goes to standard error.

    \b
    Examples:
      stepwell mcp --level build
      claude mcp add stepwell -- stepwell mcp --store sqlite:////home/ada/stepwell.db
    """
    # Standard output belongs to the protocol.
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    surface = _surface()
    caller = Caller(own_name(), level, "owner")
    # As at the server: pages of workspaces other than the first are below their names.
    below = "" if workspace == WORKSPACE else f"/@{workspace}"
    manner = surface.Manner(wait_seconds, url and url.rstrip("/") + below)

    async def serve() -> None:
        async with _stepwell(store, workspace) as stepwell:
            await _check_workspace(stepwell, workspace)
            if not any(each.alive for each in await stepwell.workers()):
                click.echo(
                    "No worker is alive; runs wait until one is: stepwell worker [MODULE:NAME …]",
                    err=True,
                )
            await surface.serve_stdio(surface.Seat(stepwell, caller, level), manner)

    asyncio.run(serve())


async def _check_workspace(stepwell: Stepwell, name: str) -> None:
    """Refuse what must be misspelt; one that only programs use is nowhere but in what it has."""
    store = stepwell.store
    if name == WORKSPACE or await store.access.workspace(name) is not None:
        return
    if not await store.definition_names(name):
        raise WorkspaceNotFound(f"There is no workspace {name!r} in this store.")


def _stepwell(store: str | None, workspace: str) -> Stepwell:
    from stepwell.app import Stepwell

    return Stepwell(store_url(store), workspace=workspace)


def _surface() -> Any:
    """The tools, loaded by name: no other command has to wait for the package of the protocol."""
    try:
        return import_module("stepwell.mcp")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise click.UsageError(
            "This needs the package mcp, which comes with the extra `mcp`. In the folder of "
            "Stepwell: pip install '.[mcp]'"
        ) from error

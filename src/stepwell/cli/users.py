"""Users: the link that logs one of them in; the other commands are made from operations."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

import click

from stepwell.catalog import operations
from stepwell.cli.arguments import common
from stepwell.cli.output import emit
from stepwell.cli.rendering import lines_of
from stepwell.cli.session import connected
from stepwell.operation import Caller

if TYPE_CHECKING:
    from stepwell.app import Stepwell


@click.group()
def users() -> None:
    """Users of the workspace: who they are, what they may do, and how they get in.

    \b
    Examples:
      stepwell users list
      stepwell users link ada@example.org
    """


@users.command("link")
@click.argument("user_id", metavar="USER_ID")
@common
def link(user_id: str, store: str | None, as_json: bool) -> None:
    """A link that logs somebody in once, for those who have lost their password.

    At a server it is a whole one. On a store nobody knows where servers are: there it is the text
    for /login/TEXT at one of them.

    \b
    Example:
      stepwell users link ada@example.org
    """
    operation = operations()["users.link"]

    async def work(stepwell: Stepwell) -> tuple[Any, str | None]:
        caller = Caller(getpass.getuser(), "own", "owner")
        made = await operation.call(stepwell, caller, {"user_id": user_id})
        return operation.shown(made), getattr(stepwell, "server_url", None)

    shown, server = connected(store, work)
    url = None if server is None else f"{server}/login/{shown['link']}"
    if as_json:
        emit({**shown, "url": url})
    else:
        click.echo("\n".join(lines_of(shown if url is None else {**shown, "link": url})))

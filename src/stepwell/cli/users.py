"""Users: the links that log them in; the other commands are made from operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stepwell.catalog import operations
from stepwell.cli.arguments import common
from stepwell.cli.generated import ASKED, asked
from stepwell.cli.oneself import own_name
from stepwell.cli.output import emit, moment
from stepwell.cli.rendering import lines_of
from stepwell.cli.session import connected
from stepwell.operation import ROLES, Caller

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


@users.command("create")
@click.option("--name", required=True, metavar="NAME", help="An e-mail address, or another name.")
@click.option("--role", required=True, type=click.Choice(list(ROLES)))
@click.option("--password", metavar=ASKED, help="Is asked for, or read as a line.")
@common
def create(name: str, role: str, password: str | None, store: str | None, as_json: bool) -> None:
    """Take somebody in: with a password, or by a link that logs them in once.

    Who belongs to other workspaces of yours keeps the password they have. Who belongs to somebody
    else's is refused: its owners may be able to log in as them.

    \b
    Examples:
      stepwell users create --name ada@example.org --role member
      stepwell users create --name ada@example.org --role viewer --password -
    """
    given = {"name": name, "role": role}
    if password is not None:
        given["password"] = asked("password", password)
    shown, server = _done("users.create", given, store)
    login = shown["login"]
    url = None if login is None else _url(server, login["link"])
    if as_json:
        emit({**shown, "url": url})
        return
    click.echo(f"{name} belongs to the workspace now, as {role}.")
    if login is None:
        click.echo("They log in with the password they have.")
    else:
        where = url or f"/login/{login['link']} at a server"
        click.echo(f"Until {moment(login['expires_at'])} this link logs them in, once: {where}")


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
    shown, server = _done("users.link", {"user_id": user_id}, store)
    url = _url(server, shown["link"])
    if as_json:
        emit({**shown, "url": url})
    else:
        click.echo("\n".join(lines_of(shown if url is None else {**shown, "link": url})))


def _done(name: str, given: dict[str, Any], store: str | None) -> tuple[Any, str | None]:
    """What the operation shows, and the server that did it, if one did."""
    operation = operations()[name]

    async def work(stepwell: Stepwell) -> tuple[Any, str | None]:
        caller = Caller(own_name(), "own", "owner")
        made = await operation.call(stepwell, caller, given)
        return operation.shown(made), getattr(stepwell, "server_url", None)

    return connected(store, work)


def _url(server: str | None, link: str) -> str | None:
    return None if server is None else f"{server}/login/{link}"

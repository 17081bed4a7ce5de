"""`stepwell secrets`: values that nodes may use and nobody can see."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from stepwell.cli.arguments import as_json, common
from stepwell.cli.output import count, emit, moment, table
from stepwell.cli.session import connected
from stepwell.errors import InvalidInput

if TYPE_CHECKING:
    from stepwell.app import Stepwell
    from stepwell.operations.secrets import SecretInfo


@click.group()
def secrets() -> None:
    """Secrets of the workspace: nodes refer to them as {{secrets.NAME}}.

    They are sealed with a key: STEPWELL_SECRET_KEY, a file that STEPWELL_SECRET_KEY_FILE names,
    or, on SQLite, the file secret.key by the store, which is made when it is needed.

    \b
    Example:
      printf %s "$TOKEN" | stepwell secrets set github-token
    """


@secrets.command("list")
@common
def list_(store: str | None, as_json: bool) -> None:
    """List secrets by name; their values are never shown.

    \b
    Example:
      stepwell secrets list
    """

    async def work(stepwell: Stepwell) -> list[SecretInfo]:
        return await stepwell.secrets.list()

    found = connected(store, work)
    if as_json:
        emit({"items": found})
        return
    rows = [(s.name, moment(s.created_at), moment(s.updated_at), s.key_id) for s in found]
    lines = table(("name", "created", "updated", "key"), rows)
    click.echo("\n".join(lines) if rows else "No secrets.")


@secrets.command("set")
@click.argument("name")
@common
def set_(name: str, store: str | None, as_json: bool) -> None:
    """Set a secret; the value is read from standard input, without the last line break.

    \b
    Example:
      printf %s "$TOKEN" | stepwell secrets set github-token
    """
    if sys.stdin.isatty():
        value = click.prompt("Value", hide_input=True, err=True)
    else:
        try:
            value = sys.stdin.read().removesuffix("\n")
        except UnicodeDecodeError as error:
            raise InvalidInput("A secret is text in UTF-8.") from error

    async def work(stepwell: Stepwell) -> None:
        await stepwell.secrets.set(name, value)

    connected(store, work)
    _say(f"Set {name}.", {"name": name, "set": True}, as_json)


@secrets.command()
@click.argument("name")
@common
def delete(name: str, store: str | None, as_json: bool) -> None:
    """Delete a secret.

    \b
    Example:
      stepwell secrets delete github-token
    """

    async def work(stepwell: Stepwell) -> None:
        await stepwell.secrets.delete(name)

    connected(store, work)
    _say(f"Deleted {name}.", {"name": name, "deleted": True}, as_json)


@secrets.command()
@common
def rotate(store: str | None, as_json: bool) -> None:
    """Seal all secrets with the first key; after that the older keys can go.

    \b
    Example, with the new key before the old one:
      STEPWELL_SECRET_KEY="$NEW,$OLD" stepwell secrets rotate
    """

    async def work(stepwell: Stepwell) -> int:
        return await stepwell.secrets.rotate()

    number = connected(store, work)
    _say(f"Sealed {count(number, 'secret')} anew.", {"sealed": number}, as_json)


@secrets.command("new-key")
@as_json
def new_key(as_json: bool) -> None:
    """Print a fresh key.

    \b
    Example:
      export STEPWELL_SECRET_KEY=$(stepwell secrets new-key)
    """
    from stepwell.app import new_key

    key = new_key()
    _say(key, {"key": key}, as_json)


def _say(text: str, document: object, as_json: bool) -> None:
    if as_json:
        emit(document)
    else:
        click.echo(text)

"""The bridge from commands, which are plain functions, to Stepwell, which is async.

Commands work on a store, or on a server that is named in its place: by STEPWELL_URL, or by the
file that `stepwell serve` keeps in the folder it runs in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

import click

from stepwell.catalog import check_url, is_sqlite, sqlite_path
from stepwell.cli.oneself import own_name
from stepwell.cli.server_files import ServerFiles, listens
from stepwell.errors import InvalidInput, RunNotFound
from stepwell.kernel.names import STATE_FOLDER
from stepwell.kernel.urls import is_loopback
from stepwell.settings import Settings

if TYPE_CHECKING:
    from stepwell.app import Stepwell
    from stepwell.sdk.workflow import Workflow

T = TypeVar("T")
WORKSPACE = "default"


class ServerPlace(NamedTuple):
    """A server, and who we are there."""

    url: str
    token: str | None


def store_url(option: str | None) -> str:
    """The store that --store, the environment or the default names."""
    if option is not None:
        return check_url(option, "--store")
    settings = Settings.read()
    if settings.url is not None and not settings.store_named:
        raise InvalidInput(
            "This needs a store itself, and STEPWELL_URL names a server. Name the store: --store, "
            "or STEPWELL_STORE."
        )
    return check_url(settings.store, "STEPWELL_STORE")


def named_server(option: str | None) -> ServerPlace | None:
    """The server that is named in place of a store, if one is."""
    if option is not None:
        return None
    settings = Settings.read()
    files = ServerFiles(Path(STATE_FOLDER))
    kept = files.url
    if settings.url is not None:
        own = files.token if kept == settings.url else None
        return ServerPlace(settings.url, settings.token or own)
    if settings.store_named or kept is None:
        return None
    # A folder may be somebody else's work: it must not lead secrets, or a token, elsewhere.
    if not is_loopback(kept):
        click.echo(
            f"The server {kept} of this folder is on another machine, and not used unless "
            "STEPWELL_URL names it; the store is.",
            err=True,
        )
        return None
    if not listens(kept):
        click.echo(
            f"The server {kept} of this folder does not answer; the store is used.", err=True
        )
        return None
    return ServerPlace(kept, files.token)


def stepwell_at(
    option: str | None, workflows: Sequence[Workflow] = (),
    functions: Sequence[Callable[..., Any]] = (),
) -> Stepwell:  # fmt: skip
    """A Stepwell for that store, not yet opened."""
    from stepwell.app import Stepwell

    return Stepwell(store_url(option), workflows, functions=functions, workspace=WORKSPACE)


def connected(option: str | None, work: Callable[[Stepwell], Awaitable[T]]) -> T:
    """What `work` returns when given a Stepwell that is open for as long as it takes.

    It may be a server with the same names; what that does not have, it says itself.
    """
    if (server := named_server(option)) is not None:
        return _at_server(server, work)
    url = store_url(option)
    if is_sqlite(url) and not Path(path := sqlite_path(url)).exists():
        # Not refused: an empty store is a fair answer. But it may be a misspelt one.
        click.echo(f"There was no store {path}; an empty one is made.", err=True)

    async def session() -> T:
        async with stepwell_at(url) as stepwell:
            return await work(stepwell)

    with naming(url):
        return asyncio.run(session())


def _at_server(server: ServerPlace, work: Callable[[Stepwell], Awaitable[T]]) -> T:
    from stepwell.cli.remote import Remote

    async def session() -> T:
        async with Remote(*server) as remote:
            return await work(cast("Stepwell", remote))

    with naming(server.url):
        return asyncio.run(session())


def by(stepwell: Stepwell) -> dict[str, Any]:
    """Who starts a run, as an option of a start: a server knows that by the token."""
    return {} if hasattr(stepwell, "server_url") else {"user": own_name()}


@contextmanager
def naming(url: str) -> Iterator[None]:
    """Say of a run that is not found where it was looked for: another folder has another store."""
    try:
        yield
    except RunNotFound as error:
        error.message += f" It was looked for in {_place(url)}."
        raise


def _place(url: str) -> str:
    """Where a store or a server is, without who may open it."""
    if is_sqlite(url):
        return str(Path(sqlite_path(url)).absolute())
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

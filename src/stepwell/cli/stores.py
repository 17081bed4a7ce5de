"""`stepwell migrate` and `stepwell fork-store`: what one does to a whole store."""

from __future__ import annotations

import asyncio
from importlib import import_module

import click

from stepwell.catalog import check_url, is_sqlite, postgres, sqlite_path, store_for
from stepwell.cli.arguments import as_json, store_alone
from stepwell.cli.output import emit
from stepwell.cli.session import store_url
from stepwell.errors import ForkRefused
from stepwell.kernel.clock import SystemClock
from stepwell.kernel.urls import shown_url


@click.command()
@store_alone
@as_json
def migrate(store: str | None, as_json: bool) -> None:
    """Bring the store's schema up to date.

    An empty store is given its tables when it is first opened; one made by an older Stepwell
    waits for this command. Workers of the version before can go on meanwhile.

    \b
    Example:
      stepwell migrate --store postgresql://host/db
    """
    url = store_url(store)

    async def work() -> list[str]:
        opened = store_for(url, SystemClock())
        try:
            return await opened.migrate()
        finally:
            await opened.close()

    applied = asyncio.run(work())
    if as_json:
        emit({"store": shown_url(url), "applied": applied})
    elif applied:
        click.echo("\n".join(f"Applied {name}." for name in applied))
    else:
        click.echo("Nothing to do: the schema is up to date.")


@click.command("fork-store")
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@as_json
def fork_store(source: str, destination: str, as_json: bool) -> None:
    """Copy the whole store SRC to DST, a store that does not exist yet.

    Everything is copied: finished runs, journals, waits, signals. From then on both go their
    own ways: a run that sleeps wakes in both, and workers of the copy take over the runs
    that workers of the original hold, without disturbing those. Side effects happen in both.
    Only triggers do not fire in the copy, until they are enabled there.

    SQLite is copied while in use. PostgreSQL makes a database from a template, which only
    works while nobody else is connected to SRC, and on the same server.

    \b
    Examples:
      stepwell fork-store sqlite:///.stepwell/stepwell.db sqlite:///copy.db
      stepwell fork-store postgresql://host/live postgresql://host/copy
    """
    small = is_sqlite(check_url(source, "SRC"))
    if small != is_sqlite(check_url(destination, "DST")):
        raise ForkRefused("SRC and DST must be stores of the same kind, SQLite or PostgreSQL.")
    if small:
        copy = import_module("stepwell.stores.sqlite.fork").fork
        copy(sqlite_path(source), sqlite_path(destination))
    else:
        fork = postgres("stepwell.stores.postgres.fork").fork
        asyncio.run(fork(source, destination))
    said = {"source": shown_url(source), "destination": shown_url(destination)}
    if as_json:
        emit(said)
    else:
        click.echo(f"Copied {said['source']} to {said['destination']}.")

"""The bridge from commands, which are plain functions, to Stepwell, which is async."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from stepwell.catalog import check_url, is_sqlite, sqlite_path
from stepwell.errors import RunNotFound
from stepwell.settings import Settings

if TYPE_CHECKING:
    from stepwell.app import Stepwell
    from stepwell.sdk.workflow import Workflow

T = TypeVar("T")
WORKSPACE = "default"


def store_url(option: str | None) -> str:
    """The store that --store, the environment or the default names."""
    if option is not None:
        return check_url(option, "--store")
    return check_url(Settings.read().store, "STEPWELL_STORE")


def stepwell_at(
    option: str | None, workflows: Sequence[Workflow] = (),
    functions: Sequence[Callable[..., Any]] = (),
) -> Stepwell:  # fmt: skip
    """A Stepwell for that store, not yet opened."""
    from stepwell.app import Stepwell

    return Stepwell(store_url(option), workflows, functions=functions, workspace=WORKSPACE)


def connected(option: str | None, work: Callable[[Stepwell], Awaitable[T]]) -> T:
    """What `work` returns when given a Stepwell that is open for as long as it takes."""

    url = store_url(option)
    if is_sqlite(url) and not Path(path := sqlite_path(url)).exists():
        # Not refused: an empty store is a fair answer. But it may be a misspelt one.
        click.echo(f"There was no store {path}; an empty one is made.", err=True)

    async def session() -> T:
        async with stepwell_at(url) as stepwell:
            return await work(stepwell)

    with naming(url):
        return asyncio.run(session())


@contextmanager
def naming(url: str) -> Iterator[None]:
    """Say of a run that is not found where it was looked for: another folder has another store."""
    try:
        yield
    except RunNotFound as error:
        error.message += f" It was looked for in {_place(url)}."
        raise


def _place(url: str) -> str:
    """Where a store is, without who may open it."""
    if is_sqlite(url):
        return str(Path(sqlite_path(url)).absolute())
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

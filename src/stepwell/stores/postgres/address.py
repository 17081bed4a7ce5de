"""Where a PostgreSQL store is: its URL, how to connect, and which errors may pass by themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import parse_qsl

import asyncpg

from stepwell.errors import (
    ChangeRefused,
    StepwellError,
    StoreForbidden,
    StoreUnavailable,
    StoreUrlInvalid,
)
from stepwell.kernel.urls import split_url

T = TypeVar("T")
log = logging.getLogger("stepwell.postgres")

CONNECT_SECONDS = 10.0
# A statement that takes longer than this has lost its server, or waits for somebody who has.
COMMAND_SECONDS = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
# More than there are, so that each is prepared once.
STATEMENTS = 1000
# What a pooler says to settings that it would have to keep for us.
_POOLER = "unsupported startup parameter"

# Errors that are over once the server is back, somebody else is done, or there is room again.
PASSING = (
    OSError,  # TimeoutError and ConnectionError too
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.InsufficientResourcesError,  # connections, memory, disk
    asyncpg.QueryCanceledError,
    asyncpg.ReadOnlySQLTransactionError,  # a former primary, after a failover
    asyncpg.TransactionRollbackError,  # deadlocks, serialization failures
    asyncpg.InternalClientError,  # a connection that was closed in the middle of something
    asyncpg.PostgresSystemError,  # input and output
    asyncpg.DataCorruptedError,
    asyncpg.IndexCorruptedError,
)
# Errors about what was sent, which is no better the next time.
_UNFIT = (
    asyncpg.DataError,
    asyncpg.ProgramLimitExceededError,
    UnicodeEncodeError,
)
# Errors that trying again does not help against.
_REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,  # passwords too
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)


class Address:
    """A store's URL, taken apart as far as Stepwell itself needs it."""

    def __init__(self, url: str) -> None:
        parts = split_url(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self._dsn = url
        # What may be shown of it: never the user information, which holds the password.
        hosts = parts.netloc.rpartition("@")[2] or query.get("host") or "the default host"
        port = f":{query['port']}" if "port" in query else ""
        name = parts.path.removeprefix("/") or query.get("dbname") or query.get("database")
        database = f"the database {name}" if name else "the default database"
        self.shown = f"{database} on {hosts}{port}"

    async def connect(self, **settings: str) -> asyncpg.Connection:
        """One connection with Stepwell's schema first on its path; raises StepwellError."""
        try:
            db = await asyncpg.connect(
                self._dsn,
                timeout=CONNECT_SECONDS,
                command_timeout=COMMAND_SECONDS,
                statement_cache_size=STATEMENTS,
                max_cached_statement_lifetime=0,
                server_settings={
                    "application_name": "stepwell",
                    "search_path": "stepwell",
                    "jit": "off",
                    # Whatever is the default of the database or the role: locks are taken in
                    # one statement, and what they guard is read in the next.
                    "default_transaction_isolation": "read committed",
                    "array_nulls": "on",
                    **settings,
                },
            )
            return await _fit(db, self.shown)
        except _REFUSED as error:
            raise Refused(
                f"PostgreSQL refuses to open {self.shown}: {error}. Check user, "
                "password and database in the store's URL."
            ) from error
        except PASSING as error:
            if _POOLER in str(error):
                raise StoreUrlInvalid(
                    f"The store's URL names a connection pooler ({self.shown}: {error}). Stepwell "
                    "keeps settings, prepared statements and notices in its sessions: name the "
                    "PostgreSQL server itself. A process needs at most six connections."
                ) from error
            raise StoreUnavailable(
                f"PostgreSQL cannot be reached ({self.shown}): {_text(error)}. "
                "Check that the server runs and that the store's URL has the right host and port."
            ) from error
        except (ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise StoreUrlInvalid(
                f"The store's URL cannot be used ({self.shown}): {error}."
            ) from error


async def _fit(db: asyncpg.Connection, shown: str) -> asyncpg.Connection:
    """See to it that all text can be kept, and that what is committed is durable."""
    try:
        encoding = db.get_settings().server_encoding
        if encoding != "UTF8":
            raise StoreUrlInvalid(
                f"{shown} is encoded in {encoding}, which has no place for some characters. "
                "Stepwell needs one made with ENCODING 'UTF8' TEMPLATE template0."
            )
        # Whoever set this to off for the database or the role did not think of Stepwell.
        await db.fetch(
            """SELECT set_config('synchronous_commit', 'on', false)
               WHERE current_setting('synchronous_commit') = 'off'"""
        )
    except BaseException:
        db.terminate()
        raise
    return db


class Refused(StoreUnavailable):
    """The server is there but does not let us in: waiting will not help."""


async def patiently(seconds: float, action: Callable[[], Awaitable[T]]) -> T:
    """Try again while the store is away, for so long."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + seconds
    pause = FIRST_PAUSE
    while True:
        try:
            return await action()
        except Refused:
            raise
        except StoreUnavailable as error:
            if loop.time() + pause > give_up_at:
                raise
            if pause == FIRST_PAUSE:
                log.warning("%s Trying for %g s.", error, seconds)
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def translated(error: Exception, db: asyncpg.Connection | None) -> Exception:
    """An error that may pass by itself, or is about rights or data, as ours; any other as it is."""
    if isinstance(error, StepwellError):
        return error
    closed = isinstance(error, asyncpg.InterfaceError) and (db is None or db.is_closed())
    if closed or isinstance(error, PASSING):
        return StoreUnavailable(f"PostgreSQL: {_text(error)}")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreForbidden(
            f"PostgreSQL: {_text(error)}. Users, tokens and sessions are for the role "
            "stepwell_server, all else that is executed for stepwell_worker."
        )
    if isinstance(error, _UNFIT):
        return ChangeRefused(f"PostgreSQL: {_text(error)}")
    return error


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__

"""The store's connections: one to write with, and a few for everything else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from stepwell.errors import StoreUnavailable
from stepwell.stores.postgres.address import Address, Refused, patiently, translated

T = TypeVar("T")

CLOSE_SECONDS = 2.0
# How long a call that does not go through the writer rides out a server that is away. The
# writer has no such limit: it sends its batch until the store takes it.
PATIENCE_SECONDS = 3.0

# Planning a statement costs as much as executing it, so each is planned once, and again when
# twice as much has been written. Its plan has to be right for a table that was empty then and is
# not by now. Hence the way statements are written here: rows are found by `= ANY(…)`, by a
# subquery for one row, or by LATERAL (… OFFSET 0), which leave no choice but the index; joins
# only add values to them.
WRITER_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_nestloop": "off",
    "enable_mergejoin": "off",
    # A process that is stopped in the middle of a batch must not hold its locks for long.
    "idle_in_transaction_session_timeout": "10000",
    # Other batches are done in no time; who waits longer, waits for a transaction of a caller's
    # own (`start(connection=…)`) or of somebody at a console. The rest must not wait for that.
    "lock_timeout": "1000",
}


FIRST_PLANS = 256
READER_SETTINGS = {"plan_cache_mode": "force_custom_plan"}


class Line:
    """One connection, made when it is first needed and again after it broke."""

    def __init__(self, address: Address, settings: dict[str, str]) -> None:
        self._address = address
        self._settings = settings
        self._db: asyncpg.Connection | None = None
        self._written, self._plan_at = 0, FIRST_PLANS

    async def get(self) -> asyncpg.Connection:
        if self._db is not None and self._db.is_in_transaction():
            self.drop()  # whoever began it is gone: what comes next must not end up in it
        if self._db is None or self._db.is_closed():
            self._db = None
            self._db = await self._address.connect(**self._settings)
            self._written, self._plan_at = 0, FIRST_PLANS
        return self._db

    async def plan_again(self, written: int) -> None:
        """Forget the plans of statements each time that twice as much has been written."""
        self._written += written
        if self._written >= self._plan_at:
            while self._written >= self._plan_at:
                self._plan_at *= 2
            await self.run(lambda db: db.execute("DISCARD PLANS"))

    async def run(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Work on the connection; one that may be broken is not used again."""
        db = await self.get()
        try:
            return await work(db)
        except Exception as error:
            told = translated(error, db)
            if told is error:
                raise
            if isinstance(told, StoreUnavailable):
                self.drop()
            raise told from error
        except BaseException:
            self.drop()
            raise

    @property
    def pid(self) -> int | None:
        """The server process at the other end."""
        return None if self._db is None or self._db.is_closed() else self._db.get_server_pid()

    def drop(self) -> None:
        if self._db is not None:
            self._db.terminate()
            self._db = None

    async def close(self) -> None:
        db, self._db = self._db, None
        if db is not None and not db.is_closed():
            try:
                await db.close(timeout=CLOSE_SECONDS)
            except Exception:
                db.terminate()


class Pool:
    """A few lines that callers share, one caller at a time each."""

    def __init__(self, address: Address, size: int) -> None:
        self._lines = [Line(address, READER_SETTINGS) for _ in range(size)]
        # The last one given back is taken first, so that a quiet process keeps few connections.
        self._free = list(self._lines)
        self._turn = asyncio.Semaphore(size)
        self._open = False

    def open(self) -> None:
        self._open = True

    async def run(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Work on some connection; tried again for a moment when the server is away."""
        return await patiently(PATIENCE_SECONDS, lambda: self._once(work))

    async def _once(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        async with self._turn:
            if not self._open:
                raise Refused("This store is closed.")
            line = self._free.pop()
            try:
                return await line.run(work)
            except StoreUnavailable:
                # One connection that broke while idle means that the others did as well.
                for other in self._free:
                    other.drop()
                raise
            finally:
                self._free.append(line)

    @property
    def pids(self) -> set[int | None]:
        return {line.pid for line in self._lines}

    async def close(self) -> None:
        """Close all lines, once those who are using them are done."""
        self._open = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                for _ in self._lines:
                    await self._turn.acquire()
        self._turn = asyncio.Semaphore(len(self._lines))
        for line in self._lines:
            await line.close()

"""A line: one thread with one connection, on which calls run one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

import apsw

from stepwell.errors import ChangeRefused, StoreUnavailable

T = TypeVar("T")
Call = tuple[Callable[[apsw.Connection], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class Line:
    """Runs functions of a connection on a thread of its own, or inline for simulations."""

    def __init__(self, connect: Callable[[], apsw.Connection], *, inline: bool = False) -> None:
        self._connect = connect
        self._inline = inline
        self._db: apsw.Connection | None = None
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def run(self, function: Callable[[apsw.Connection], T]) -> T:
        if self._closed:
            raise StoreUnavailable("This store is closed.")
        if self._inline:
            await asyncio.sleep(0)
            if self._db is None:
                self._db = self._connect()
            return _translated(function, self._db)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="stepwell-sqlite", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._calls.put((function, future, loop))
        return await future

    async def close(self) -> None:
        self._closed = True
        if self._thread is not None:
            self._calls.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        elif self._db is not None:
            self._db.close()
        self._db = None

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future, loop = call
            error: BaseException | None = None
            result: Any = None
            try:
                if self._db is None:
                    self._db = _translated(lambda _: self._connect(), None)
                result = _translated(function, self._db)
            except BaseException as caught:
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever asked
                loop.call_soon_threadsafe(_settle, future, result, error)
        if self._db is not None:
            self._db.close()


# Errors that say nothing about what was asked for: others have the file, or the disk, the
# memory or the file itself is at fault, until somebody sees to it.
_PASSING = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.ProtocolError,
    apsw.IOError,
    apsw.FullError,
    apsw.NoMemError,
    apsw.ReadOnlyError,
)
# Errors about what was given, which is no better the next time.
_UNFIT = (apsw.TooBigError, OverflowError, UnicodeEncodeError)


def _translated(function: Callable[[Any], T], db: Any) -> T:
    """Call the function; errors that are not mistakes of ours become named ones."""
    try:
        return function(db)
    except _PASSING as error:
        raise StoreUnavailable(f"SQLite: {error}") from error
    except apsw.CorruptError as error:
        raise StoreUnavailable(f"The SQLite file is damaged: {error}") from error
    except apsw.CantOpenError as error:
        raise StoreUnavailable(f"SQLite cannot open the file: {error}") from error
    except _UNFIT as error:
        raise ChangeRefused(f"SQLite: {error}") from error


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)

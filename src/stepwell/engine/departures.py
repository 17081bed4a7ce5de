"""Programs that leave memory leave tasks behind; asyncio need not complain about those."""

from __future__ import annotations

import asyncio
from typing import Any

from stepwell.errors import Fenced, Suspended


def is_departure(error: BaseException | None) -> bool:
    """Whether this is nothing but a program's way out of memory."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_departure, error.exceptions))
    return isinstance(error, Suspended | Fenced)


class Hushed:
    """An exception handler for loops that says nothing of departures, and passes the rest on."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if is_departure(context.get("exception")):
            return
        if self._before is None:
            loop.default_exception_handler(context)
        else:
            self._before(loop, context)


def hush(loop: asyncio.AbstractEventLoop) -> None:
    """From now on, let tasks depart that nobody waits for without a word.

    It stays so when no worker is left: asyncio complains when a task is collected,
    which may be long after everything has stopped.
    """
    handler = loop.get_exception_handler()
    if not isinstance(handler, Hushed):
        loop.set_exception_handler(Hushed(handler))

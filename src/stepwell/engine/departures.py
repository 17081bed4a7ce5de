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
        self.before = before
        self.users = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if is_departure(context.get("exception")):
            return
        if self.before is None:
            loop.default_exception_handler(context)
        else:
            self.before(loop, context)


def hush(loop: asyncio.AbstractEventLoop) -> None:
    """From now on, let tasks depart that nobody waits for without a word."""
    handler = loop.get_exception_handler()
    if not isinstance(handler, Hushed):
        handler = Hushed(handler)
        loop.set_exception_handler(handler)
    handler.users += 1


def unhush(loop: asyncio.AbstractEventLoop) -> None:
    """Leave the loop as it was, once nobody needs it otherwise."""
    handler = loop.get_exception_handler()
    if isinstance(handler, Hushed):
        handler.users -= 1
        if handler.users == 0:
            loop.set_exception_handler(handler.before)

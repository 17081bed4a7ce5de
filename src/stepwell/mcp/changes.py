"""Noticing that the list of tools has changed, by looking now and then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from stepwell.errors import StepwellError
from stepwell.mcp.definitions import offered
from stepwell.mcp.seat import Seat

# How often it is looked.
EVERY_SECONDS = 2.0

Look = list[tuple[str, int]]


async def look(seat: Seat) -> Look:
    """What is different once the list of tools is."""
    return [(each.name, each.serial) for each in await offered(seat)]


async def changes(seat: Seat, before: Look) -> AsyncIterator[None]:
    """Once for every time that something else is found than before."""
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        with suppress(StepwellError):  # the next look may go through
            found = await look(seat)
            if found != before:
                before = found
                yield

"""Asking the store on behalf of a run, for as long as it takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from stepwell.errors import StoreUnavailable
from stepwell.kernel.clock import Clock, sleep

PAUSE_SECONDS = 0.5

Answer = TypeVar("Answer")


async def answer_of(clock: Clock, ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """The store's answer; that it has none for a while says nothing about the run.

    A worker that is cut off for long loses its lease, and with it the run that asks.
    """
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            await sleep(clock, PAUSE_SECONDS)

"""Turns of the loop: looking again and again until others have come to rest."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol


class Watched(Protocol):
    """Something that is looked at once a turn."""

    def turn(self) -> bool:
        """Another turn has come; whether this was the last look."""
        ...


class Turns:
    """Looks at many with one callback a turn, where one callback each would cost far more."""

    def __init__(self) -> None:
        self._watched: dict[Watched, None] = {}
        # Whether nobody in the whole loop had anything left to do when this turn came.
        self.quiet = False
        # Timers that have run out since the turn before; None if nobody knows.
        self.run_out: list[asyncio.TimerHandle] | None = None
        self._timers: list[asyncio.TimerHandle] | None = None

    def watch(self, each: Watched) -> None:
        """Look at it in every turn from the next one on."""
        if not self._watched:
            asyncio.get_running_loop().call_soon(self._turn)
        self._watched[each] = None

    def note_timers(self) -> None:
        """Know in the next turn which timers have run out until then."""
        if self._timers is None:
            timers = getattr(asyncio.get_running_loop(), "_scheduled", None)
            self._timers = None if timers is None else timers[:]

    def _turn(self) -> None:
        ready = ready_callbacks()
        self.quiet = ready is not None and not ready
        self.run_out = None if self._timers is None else list(_run_out(self._timers))
        self._timers = None
        watched, self._watched = self._watched, {}
        left = [each for each in watched if not each.turn()]
        if left and not self._watched:
            asyncio.get_running_loop().call_soon(self._turn)
        self._watched.update(dict.fromkeys(left))


def _run_out(timers: list[asyncio.TimerHandle]) -> Iterator[asyncio.TimerHandle]:
    """Those of a heap of timers, as it was a moment ago, that have been called since or will be.

    What is due stands above what is not, so nothing else is looked at.
    """
    now = asyncio.get_running_loop().time()
    due = [0] if timers else []
    while due:
        index = due.pop()
        timer = timers[index]
        if timer.when() > now:
            continue
        if not timer.cancelled() and not getattr(timer, "_scheduled", True):
            yield timer
        due += [below for below in (2 * index + 1, 2 * index + 2) if below < len(timers)]


def ready_callbacks() -> deque[Any] | None:
    """What the loop calls next; None if it does not tell.

    If neither how many there are nor the first of them has changed, then whoever looks has in the
    meantime neither let anybody else run nor scheduled anything.
    """
    return getattr(asyncio.get_running_loop(), "_ready", None)

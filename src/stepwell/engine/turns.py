"""Turns of the loop: looking again and again until others have come to rest."""

from __future__ import annotations

import asyncio
from typing import Protocol


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

    def watch(self, each: Watched) -> None:
        """Look at it in every turn from the next one on."""
        if not self._watched:
            asyncio.get_running_loop().call_soon(self._turn)
        self._watched[each] = None

    def _turn(self) -> None:
        self.quiet = ready_callbacks(asyncio.get_running_loop()) == 0
        watched, self._watched = self._watched, {}
        left = [each for each in watched if not each.turn()]
        if left and not self._watched:
            asyncio.get_running_loop().call_soon(self._turn)
        self._watched.update(dict.fromkeys(left))


def ready_callbacks(loop: asyncio.AbstractEventLoop) -> int | None:
    """How many callbacks are ready to be called; None if the loop does not tell."""
    ready = getattr(loop, "_ready", None)
    return None if ready is None else len(ready)

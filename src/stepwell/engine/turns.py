"""Turns of the loop: looking again and again until others have come to rest."""

from __future__ import annotations

import asyncio
from collections import deque
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

    def watch(self, each: Watched) -> None:
        """Look at it in every turn from the next one on."""
        if not self._watched:
            asyncio.get_running_loop().call_soon(self._turn)
        self._watched[each] = None

    def _turn(self) -> None:
        ready = ready_callbacks()
        self.quiet = ready is not None and not ready
        watched, self._watched = self._watched, {}
        left = [each for each in watched if not each.turn()]
        if left and not self._watched:
            asyncio.get_running_loop().call_soon(self._turn)
        self._watched.update(dict.fromkeys(left))


def ready_callbacks() -> deque[Any] | None:
    """What the loop calls next; None if it does not tell.

    If neither how many there are nor the first of them has changed, then whoever looks has in the
    meantime neither let anybody else run nor scheduled anything.
    """
    return getattr(asyncio.get_running_loop(), "_ready", None)

"""Patience with a store that cannot be written to: whoever asks over a network is told soon."""

from __future__ import annotations

import asyncio
from types import TracebackType

from stepwell.engine.writer import Writer
from stepwell.errors import StoreUnavailable
from stepwell.kernel.clock import SECOND, Clock

# How long an answer may take before it is looked whether it will ever come, and how often after.
PATIENCE_SECONDS = 5.0
LOOK_SECONDS = 1.0


class Patience:
    """`with Patience(writer, clock)`: StoreUnavailable if the store stays away meanwhile.

    What was submitted is not called off: it becomes durable when the store is back.
    """

    __slots__ = ("_clock", "_ended", "_task", "_timer", "_writer")

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._ended = False

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._look_in(PATIENCE_SECONDS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._timer.cancel()
        del self._timer  # it refers to this: both would wait for the garbage collector
        if self._ended and kind is asyncio.CancelledError:
            assert self._task is not None
            # Unless somebody else has cancelled it too.
            if self._task.uncancel() == 0:
                raise StoreUnavailable(
                    "The store cannot be written to at the moment. What was asked for may still be "
                    "done when it can: ask again, with the same Idempotency-Key if there was one."
                ) from None

    def _look_in(self, seconds: float) -> None:
        self._timer = self._clock.call_at(self._clock.now() + int(seconds * SECOND), self._look)

    def _look(self) -> None:
        if not self._writer.away:
            self._look_in(LOOK_SECONDS)
        elif self._task is not None:
            self._ended = True
            self._task.cancel()

"""Leaving memory: a program is given time to unwind, and then is made to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from stepwell.engine.writer import Writer, ignore_outcome
from stepwell.kernel.changes import Held, ReleaseRun, RestRun, ResumeRun

log = logging.getLogger("stepwell.execution")

# How long a program that leaves memory may clean up, or sit in something that is not durable.
UNWIND_SECONDS = 1.0


# Turns of the loop that a program which does not clean up anything may need for that.
QUICK_TURNS = 8


class Unwinding:
    """Sees to it that the program of a parked run ends soon.

    If it did not rest in a wait itself, it was busy with something that nobody can see, and that
    is lost now. So its run is begun again from its journal, lest it wait for the lost thing.
    """

    def __init__(
        self, task: asyncio.Task[None], held: Held, writer: Writer, rested: bool,
        rest: RestRun | None, left_by_wait: Callable[[], bool], begins_again: Callable[[], None],
    ) -> None:  # fmt: skip
        self._task = task
        self._held = held
        self._writer = writer
        self._rested = rested
        self._rest = rest
        self._left_by_wait = left_by_wait
        self._begins_again = begins_again
        self._turns_left = QUICK_TURNS

    def turn(self) -> bool:
        """Most are done in a few turns; only for the others is a timer worth its while."""
        self._turns_left -= 1
        if self._task.done():
            self._unwound()
            return True
        if self._turns_left == 0:
            asyncio.get_running_loop().call_later(UNWIND_SECONDS, self._insist)
        return self._turns_left == 0

    def _insist(self) -> None:
        self._task.cancel()
        self._unwound()

    def _unwound(self) -> None:
        if self._rested or self._left_by_wait():
            if self._rest is not None:
                self._writer.submit(self._rest).add_done_callback(ignore_outcome)
        else:
            self._begin_again()

    def _begin_again(self) -> None:
        self._begins_again()
        begin_again(self._held, self._writer)


def begin_again(held: Held, writer: Writer) -> None:
    """Take a parked run up again, whose program was busy with something that is lost now."""
    log.warning(
        "Run %s awaits something outside a step while it also waits durably. It is begun "
        "again from its journal; put what it awaits into a step.",
        held.run_id,
    )

    def give_back(done: asyncio.Future[list[Any]]) -> None:
        if done.cancelled() or done.exception() is not None or done.result()[0] is None:
            return
        taken = Held(held.run_id, held.owner, done.result()[0])
        writer.submit(ReleaseRun(taken)).add_done_callback(ignore_outcome)

    writer.submit(ResumeRun(held)).add_done_callback(give_back)

"""Leaving memory: a program is given time to unwind, and then is made to."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from stepwell.engine.writer import Writer, ignore_outcome
from stepwell.kernel.changes import Held, ReleaseRun, ResumeRun

log = logging.getLogger("stepwell.execution")

# How long a program that leaves memory may clean up, or sit in something that is not durable.
UNWIND_SECONDS = 1.0


def unwind(task: asyncio.Task[None], held: Held, writer: Writer, rested: bool) -> None:
    """See to it that the program of a parked run ends soon.

    If it did not rest in a wait itself, it was busy with something that nobody can see, and that
    is lost now. So its run is begun again from its journal, lest it wait for the lost thing.
    """

    def insist() -> None:
        if task.done():
            return
        task.cancel()
        if rested:
            return
        log.warning(
            "Run %s awaits something outside a step while it also waits durably. It is begun "
            "again from its journal; put what it awaits into a step.",
            held.run_id,
        )
        writer.submit(ResumeRun(held)).add_done_callback(give_back)

    def give_back(done: asyncio.Future[list[Any]]) -> None:
        if done.cancelled() or done.exception() is not None or done.result()[0] is None:
            return
        taken = Held(held.run_id, held.owner, done.result()[0])
        writer.submit(ReleaseRun(taken)).add_done_callback(ignore_outcome)

    asyncio.get_running_loop().call_later(UNWIND_SECONDS, insist)

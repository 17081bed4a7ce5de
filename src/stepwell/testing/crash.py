"""Crashes inside one process: what tests do to a worker where SIGKILL would be too much."""

from __future__ import annotations

from stepwell.app import Stepwell
from stepwell.engine.worker import Worker


def vanish(worker: Worker) -> None:
    """Make a worker vanish as SIGKILL would: nothing is released, its lease stays as it was.

    Its runs are interrupted at once. What it had submitted before may still become durable.
    """
    worker._stopping = True
    worker.drop_all()
    for duty in (*worker._duties, worker._enlisting):
        if duty is not None:
            duty.cancel()
    worker.claims.stop()
    worker.id = ""  # so that stopping it later does not end the lease it leaves behind


def crash(stepwell: Stepwell) -> None:
    """Make a whole process vanish: its workers, and whatever it had not committed yet."""
    if (keeper := stepwell._crew.housekeeping) is not None:
        for task in keeper._tasks:
            task.cancel()
    for worker in stepwell._crew.workers:
        vanish(worker)
    writer = stepwell._writer
    writer.closed = True
    if writer._task is not None:
        writer._task.cancel()

"""Leaving memory: a program is given time to unwind, and then is made to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from stepwell.engine.writer import Writer, ignore_outcome
from stepwell.kernel.changes import ClaimedRun, Held, ReleaseRun, RestRun, ResumeRun
from stepwell.kernel.states import REPLAYED

log = logging.getLogger("stepwell.execution")

# How long a program that leaves memory may clean up, or sit in something that is not durable.
UNWIND_SECONDS = 1.0
# Turns of the loop that a program which does not clean up anything may need for that.
QUICK_TURNS = 8
# Runs that are remembered.
MOST_KEPT = 1000
# How often a run may be stopped by itself, or by an odd error of the store, before it fails.
MOST_STOPPED = 2


class Losses:
    """How runs took it to leave memory: who lost something by it, and of whom nobody could tell."""

    def __init__(self) -> None:
        self._kept: set[str] = set()
        self._doubted: set[str] = set()
        # How often they were stopped, and how much they had recorded before they were begun.
        self._stopped: dict[str, tuple[int, int]] = {}

    def lost(self, run_id: str) -> None:
        """The run was busy with something that is gone now; it is kept in memory from now on."""
        _make_room(self._kept)
        self._kept.add(run_id)

    def keeps(self, run_id: str) -> bool:
        return run_id in self._kept

    def doubts(self, run_id: str) -> bool:
        """Nobody can tell; whether that is so for the first time, or again after the second."""
        _make_room(self._doubted)
        self._doubted.symmetric_difference_update({run_id})
        return run_id in self._doubted

    def stopped(self, claimed: ClaimedRun) -> bool:
        """The run was stopped for no good reason, and is begun again; has that come too often?

        Too often is as seen from where it stands: one that has come further since is not stuck.
        """
        _make_room(self._stopped)
        progress = sum(row.status in REPLAYED for row in claimed.journal)
        times, before = self._stopped.get(claimed.id, (0, progress))
        times = times + 1 if progress <= before else 1
        self._stopped[claimed.id] = (times, progress)
        return times > MOST_STOPPED

    def forget(self, run_id: str) -> None:
        self._kept.discard(run_id)
        self._doubted.discard(run_id)
        self._stopped.pop(run_id, None)


def _make_room(run_ids: set[str] | dict[str, tuple[int, int]]) -> None:
    if len(run_ids) >= MOST_KEPT:  # they may have ended elsewhere
        run_ids.clear()


class Unwinding:
    """Sees to it that the program of a parked run ends soon.

    If it did not rest in a wait itself, it was busy with something that nobody can see, and that
    is lost now. So its run is begun again from its journal, lest it wait for the lost thing. One
    that ended at once, but not by what its waits raised, has most likely made something else of
    that (`gather(…, return_exceptions=True)`): it is given the benefit of the doubt, and is looked
    at once more.
    """

    def __init__(
        self, task: asyncio.Task[None], held: Held, writer: Writer, rested: bool,
        rest: RestRun | None, left_by_wait: Callable[[], bool], losses: Losses,
    ) -> None:  # fmt: skip
        self._task = task
        self._held = held
        self._writer = writer
        self._rested = rested
        self._rest = rest
        self._left_by_wait = left_by_wait
        self._losses = losses
        self._turns_left = QUICK_TURNS
        # Whether it has been decided what becomes of the run; a branch may still change that.
        self._over = False
        self._begun_again = False

    def turn(self) -> bool:
        """Most are done in a few turns; only for the others is a timer worth its while."""
        self._turns_left -= 1
        if self._task.done() and not self._over:
            self._unwound(at_once=True)
        if self._turns_left == 0 and not self._over:
            asyncio.get_running_loop().call_later(UNWIND_SECONDS, self._insist)
        return self._turns_left == 0

    def asked(self) -> None:
        """The program asks for an operation; not to clean up, as far as one can see.

        So a branch that nobody could see wants to go on, and has to be let: unless it may still
        be its answer to being sent away.
        """
        if self._turns_left == 0 and not self._begun_again:
            self._begin_again()

    def _insist(self) -> None:
        self._task.cancel()
        if not self._over:
            self._unwound(at_once=False)

    def _unwound(self, *, at_once: bool) -> None:
        self._over = True
        if self._rested or self._left_by_wait() or (at_once and not self._in_doubt()):
            if self._rest is not None:
                self._writer.submit(self._rest).add_done_callback(ignore_outcome)
        elif not at_once:
            self._begin_again()

    def _in_doubt(self) -> bool:
        return self._losses.doubts(self._held.run_id)

    def _begin_again(self) -> None:
        """Take the parked run up again: its program was busy with something that is lost now."""
        self._over = self._begun_again = True
        held, writer = self._held, self._writer
        self._losses.lost(held.run_id)
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

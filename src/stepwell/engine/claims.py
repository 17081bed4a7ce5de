"""When a worker claims: soon after something may have become due, and not before."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Any, Protocol

from stepwell.engine.room import Room
from stepwell.engine.suspects import Suspects
from stepwell.engine.writer import Writer
from stepwell.errors import NotOpen, StoreUnavailable
from stepwell.kernel.changes import Change, Claimed, ClaimRuns, Committed
from stepwell.kernel.clock import SECOND, Timer
from stepwell.store import Store

log = logging.getLogger("stepwell.worker")

SWEEP_SECONDS = 1.0
# An idle worker sweeps at least this often, however long the lease: dead ones are found by it.
UNSWEPT_SECONDS = 4.0
PAUSE_MICROS = 50_000


class Claimant(Protocol):
    """The worker, as its claims see it."""

    id: str
    # Where what was claimed is begun, whoever it was that made it due.
    surroundings: contextvars.Context

    def ask(self) -> ClaimRuns | None:
        """What to claim as things stand now; None if nothing may be. The room says how many."""
        ...

    def take(self, claimed: Claimed) -> None:
        """Begin with what was claimed under the worker's present name."""
        ...

    @property
    def active(self) -> int:
        """How many runs it is executing."""
        ...


class Claims:
    """One claim at a time: the one being gathered or under way, and when the next is due."""

    def __init__(self, store: Store, writer: Writer, claimant: Claimant, room: Room) -> None:
        self._store = store
        self._clock = store.clock
        self._writer = writer
        self._claimant = claimant
        self._room = room
        self._ask: ClaimRuns | None = None
        # Whether another claim must follow the one that is under way.
        self._again = False
        # Whether the last claim may have left something for want of room.
        self.behind = False
        self._timer: Timer | None = None
        self._timer_at: int | None = None
        self._next_sweep_at = 0
        # Whether the last sweep left something to the next one.
        self._unswept = False
        self._suspects = Suspects()
        # How many suspects the next claim calls up.
        self._called = 0

    @property
    def active(self) -> int:
        return self._claimant.active

    def soon(self) -> None:
        """Something may have become due: claim, in the commit that is being gathered."""
        ask = None if self._writer.closed else self._claimant.ask()
        if ask is None:
            return
        if self._ask is not None:
            if self._ask.dated:
                self._again = True  # it is under way already and may not see what is new
            else:
                self._ask.known = ask.known
                self._room.ask(self, self._ask)
                self._ask.suspects = max(self._ask.suspects, self._called)
                self._called = 0
            return
        now = self._clock.now()
        if now >= self._next_sweep_at:
            ask.sweep = True
            self._next_sweep_at = now + int(SWEEP_SECONDS * SECOND)
        self._again = False
        ask.suspects, self._called = self._called, 0
        self._ask = ask
        self._room.ask(self, ask)
        self._writer.submit(ask).add_done_callback(
            lambda done: self._on_claimed(done, ask), context=self._claimant.surroundings
        )

    def heard(self, batch: list[Change]) -> None:
        """This has become durable: suspects among it may have turned out to be harmless."""
        called = self._suspects.got_on(batch)
        if called:
            self._called = called
            self.soon()

    def known_changed(self) -> None:
        """A claim that is being gathered has to say so, lest it take runs for forgotten ones."""
        if self._ask is not None and not self._ask.dated:
            self.soon()

    def sweep_soon(self) -> None:
        """Some worker is gone: claim, and look for what it has left behind."""
        self._next_sweep_at = 0
        self.soon()

    def sweep_if_idle(self) -> None:
        """Claim if it is high time to look for dead workers."""
        if self._clock.now() >= self._next_sweep_at + int(UNSWEPT_SECONDS * SECOND):
            self.soon()

    def by(self, at: int | None) -> None:
        """Claim then at the latest."""
        if at is not None and (self._timer_at is None or at < self._timer_at):
            self._at(at)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _at(self, at: int | None) -> None:
        """Claim then, and not before unless something happens."""
        self.stop()
        self._timer_at = at
        self._timer = None if at is None else self._clock.call_at(at, self._on_time)

    def _on_time(self) -> None:
        self._timer_at = None
        self._next_sweep_at = 0  # it may be that some run expires
        if self._room.free <= 0:
            self._store.announce(Committed([], due=True))  # somebody else may have room
        self.soon()

    def _on_claimed(self, done: asyncio.Future[list[Any]], ask: ClaimRuns) -> None:
        self._ask = None
        self._room.answered(self)
        self._go_on(done, ask)
        if self._room.free > 0:
            self._room.made(but=self)

    def _go_on(self, done: asyncio.Future[list[Any]], ask: ClaimRuns) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, StoreUnavailable | NotOpen):  # closed, or being cancelled
            return
        if error is not None:
            log.error("A claim failed.", exc_info=error)
            self._at(self._clock.now() + SECOND)
            return
        if ask.worker_id != self._claimant.id:
            self.soon()  # claimed in a name that the worker has lost; those are free again
            return
        claimed: Claimed = done.result()[0]
        self.behind = claimed.more or ask.limit <= 0
        if ask.sweep:
            self._unswept = claimed.unswept
        self._suspects.took(claimed.runs)
        self._room.took(self, claimed.runs)
        self._claimant.take(claimed)
        if not claimed.more:  # else it is not known yet, and the timer stays as it is
            at = claimed.next_at
            if self._unswept:
                at = self._clock.now() + PAUSE_MICROS
            if ask.sweep and at is not None and at <= ask.now:
                # Due, and yet even a sweep could not have it: others hold it. No reason to spin.
                at = ask.now + PAUSE_MICROS
            self._at(at)
        if self._again or (claimed.more and self._room.free > 0):
            self.soon()

"""The one write path of a process: group commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, Protocol

from stepwell.engine.surroundings import nobodys
from stepwell.engine.units import Unit, fitting
from stepwell.errors import ChangeBlocked, ContextMisuse, NotOpen, StoreUnavailable
from stepwell.kernel.changes import (
    FENCED,
    GROUP_BITS,
    CancelRun,
    Change,
    ClaimRuns,
    Committed,
    RecordStep,
)
from stepwell.kernel.clock import SECOND, Timer, sleep
from stepwell.store import Store

log = logging.getLogger("stepwell.writer")

# More units than this wait for the next commit, so that a flood cannot hold up the loop.
MAX_BATCH = 2000
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
FIRST_BLOCKED, LONGEST_BLOCKED = 1.0, 15.0
# How long a step runs before its row says so; one that is faster is written once.
LAZY_SECONDS = 0.05
# How long closing waits for the commit that is under way.
CLOSE_SECONDS = 5.0
# After so long a store that cannot be written to is away for good, as far as others can tell.
AWAY_SECONDS = 1.0


class InProgress(Protocol):
    """A step whose function is being called."""

    def in_progress(self) -> RecordStep: ...


class Writer:
    """Gathers changes while a commit is under way, then commits them all at once."""

    def __init__(self, store: Store, heard: Callable[[list[Change], Committed], None]) -> None:
        self._store = store
        self._heard = heard
        self._pending: list[Unit] = []
        # Units that wait for a transaction of somebody else's, and those that are tried again.
        self._put_off: dict[Unit, Timer] = {}
        self._retried: dict[Unit, None] = {}
        self._begun: dict[InProgress, None] = {}
        self._begun_timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        # Where commits are made, whoever it was that asked for the first of them.
        self._surroundings = nobodys()
        self._batches = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = True
        # Whether nothing can be written, for more than a moment.
        self.away = False

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._surroundings = nobodys()
        self.closed = False

    def check_open(self) -> None:
        if self.closed:
            raise _not_open()
        self.check_loop()

    def check_loop(self) -> asyncio.AbstractEventLoop:
        """The loop all of this belongs to; raises if it is not the one that runs here."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise ContextMisuse(
                "This Stepwell was opened in another event loop, and its runs live there. From a "
                "thread, hand the call over with asyncio.run_coroutine_threadsafe()."
            )
        return loop

    def submit(self, *changes: Change) -> asyncio.Future[list[Any]]:
        """Ask for changes; the future has their outcomes once they are durable."""
        if self.closed:
            refused: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            refused.set_exception(_not_open())
            return refused
        future: asyncio.Future[list[Any]] = self.check_loop().create_future()
        self._add(Unit(changes, future))
        return future

    def _add(self, unit: Unit) -> None:
        if self._follows(unit):
            return
        self._pending.append(unit)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._commit_all(), context=self._surroundings
            )

    def _follows(self, unit: Unit) -> bool:
        """Whether a unit of the same run was put off: what happens to one run stays in order."""
        run_ids = unit.run_ids if self._put_off or self._retried else ()
        for earlier in (*self._put_off, *self._retried):
            if earlier is not unit and earlier.concerns(run_ids):
                earlier.followers.append(unit)
                return True
        return False

    def begun(self, step: InProgress) -> None:
        """A step has begun: say so, unless it ends within the blink of an eye."""
        self._begun[step] = None
        if self._begun_timer is None:
            clock = self._store.clock
            at = clock.now() + int(LAZY_SECONDS * SECOND)
            self._begun_timer = clock.call_at(at, self._show_begun)

    def over(self, step: InProgress) -> None:
        """The step's function has returned or raised."""
        self._begun.pop(step, None)

    def _show_begun(self) -> None:
        self._begun_timer = None
        begun, self._begun = self._begun, {}
        for step in begun:
            self.submit(step.in_progress()).add_done_callback(ignore_outcome)

    async def drained(self) -> None:
        """Wait until all that was submitted before is durable, or put off; a read then sees it.

        Or until nothing can be written: then a read sees what there is.
        """
        self.check_open()
        if self._begun_timer is not None:
            self._begun_timer.cancel()
            self._show_begun()
        if self._task is not None and not self.away:
            waiter: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            self._pending.append(Unit((), waiter))
            await waiter

    async def close(self) -> None:
        """Commit what is left, then refuse more. What cannot be committed is given up."""
        self.closed = True
        if self._begun_timer is not None:
            self._begun_timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
            if self._task is not None:
                self._task.cancel()
        for unit in (*self._pending, *self._put_off, *self._retried):
            for each in (unit, *unit.followers):
                each.refuse(_closed())
        for timer in self._put_off.values():
            timer.cancel()

    async def _commit_all(self) -> None:
        try:
            while self._pending:
                units = self._next_batch()
                try:
                    await self._commit(units)
                except BaseException:
                    for unit in units:  # closed while the store kept it waiting
                        unit.refuse(_closed())
                    raise
                # Let everyone who was just answered go on, so that the next batch is full.
                await asyncio.sleep(0)
        finally:
            self._task = None

    def _next_batch(self) -> list[Unit]:
        """What has gathered; a unit that was put off goes alone, lest the others wait with it."""
        size = fitting(self._pending, min(len(self._pending), MAX_BATCH))
        if self._retried:
            put_off = (i for i, unit in enumerate(self._pending[:size]) if unit in self._retried)
            size = max(next(put_off, size), 1)
        units, self._pending = self._pending[:size], self._pending[size:]
        if self._put_off or self._retried:  # maybe since these were submitted
            units = [unit for unit in units if not self._follows(unit)]
        return self._in_order(units) if any(unit.opens for unit in units) else units

    def _in_order(self, units: list[Unit]) -> list[Unit]:
        """Hold back what runs asked for after they began to wait: it goes with the next batch.

        A store applies a batch kind by kind, and waits after journal entries. A wait that was
        given up at once would be opened after it was settled, and stay open for ever.
        """
        opened: set[str] = set()
        batch: list[Unit] = []
        later: list[Unit] = []
        for unit in units:
            run_ids = unit.run_ids
            # Whoever waits until all is durable comes after what is held back.
            if not opened.isdisjoint(run_ids) or (later and not unit.changes):
                later.append(unit)
            else:
                batch.append(unit)
                if unit.opens:
                    opened |= run_ids
        self._pending[:0] = later
        return batch

    async def _commit(self, units: list[Unit]) -> None:
        batch = [change for unit in units for change in unit.changes]
        if batch:
            self._number(batch)
            try:
                committed = await self._apply(units, batch)
            except Exception as error:
                await self._commit_apart(units, error)
                return
            try:
                self._heard(batch, committed)
            except Exception:  # the changes are durable all the same
                log.exception("What was committed could not be passed on.")
            outcomes = committed.outcomes
        else:
            outcomes = []
        start = 0
        for unit in units:
            end = start + len(unit.changes)
            if not unit.future.done():
                unit.future.set_result(outcomes[start:end])
            if unit in self._retried:
                self._go_on_after(unit)
            start = end

    def _number(self, batch: list[Change]) -> None:
        """Give journal entries their positions, a group for each run and commit; date claims."""
        self._batches += 1
        for change in batch:
            if type(change) is ClaimRuns:
                change.now, change.dated = self._store.clock.now(), True
            elif type(change) is RecordStep:
                held = change.held
                if change.position == 0:
                    if held.batch != self._batches:
                        held.batch = self._batches
                        held.position = ((held.position >> GROUP_BITS) + 1) << GROUP_BITS
                    else:
                        held.position += 1
                    change.position = held.position

    async def _apply(self, units: list[Unit], batch: list[Change]) -> Committed:
        """Commit, however long the store is away: sending a batch again does no harm."""
        pause, since, began = FIRST_PAUSE, 0, self._store.clock.now()
        while True:
            try:
                committed = await self._store.commit(batch)
                committed.took = self._store.clock.now() - began
                if since:
                    self.away = False
                    away = (self._store.clock.now() - since) / SECOND
                    log.warning("The store is back after %.1f s.", away)
                return committed
            except StoreUnavailable as error:
                if self.closed:
                    raise
                for unit in units:
                    unit.unanswered = True
                for change in batch:
                    if isinstance(change, ClaimRuns | CancelRun):
                        change.resent = True
                if not since:
                    since = self._store.clock.now()
                    log.warning("The store is away; trying until it is back: %s", error)
                elif self._store.clock.now() - since >= AWAY_SECONDS * SECOND:
                    self._stay_away()
                await sleep(self._store.clock, pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    def _stay_away(self) -> None:
        """Nothing can be written: let those read who waited for that only."""
        self.away = True
        for unit in self._pending:
            if not unit.changes and not unit.future.done():
                unit.future.set_result([])

    async def _commit_apart(self, units: list[Unit], error: Exception) -> None:
        """One bad change must not fail its neighbours: it is put off, or refused, alone."""
        for unit in units:
            unit.renumber()
        blocked = isinstance(error, ChangeBlocked) and not self.closed
        run_ids = error.run_ids if isinstance(error, ChangeBlocked) else ()
        if blocked and (len(units) == 1 or any(unit.concerns(run_ids) for unit in units)):
            await self._put_off_those(units, run_ids)
        elif len(units) == 1:
            units[0].refuse(error)
            self._go_on_after(units[0])
        else:
            # Before what is submitted meanwhile: some of the first half may be put off.
            middle = len(units) // 2
            self._pending[:0] = units[middle:]
            await self._commit(units[:middle])

    async def _put_off_those(self, units: list[Unit], run_ids: Collection[str]) -> None:
        """Put off the units of these runs, or the only one there is; commit the others."""
        others, rest = [], units
        while rest:
            unit, rest = rest[0], rest[1:]
            if len(units) > 1 and not unit.concerns(run_ids):
                others.append(unit)
                continue
            self._try_later(unit)
            # What came with it follows it first, then what came later.
            rest = [each for each in rest if not self._follows(each)]
            self._pending = [each for each in self._pending if not self._follows(each)]
        await self._commit(others)

    def _try_later(self, unit: Unit) -> None:
        """The others go on meanwhile, though each try holds them up for a moment."""
        self._retried.pop(unit, None)
        # Claims are not put off for longer and longer: others than the one in the way go by them.
        longest = FIRST_BLOCKED if type(unit.changes[0]) is ClaimRuns else LONGEST_BLOCKED
        unit.pause = min(max(unit.pause * 2, FIRST_BLOCKED), longest)
        log.warning(
            "A change waits for a transaction outside of Stepwell; trying again in %g s: %s",
            unit.pause,
            ", ".join(type(change).__name__ for change in unit.changes),
        )
        clock = self._store.clock
        at = clock.now() + int(unit.pause * SECOND)
        self._put_off[unit] = clock.call_at(at, lambda: self._try_again(unit))

    def _try_again(self, unit: Unit) -> None:
        del self._put_off[unit]
        self._retried[unit] = None
        self._add(unit)

    def _go_on_after(self, unit: Unit) -> None:
        """The unit is through, or given up: those behind it may come."""
        self._retried.pop(unit, None)
        followers, unit.followers = unit.followers, []
        for each in followers:
            self._add(each)


def _not_open() -> NotOpen:
    return NotOpen(
        "This Stepwell is closed, or was not opened yet; use it inside `async with Stepwell(…)`."
    )


def _closed() -> StoreUnavailable:
    return StoreUnavailable("This Stepwell was closed before the change was durable.")


def fenced(outcomes: list[Any]) -> bool:
    return FENCED in outcomes


def ignore_outcome(future: asyncio.Future[Any]) -> None:
    """A callback for what nobody waits for: neither its result nor its error matters."""
    if not future.cancelled():
        future.exception()

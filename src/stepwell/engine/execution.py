"""A run in memory: its journal, what it waits for, and when it may leave again."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from stepwell.engine.at_work import AtWork
from stepwell.engine.deliveries import Deliveries, positions
from stepwell.engine.keeper import Keeper
from stepwell.engine.keys import Keys, mismatch
from stepwell.engine.notes import Notes
from stepwell.engine.resuming import resume
from stepwell.engine.unwinding import Unwinding
from stepwell.engine.waits import Waits
from stepwell.engine.writer import Writer, fenced, ignore_outcome
from stepwell.errors import ChangeRefused, Fenced, NotOpen, StoreUnavailable, Suspended
from stepwell.kernel.changes import (
    Change,
    ClaimedRun,
    EndRun,
    Held,
    JournalRow,
    OpenWait,
    ParkRun,
    ReleaseRun,
    RestRun,
    WaitRow,
    WatchWaits,
)
from stepwell.kernel.clock import SECOND, Clock
from stepwell.kernel.states import REPLAYED

log = logging.getLogger("stepwell.execution")

# Turns of the loop a program is given to begin something else before it counts as waiting.
PARK_TURNS = 6
# When a run is looked at that was parked while its program may have been busy with something
# unseen; later than the program is made to leave memory, in case its worker did not live to that.
LOOK_SECONDS = 40

State = Literal["active", "parked", "gone"]


class Execution:
    """One claimed run while its program is in memory."""

    def __init__(
        self, claimed: ClaimedRun, owner: str, writer: Writer, clock: Clock, keeper: Keeper,
        fraction: Callable[[], float],
    ) -> None:  # fmt: skip
        self.claimed = claimed
        self.writer = writer
        self.clock = clock
        self.telemetry = keeper.telemetry
        self.state: State = "active"
        self.blocking = False  # whether the program rests whenever any part of it waits
        self.cancelled = False
        self.suspended = False  # whether the program ended because one of its waits was
        self.park_turns = PARK_TURNS
        self.task: asyncio.Task[None] | None = None
        self.entries = {row.key: row for row in claimed.journal}
        self.waits = Waits(claimed.waits)
        last = max((row.position for row in claimed.journal), default=0)
        self.held = Held(claimed.id, owner, claimed.fence, position=last, claimed=claimed)
        self.deliveries = Deliveries(keeper.turns, positions(claimed.journal))
        self.fraction = fraction
        self._keeper = keeper
        # Decisions of ctx.patched() in this execution.
        self.patches: dict[str, bool] = {}
        self._keys = Keys()
        # Entries without a result that the program has not come to yet.
        self._unreached = {row.key for row in claimed.journal if row.status not in REPLAYED}
        self.notes = Notes(writer)
        self._at_work = AtWork()
        # Waits that are not open yet, each with what goes along with it.
        self._to_open: dict[str, list[Change]] = {}
        self._checking = False
        self._turns_left = 0
        self._resuming: asyncio.Task[None] | None = None
        # How its program leaves memory, once the run is parked without it.
        self._away: Unwinding | None = None
        # What to say of the parked run once its program has turned out to be at rest.
        self._rest: RestRun | None = None
        self._needs: list[str] = []  # programs of other workers that parts of it wait for

    @property
    def departed(self) -> bool:
        return self.state == "gone"

    @property
    def run_id(self) -> str:
        return self.claimed.id

    def over(self) -> None:
        """Its task ends: let go of it, lest both wait for the garbage collector to find them."""
        self.task = None
        self.deliveries.over()

    # -- keys and the journal ------------------------------------------------------------

    @property
    def keys(self) -> Keys:
        if self.departed:
            raise self.leaving()
        return self._keys

    def entry(self, key: str, *kinds: str) -> JournalRow | None:
        """What the journal holds under this key."""
        row = self.entries.get(key)
        if row is not None:
            if row.kind not in kinds:
                raise mismatch(key, row.kind, kinds[0])
            self._unreached.discard(key)
        return row

    @property
    def replaying(self) -> bool:
        """Whether something recorded or waited for has not been reached yet."""
        return bool(self.deliveries.replaying or self.waits.unseen > 0 or self._unreached)

    def leaving(self) -> BaseException:
        """What an operation raises when the program has to leave."""
        self._leave_quietly()
        handled = isinstance(sys.exception(), Suspended | asyncio.CancelledError)
        if self._away is not None and not handled:
            self._away.asked()
        return Fenced()

    def _leave_quietly(self) -> None:
        """A task of the program's own that ends this way is nobody's mistake to be logged."""
        task = asyncio.current_task()
        if task is not None and task is not self.task:
            task.add_done_callback(ignore_outcome)

    # -- recording -----------------------------------------------------------------------

    async def decided(self) -> None:
        """Return once all that the program has decided is durable."""
        notes = self.notes
        while notes.undecided:
            if notes.decided:
                await self.record()
            elif notes.deciding is not None:  # in a commit that somebody else waits for
                await asyncio.wait([notes.deciding])
        if isinstance(notes.lost, Exception) and not self.begins_again(notes.lost):
            raise notes.lost
        if notes.lost is not None:
            self.stop()
        if self.departed:
            raise self.leaving()

    async def record(self, *changes: Change) -> None:
        """Make changes durable; raises when the run is no longer held."""
        await self.ready()
        submitted = self.notes.submit(*changes)
        try:
            outcomes = await submitted
        except (StoreUnavailable, NotOpen):  # closed: nothing more can be recorded
            self.stop()
        except Exception as error:
            if not self.begins_again(error):
                raise
        else:
            if fenced(outcomes):
                self.stop()
        if self.departed:
            raise self.leaving()

    def begins_again(self, error: BaseException) -> bool:
        """An error that is not about its data is not the program's to hear of, unless it stays."""
        if isinstance(error, ChangeRefused) or self._keeper.losses.stopped(self.claimed):
            return False
        log.error("Run %s is begun again: its store failed.", self.run_id, exc_info=error)
        self.stop()
        return True

    async def caught_up(self) -> None:
        """Return once something new can be begun: after all that the program has heard of before.

        Among that may be what makes it give the new thing up.
        """
        turn = self.deliveries.live(unseen=self.waits.unseen > 0)
        if turn is not None:
            await turn
        await self.ready()

    async def ready(self) -> None:
        """Return once changes can be recorded. A program that was parked too soon is resumed."""
        if self.state == "parked":
            if self._resuming is None:
                self._resuming = asyncio.get_running_loop().create_task(self._resume())
            await asyncio.shield(self._resuming)
        if self.departed:
            raise self.leaving()

    async def _resume(self) -> None:
        self._keeper.resumed(self)  # first, for the claim that may share its commit
        try:
            fence = await resume(self.claimed, self.held, self.writer, self._keeper.losses)
        finally:
            self._resuming = None
        if fence is not None and self.state == "parked":
            self.state = "active"
            self.held.fence = fence
            self._check_soon()
        elif self.state == "parked":
            self.stop()

    def enter(self) -> None:
        self._at_work.enter(self.task)
        self.deliveries.outstanding += 1

    def leave(self) -> None:
        self._at_work.leave()
        self.deliveries.outstanding -= 1
        if not self._at_work and (self.waits or self._needs):
            self._check_soon()

    # -- waiting -------------------------------------------------------------------------

    async def wait(self, key: str, opening: OpenWait, *companions: Change) -> WaitRow:
        """Wait until the wait of this key has ended, opening it if need be."""
        await self.ready()
        row = self.waits.rows.get(key)
        if row is not None:
            if row.kind != opening.kind:
                raise mismatch(key, row.kind, opening.kind)
            self.waits.unseen -= 1
            if row.ended_at is not None:
                turn = self.deliveries.ended_away(row.ended_at)
                if turn is not None:
                    await turn
                self.waits.over(key)
                return row
        else:
            self._to_open[key] = [*companions, opening]
        resting = self.blocking or asyncio.current_task() is self.task
        future = self.waits.begin(opening, resting=resting)
        self.deliveries.outstanding += 1
        self._check_soon()
        try:
            return await future
        except asyncio.CancelledError:
            self._to_open.pop(key, None)
            self._check_soon()
            raise
        except Suspended:
            self._leave_quietly()
            raise
        finally:
            del future  # its error holds this frame: a cycle for each run that leaves memory
            self.waits.over(key)
            self.deliveries.outstanding -= 1
            self._turns_left = self.park_turns

    def news(self, claimed: ClaimedRun) -> None:
        """The store says how the waits of this run stand."""
        assert not self.departed
        self.state = "active"
        self.held.fence = claimed.fence
        self.waits.news(claimed.waits)
        self._check_soon()

    @contextmanager
    def holding_up(self) -> Iterator[None]:
        """Let the program hear of nothing while inside: what it hears first is done once more."""
        self.deliveries.hold_up()
        try:
            yield
        finally:
            self.deliveries.let_go()
            self._check_soon()

    def _check_soon(self) -> None:
        self._turns_left = self.park_turns
        if not self._checking and self.state == "active":
            self._checking = True
            self._keeper.turns.watch(self)

    def turn(self) -> bool:
        """Once the program has come to rest: open its new waits, and park it if it only waits."""
        if self.deliveries.held_up:
            self._checking = False
            return True
        if not self.deliveries.idle:
            self._turns_left = self.park_turns
        if self._turns_left > 0:
            self._turns_left -= 1
            return False
        self._checking = False
        self._open_and_park()
        return True

    def _open_and_park(self) -> None:
        keys = self.waits.open_keys
        if self.state != "active" or not (keys or self._to_open or self._needs):
            return
        only_waits = not self._at_work and self.waits.all_open
        opening = [change for changes in self._to_open.values() for change in changes]
        self._to_open = {}
        if only_waits and self._needs:
            released = self.notes.submit(*opening, ReleaseRun(self.held, self._needs[0]))
            released.add_done_callback(self._on_released)
            self.stop()
            return
        last = self._park(keys) if only_waits else WatchWaits(self.held, keys)
        keys_opened = [change.key for change in opening if type(change) is OpenWait]
        submitted = self.notes.submit(*opening, last)
        submitted.add_done_callback(lambda done: self._on_opened(done, keys_opened, only_waits))
        if only_waits:
            self.state = "parked"
            self._keeper.parking(self)

    def _park(self, keys: list[str]) -> ParkRun:
        at_rest = (
            self.waits.rests and not self.replaying and not self._keeper.losses.keeps(self.run_id)
        )
        look_at = None if at_rest else self.clock.now() + LOOK_SECONDS * SECOND
        self._rest = None if at_rest else RestRun(self.held, keys)
        return ParkRun(self.held, keys, look_at)

    def _on_opened(
        self, done: asyncio.Future[list[Any]], keys: Collection[str], parks: bool
    ) -> None:
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or isinstance(error, StoreUnavailable | NotOpen):
            self.stop()
        elif error is not None:
            if not self.begins_again(error):
                self._refuse_waits(error, keys, parks)
        elif fenced(done.result()):
            self.stop()
        elif not self.departed and self._resuming is None:
            self._keeper.opened(self, parks)

    def _refuse_waits(self, error: BaseException, keys: Collection[str], parks: bool) -> None:
        """The store would not have these waits: their operations fail, as a step would."""
        log.error("Run %s could not open its waits.", self.run_id, exc_info=error)
        if parks and self.state == "parked":  # else it was parked since, and has to be resumed
            self.state = "active"
            self._keeper.resumed(self)
        self.waits.refuse(error, keys or self.waits.open_keys)

    # -- leaving -------------------------------------------------------------------------

    def stop(self) -> None:
        """The run was cancelled, ended or taken over: interrupt user code, record nothing more."""
        if self.state == "gone":
            return
        self.state = "gone"
        self.cancelled = True
        for task in (self.task, *self._at_work.branches):
            if task is not None:
                task.cancel()
        self.waits.cancel()

    def suspend(self) -> None:
        """Leave memory: the run is parked, and goes on from its journal another time."""
        self.state = "gone"
        rested = self.waits.rests
        self.waits.refuse(Suspended(), self.waits.open_keys)
        if self.task is not None and not self.task.done():
            self._away = Unwinding(
                self.task, self.held, self.writer, rested, self._rest, lambda: self.suspended,
                self._keeper.losses,
            )  # fmt: skip
            self._keeper.turns.watch(self._away)

    def release(self) -> asyncio.Future[list[Any]]:
        """Give the run back unfinished."""
        self.stop()
        return self.writer.submit(ReleaseRun(self.held))

    def _on_released(self, done: asyncio.Future[list[Any]]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("Run %s could not be given back.", self.run_id, exc_info=error)

    async def elsewhere(self, program: str) -> None:
        """Wait for a worker that has this program; the run goes there once it is at rest here."""
        self._needs.append(program)
        self._check_soon()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._needs.remove(program)

    def end(self, status: str, output: str | None, error: str | None) -> EndRun:
        """The program has ended; branches that it left behind are called off."""
        self.state = "gone"
        for task in self._at_work.branches:
            task.cancel()
        self.waits.cancel()
        return EndRun(self.held, status, output, error, self.clock.now())

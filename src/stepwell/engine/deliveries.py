"""Handing results to a program in the order in which they were recorded.

A program may wait for several things at once and act on whichever comes first. To make a
replay take the same turns, results reach the program in the order of their journal
positions, and after those of one commit the program is given time to react before the next.
Waits that ended while the program was away come after all that is recorded: nothing of what
the program did before depended on them. What the program begins anew comes last: it may be what
it gave up as soon as it heard the rest.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from stepwell.engine.surroundings import answering, in_first_thread
from stepwell.engine.turns import Turns, ready_callbacks
from stepwell.kernel.changes import GROUP_BITS, JournalRow
from stepwell.kernel.states import NOTED, OPEN, REPLAYED

# Turns of the loop after which a program has surely reacted, if nothing shows that before:
# gather, wait and task groups each need two or three to pass a result on, and may be nested.
SETTLE_TURNS = 24
# What threads are given to react to a result, in a replay and otherwise; and how often more if a
# result that comes first has not been asked for yet: then some thread is on its way there.
REPLAY_SECONDS = 0.02
THREAD_SECONDS = 0.002
THREAD_PAUSES = 20
# Positions of waits that ended while the program was away: behind those of any journal.
_AWAY = 1 << 100
# The position of what has to be begun, behind those.
_LIVE = 1 << 110


def positions(journal: Iterable[JournalRow]) -> Iterator[int]:
    """The positions of what the program hears of in the order of the journal.

    That is also a child which has to be started once more: it was, in that place.
    """
    for row in journal:
        again = row.kind == "start" and row.status in OPEN
        if again or (row.status in REPLAYED and row.kind not in NOTED):
            yield row.position


class Deliveries:
    """The results on their way to one program."""

    def __init__(self, turns: Turns, positions: Iterable[int] = ()) -> None:
        self._turns = turns
        # Commit → how many results recorded in it the program has not asked for yet.
        self._recorded: dict[int, int] = {}
        for position in positions:
            group = position >> GROUP_BITS
            self._recorded[group] = self._recorded.get(group, 0) + 1
        self._order = deque(sorted(self._recorded))
        # The last commit of the journal that the program was begun with.
        self._last = self._order[-1] if self._order else 0
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0
        self._turning = False
        self._asked = False
        self._left = 0
        self.settle_turns = SETTLE_TURNS
        # Whether the program is in threads: those take their time, whatever the loop does.
        self.threaded = False
        # Other tasks of the program that have begun operations, until it was at rest without them.
        self._branches: set[asyncio.Task[Any]] = set()
        # What was ready to be called when the program's own task last went on: how many, and what
        # came next.
        self._ready = ready_callbacks()
        self._went_on: tuple[int, Any] | None = None
        # Whether nothing can be beside the operation that was begun last.
        self._sequential = False
        self._timed = False
        # Turns to come of results that were there before the program was.
        self._late = 0
        # Operations the program has under way.
        self.outstanding = 0
        # How many hold up all deliveries, and whether these have stopped because of it.
        self._holds = 0
        self._stopped = False

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._turning

    @property
    def replaying(self) -> bool:
        """Whether the journal holds results that the program has not come to yet."""
        return bool(self._order)

    @property
    def timed(self) -> bool:
        """Whether a timer of the program's own may have run out since it was last answered."""
        return self._timed or self._stopped  # then nothing else could have made it go on

    def goes_on(self) -> None:
        """The program's own task goes on, from its beginning or with what it was answered."""
        ready = self._ready
        if ready is not None and not self._branches:
            self._went_on = len(ready), ready[0] if ready else None

    def over(self) -> None:
        """The program has ended: let go of what may be another's."""
        self._went_on = None

    def begins(self, own: asyncio.Task[None] | None) -> None:
        """The current task begins an operation; `own` is that of the program itself.

        A program that has no branches, and has scheduled nothing since it last went on, has
        nothing that could begin beside what it asks for now.
        """
        if self.threaded:
            self._sequential = in_first_thread.get()
            return
        task = asyncio.current_task()
        if task is not own and task is not None:
            self._branches.add(task)
        then, self._went_on = self._went_on, None
        ready = self._ready
        self._sequential = (
            ready is not None
            and then is not None
            and not self._branches
            and len(ready) == then[0]
            and (not ready or ready[0] is then[1])
        )

    def replayed(self, position: int) -> asyncio.Future[None] | None:
        """A recorded result is asked for; what to wait for until its turn has come.

        Also if it is the next one: branches beside the one that asks may not have begun yet.
        """
        group = position >> GROUP_BITS
        first = bool(self._order) and self._order[0] == group
        self._recorded[group] -= 1
        alone = first and self._recorded[group] == 0 and self.outstanding == 0 and self.idle
        if self._recorded[group] == 0 and group in self._order:
            self._order.remove(group)
        return None if self._sequential and alone else self.again(position)

    def again(self, position: int) -> asyncio.Future[None]:
        """The same once more, for a program that gave up what it has to get."""
        self._late += 1
        turn = self._queued(position)
        turn.add_done_callback(self._caught_up)
        return turn

    def _queued(self, position: int) -> asyncio.Future[None]:
        self._asked = True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._queue, (position, self._count, turn))
        if not self._turning:
            self._turning = True
            self._go_on()
        self.outstanding += 1
        turn.add_done_callback(self._served)
        return turn

    def ended_away(self, at: int) -> asyncio.Future[None] | None:
        """The same for a wait that ended at that time, while the program was away."""
        alone = self.outstanding == 0 and self.idle and not self.replaying
        return None if self._sequential and alone else self.again(_AWAY + (at << GROUP_BITS))

    def recorded(self, position: int, *, under_way: int) -> asyncio.Future[None] | None:
        """A result has just become durable; what to wait for until its turn has come.

        `under_way` is how many of the operations under way are this very one: 1 or 0.
        """
        alone = self.outstanding <= under_way and self.idle and not self.replaying
        return None if self._sequential and alone else self._queued(position)

    def live(self, *, unseen: bool) -> asyncio.Future[None] | None:
        """Something is begun that is not in the journal; what to wait for until its turn has come.

        `unseen` says whether the program has waits that it has not come to yet.
        """
        if not (self._order or self._late or unseen):
            return None
        alone = self.outstanding == 0 and self.idle
        return None if self._sequential and alone else self._queued(_LIVE)

    @property
    def held_up(self) -> bool:
        """Whether nothing is handed over for the time being."""
        return self._holds > 0

    def hold_up(self) -> None:
        """Hand over nothing until it is let go as often."""
        self._holds += 1

    def let_go(self) -> None:
        self._holds -= 1
        if self._stopped and not self.held_up:
            self._stopped = False
            self._go_on()

    def _served(self, _: asyncio.Future[None]) -> None:
        self.outstanding -= 1

    def _caught_up(self, _: asyncio.Future[None]) -> None:
        self._late -= 1

    def _go_on(self) -> None:
        if not self.threaded:
            self._turns.watch(self)
            if self._late:
                self._turns.note_timers()
        else:
            self._pause(THREAD_PAUSES)

    def _pause(self, more: int) -> None:
        replays = self.replaying or (
            bool(self._queue) and self._queue[0][0] >> GROUP_BITS <= self._last
        )
        pause = REPLAY_SECONDS if replays else THREAD_SECONDS
        asyncio.get_running_loop().call_later(pause, self._pause_over, more)

    def turn(self) -> bool:
        """Another turn of the loop has come; whether this was the last look."""
        if self._late:
            run_out = self._turns.run_out
            if run_out is None:
                self._timed = True
            elif any(map(self._is_own, run_out)):
                self._timed = self._asked = True
            self._turns.note_timers()
        if self._asked:
            self._asked, self._left = False, self.settle_turns
        if self._left > 0 and not self._turns.quiet:
            self._left -= 1
            return False
        if self.held_up:
            self._stopped = True
            return True
        self._left = self.settle_turns
        return not self._deliver()

    def _is_own(self, timer: asyncio.TimerHandle) -> bool:
        context: contextvars.Context | None = getattr(timer, "_context", None)
        return context is None or context.get(answering) is self

    def _pause_over(self, more: int) -> None:
        if self.held_up:
            self._stopped = True
            return
        first = self._queue[0][0] >> GROUP_BITS if self._queue else 0
        overtakes = bool(self._order) and self._order[0] < first
        if self._asked or (overtakes and more > 0):
            self._asked = False
            self._pause(more - 1)
        elif self._deliver():
            self._go_on()

    def _deliver(self) -> bool:
        """Hand over the results of the first commit; False if there is none.

        The program is at rest now: no branch that has ended has anything left to do. What was
        recorded before and is not asked for by now need not be waited for: a retry may never come
        to what the run did because of its failure.
        """
        self._branches = {task for task in self._branches if not task.done()}
        self._timed = False
        if not self._queue:
            self._turning = False
            return False
        group = self._queue[0][0] >> GROUP_BITS
        while self._order and self._order[0] < group:
            self._order.popleft()
        while self._queue and self._queue[0][0] >> GROUP_BITS == group:
            turn = heapq.heappop(self._queue)[2]
            if not turn.done():
                turn.set_result(None)
        return True

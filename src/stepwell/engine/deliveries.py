"""Handing results to a program in the order in which they were recorded.

A program may wait for several things at once and act on whichever comes first. To make a
replay take the same turns, results reach the program in the order of their journal
positions, and after those of one commit the program is given time to react before the next.
A program that does one thing at a time never notices.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Iterable
from typing import Any

from stepwell.kernel.changes import GROUP_BITS

# Turns of the loop after which a program has surely reacted: gather, wait and task groups
# each need two or three to pass a result on, and they may be nested.
SETTLE_TURNS = 24


class Deliveries:
    """The results on their way to one program."""

    def __init__(self, positions: Iterable[int] = ()) -> None:
        # Commit → how many results recorded in it the program has not asked for yet.
        self._recorded: dict[int, int] = {}
        for position in positions:
            group = position >> GROUP_BITS
            self._recorded[group] = self._recorded.get(group, 0) + 1
        self._order = deque(sorted(self._recorded))
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0
        self._turning = False
        self._asked = False
        # The task that had its last result at once. Another one that asks right after it may be
        # a branch beside it, and the program has not had the time to react.
        self._hasty: asyncio.Task[Any] | None = None
        self.settle_turns = SETTLE_TURNS
        # Operations the program has under way.
        self.outstanding = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._turning

    @property
    def replaying(self) -> bool:
        """Whether the journal holds results that the program has not come to yet."""
        return bool(self._order)

    def replayed(self, position: int) -> asyncio.Future[None] | None:
        """A recorded result is asked for; what to wait for until its turn has come."""
        group = position >> GROUP_BITS
        first = bool(self._order) and self._order[0] == group
        alone = first and self._recorded[group] == 1
        self._recorded[group] -= 1
        if self._recorded[group] == 0:
            self._order.remove(group)
        task = asyncio.current_task()
        if alone and self.outstanding == 0 and self.idle and self._hasty in (None, task):
            self._hasty = task
            return None
        self._hasty = None
        self._asked = True
        return self._turn_of(position, self.settle_turns)

    def again(self, position: int) -> asyncio.Future[None]:
        """The same once more, for a program that gave up what it has to get."""
        return self._turn_of(position, self.settle_turns)

    def recorded(self, position: int, *, under_way: int) -> asyncio.Future[None] | None:
        """A result has just become durable; what to wait for until its turn has come.

        `under_way` is how many of the operations under way are this very one: 1 or 0.
        """
        if self.outstanding > under_way or not self.idle or self.replaying:
            return self._turn_of(position, self.settle_turns if self.replaying else 1)
        return None

    def _turn_of(self, position: int, turns: int) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._count += 1
        heapq.heappush(self._queue, (position, self._count, turn))
        if not self._turning:
            self._turning = True
            loop.call_soon(self._pass_time, turns)
        self.outstanding += 1
        turn.add_done_callback(self._served)
        return turn

    def _served(self, _: asyncio.Future[None]) -> None:
        self.outstanding -= 1

    def _pass_time(self, left: int) -> None:
        loop = asyncio.get_running_loop()
        if self._asked:
            self._asked, left = False, self.settle_turns
        if left > 0:
            loop.call_soon(self._pass_time, left - 1)
            return
        if not self._queue:
            self._turning = False
            return
        group = self._queue[0][0] >> GROUP_BITS
        while self._queue and self._queue[0][0] >> GROUP_BITS == group:
            turn = heapq.heappop(self._queue)[2]
            if not turn.done():
                turn.set_result(None)
        loop.call_soon(self._pass_time, self.settle_turns)

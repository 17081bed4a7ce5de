"""What the tests of live feeds share: listening, and comparing what was heard."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

from stepwell import Stepwell
from stepwell.kernel.feed import RunEvent

# What tells of a state: whoever comes later is not told of one that is over.
PASSING = ("run.waiting", "run.resumed")


async def heard(sw: Stepwell, run_id: str, after: str | None = None) -> list[RunEvent]:
    """All events of a run until it has ended."""
    async with aclosing(sw.watch(run_id, after)) as events:
        return [event async for event in events]


def lines(events: Sequence[RunEvent]) -> list[str]:
    """Events in short: `step.started fetch`."""
    return [_line(event) for event in events]


def lasting(events: Sequence[RunEvent]) -> list[str]:
    """The same without what only told of a state."""
    return lines([event for event in events if event.type not in PASSING])


def _line(event: RunEvent) -> str:
    about = [event.data.get("step"), event.data.get("attempt")]
    return " ".join([event.type, *(str(each) for each in about if each is not None)])


class Listener:
    """Somebody who listens meanwhile."""

    def __init__(self, sw: Stepwell, run_id: str, after: str | None = None) -> None:
        self.events: list[RunEvent] = []
        self._task = asyncio.create_task(self._listen(sw, run_id, after))

    async def _listen(self, sw: Stepwell, run_id: str, after: str | None) -> None:
        async with aclosing(sw.watch(run_id, after)) as events:
            async for event in events:
                self.events.append(event)

    async def until(self, condition: Callable[[list[str]], Any]) -> None:
        """Return once what was heard is as wished."""
        while not condition(lines(self.events)):
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.001)

    async def all(self) -> list[RunEvent]:
        """What was heard, once the run has ended."""
        await self._task
        return self.events

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def check_resuming(sw: Stepwell, run_id: str, live: Sequence[RunEvent]) -> None:
    """From every id, of what came live and of what comes now, the rest follows: once, and all."""
    once = Counter(lasting(live))
    assert max(once.values()) == 1, once
    replayed = await heard(sw, run_id)
    assert Counter(lasting(replayed)) == once
    for number, event in enumerate(replayed, 1):
        assert await heard(sw, run_id, event.id) == replayed[number:]
    for number, event in enumerate(live, 1):
        rest = Counter(lasting(await heard(sw, run_id, event.id)))
        assert rest == Counter(lasting(live[number:])), event
    assert [int(event.id.partition("-")[0]) for event in live] == list(range(1, len(live) + 1))

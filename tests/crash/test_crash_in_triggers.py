"""Stop the process before or after its nth firing is durable, start again, count the runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Stepwell, workflow
from stepwell.catalog import store_for
from stepwell.engine import outbox, ticker
from stepwell.kernel.clock import moment
from stepwell.kernel.plans import Plan
from stepwell.settings import Settings
from stepwell.testing.clock import FakeClock
from stepwell.testing.crash import crash

TICKS, EVENTS = 12, 12


@workflow
async def counted(ctx: Any, input: Any) -> None: ...


class Dying:
    """Lets so many firings through; the one after that is never heard of again."""

    def __init__(self, sw: Stepwell, after: int, lose_acknowledgement: bool) -> None:
        self._fire = sw.store.triggers.fire
        self._left = after
        self._lose = lose_acknowledgement
        self.happened = asyncio.Event()
        sw.store.triggers.fire = self.fire

    async def fire(self, *given: Any) -> Any:
        if self._left == 0 and not self._lose:
            await self._die()
        fired = await self._fire(*given)
        if self._left == 0:
            await self._die()
        self._left -= 1
        return fired

    async def _die(self) -> None:
        self.happened.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("lose", [False, True], ids=["before", "unacknowledged"])
@pytest.mark.parametrize("quota", [None, 15], ids=["all", "some"])
async def test_each_tick_and_event_starts_one_run_wherever_the_process_dies(
    store_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, lose: bool,
    quota: int | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(ticker, "MOST_STARTS", 3)
    monkeypatch.setattr(outbox, "BATCH", 4)
    after, crashed = 0, True
    while crashed:
        # A workspace of its own for each time.
        def process(workspace: str = f"w{after}") -> Stepwell:
            settings = Settings(plan=Plan("small", runs_per_month=quota))
            store = store_for(store_url, clock)
            return Stepwell(
                workflows=[counted], store=store, settings=settings, workspace=workspace
            )

        async with process() as calm, process() as doomed:
            await calm.triggers.create(
                "counted", "schedule", {"every": "1m", "misfire": "all", "limit": TICKS}, name="t"
            )
            await calm.triggers.create("counted", "event", {"event": "news"}, name="e")
            begin = moment(clock.now())
            for n in range(EVENTS):
                await calm.emit("news", {"n": n})
            clock.advance(timedelta(minutes=TICKS))
            dying = Dying(doomed, after, lose)
            async with asyncio.timeout(30):
                keeping = doomed.housekeeping()
                await keeping.__aenter__()
                await _done_or(dying.happened, calm)
                crash(doomed)
                crashed = dying.happened.is_set()
                async with calm.housekeeping():
                    await _done_or(asyncio.Event(), calm)
            found = Counter(
                run.trigger.get("scheduled_at") or run.input["n"]
                for run in (await calm.list_runs(limit=100)).items
            )
            expected = [(begin + timedelta(minutes=n + 1)).isoformat() for n in range(TICKS)]
            assert set(found) <= {*range(EVENTS), *expected}, f"after firing {after}"
            assert set(found.values()) == {1}, f"after firing {after}"
            assert len(found) == (quota or TICKS + EVENTS), f"after firing {after}"
        after += 1
    assert after > 5, "they were never interrupted"


async def _done_or(happened: asyncio.Event, sw: Stepwell) -> None:
    """Return once nothing is due or pending, or that has happened."""
    triggers, workspace = sw.store.triggers, sw._workspace
    while not happened.is_set() and (
        await triggers.due(workspace, sw.store.clock.now(), 1)
        or await triggers.pending_events(workspace, 1)
    ):
        await asyncio.sleep(0.001)

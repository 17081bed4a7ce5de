"""The tally: what became of a trigger is written in the end, also past a store that was away."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from stepwell import Stepwell, workflow
from stepwell.engine import tally
from stepwell.engine.tally import MOST, PAUSE_SECONDS, Tally
from stepwell.errors import StoreUnavailable
from stepwell.kernel.records import RefusalRecord, TriggerRecord
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import eventually

WORKSPACE = "default"


@workflow
async def told(ctx: Any, input: Any) -> Any:
    return input


async def hook(sw: Stepwell) -> TriggerRecord:
    await sw.triggers.create("told", "webhook", {}, name="hook")
    return (await sw.store.triggers.triggers(WORKSPACE))[0]


def refusal(trigger: TriggerRecord, number: int, message: str = "No.") -> RefusalRecord:
    return RefusalRecord(f"r{number:04}", trigger.id, "body_invalid", message, 0)


async def rows(sw: Stepwell) -> list[tuple[str, int]]:
    """What is in the store, without asking the tally to write first."""
    found = await sw.store.triggers.refusals(WORKSPACE, None, 1000)
    return [(each.id, each.count) for each in reversed(found)]


async def written(sw: Stepwell, wanted: list[tuple[str, int]]) -> None:
    """Return once this is in the store; pytest's timeout is the limit."""
    while await rows(sw) != wanted:
        await asyncio.sleep(0.001)


class Store:
    """The triggers of a store whose next writes wait, or fail."""

    def __init__(self, sw: Stepwell) -> None:
        self.refuse, self.fire = sw.store.triggers.refuse, sw.store.triggers.fire
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.errors: list[Exception] = []
        # Whether what fails is written all the same: only the answer was lost.
        self.written = False
        sw.store.triggers.refuse = self._refuse

    async def _refuse(self, workspace_id: str, refusals: Any) -> None:
        await self.go_on.wait()
        if not self.errors or self.written:
            await self.refuse(workspace_id, refusals)
        if self.errors:
            raise self.errors.pop(0)


async def test_what_is_noted_during_a_write_is_written_without_another_note(
    world: World, clock: FakeClock
) -> None:
    async with world([told]) as sw:
        trigger, store, noted = await hook(sw), Store(sw), Tally(sw.store, WORKSPACE)
        store.go_on.clear()
        noted.refused(trigger, refusal(trigger, 1))
        await asyncio.sleep(0)
        noted.refused(trigger, refusal(trigger, 2))
        store.go_on.set()
        await written(sw, [("r0001", 1)])
        clock.advance(PAUSE_SECONDS)
        await written(sw, [("r0001", 1), ("r0002", 1)])
        await noted.close()


@pytest.mark.parametrize("answer_lost", [False, True], ids=["not written", "answer lost"])
async def test_a_store_that_is_away_loses_nothing_and_counts_nothing_twice(
    world: World, clock: FakeClock, answer_lost: bool
) -> None:
    async with world([told]) as sw:
        trigger, store, noted = await hook(sw), Store(sw), Tally(sw.store, WORKSPACE)
        store.errors, store.written = [StoreUnavailable("away")] * 3, answer_lost
        noted.refused(trigger, refusal(trigger, 1))
        for number in range(2, 5):
            await eventually(lambda left=4 - number: len(store.errors) == left)
            noted.refused(trigger, refusal(trigger, number))
            clock.advance(PAUSE_SECONDS)
        await written(sw, [("r0001", 1), ("r0004", 3)])
        await noted.drained()
        after = await sw.store.triggers.trigger(WORKSPACE, trigger.id)
        assert after is not None
        assert after.failures == 4
        await noted.close()


async def test_it_holds_no_more_than_so_much_however_long_the_store_is_away(
    world: World, clock: FakeClock
) -> None:
    async with world([told]) as sw:
        trigger, store, noted = await hook(sw), Store(sw), Tally(sw.store, WORKSPACE)
        store.errors = [StoreUnavailable("away")] * 5
        number = 0
        while store.errors:
            left = len(store.errors)
            for _ in range(MOST):
                number += 1
                noted.refused(trigger, refusal(trigger, number, f"No, {number}."))
            clock.advance(PAUSE_SECONDS)
            await eventually(lambda left=left: len(store.errors) < left)
        clock.advance(PAUSE_SECONDS)
        await noted.drained()
        found = await rows(sw)
        assert sum(count for _, count in found) == number
        assert len(found) <= 2 * (MOST + 1)
        await noted.close()


async def test_an_error_nobody_expects_is_logged_and_tried_again_but_not_for_ever(
    world: World, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with world([told]) as sw:
        trigger, store, noted = await hook(sw), Store(sw), Tally(sw.store, WORKSPACE)
        store.errors = [OSError("who knows")] * tally.TRIES
        with caplog.at_level(logging.ERROR, "stepwell.tally"):
            noted.refused(trigger, refusal(trigger, 1))
            for left in reversed(range(tally.TRIES)):
                await eventually(lambda left=left: len(store.errors) == left)
                clock.advance(PAUSE_SECONDS)
        assert "who knows" in caplog.text
        noted.refused(trigger, refusal(trigger, 2))
        await written(sw, [("r0002", 1)])
        await noted.close()


async def test_waiting_for_it_ends_also_while_the_store_is_away_or_more_keeps_coming(
    world: World,
) -> None:
    async with world([told]) as sw:
        trigger, store, noted = await hook(sw), Store(sw), Tally(sw.store, WORKSPACE)
        store.errors = [StoreUnavailable("away")] * 2
        noted.refused(trigger, refusal(trigger, 1))
        await noted.drained()
        assert await rows(sw) == []
        real, number = store.refuse, 1

        async def refuse(workspace_id: str, refusals: Any) -> None:
            nonlocal number
            number += 1
            noted.refused(trigger, refusal(trigger, number))
            await real(workspace_id, refusals)

        sw.store.triggers.refuse = refuse
        await noted.drained()
        assert ("r0001", 1) in await rows(sw)
        sw.store.triggers.refuse = real
        await noted.close()


async def test_a_trigger_that_was_changed_meanwhile_is_noted_as_it_is_now(world: World) -> None:
    async with world([told]) as sw:
        trigger, noted = await hook(sw), Tally(sw.store, WORKSPACE)
        await sw.triggers.disable("told/hook")
        changed = await sw.store.triggers.trigger(WORKSPACE, trigger.id)
        assert changed is not None
        noted.refused(trigger, refusal(trigger, 1))
        noted.fired(changed, "run-1")
        await noted.drained()
        after = await sw.store.triggers.trigger(WORKSPACE, trigger.id)
        assert after is not None
        assert (after.last_run_id, after.failures) == ("run-1", 0)
        await noted.close()

"""A retry goes back to what failed first, in whatever dress its error ended the run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import Retry, workflow
from stepwell.errors import StepwellError
from tests.conftest import World
from tests.engine.support import eventually, flowing, until

ONCE = Retry(attempts=1)
DRESSES = ["plain", "from", "group", "both"]


async def dressed(how: str, failing: Any, fine: Any) -> Any:
    """Await what fails, and raise its error in this dress."""
    if how == "group":
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(failing), group.create_task(fine)]
        return tasks[0].result()
    if how == "both":  # two failed; the other one later
        found = await asyncio.gather(failing, fine, return_exceptions=True)
        errors = [each for each in reversed(found) if isinstance(each, Exception)]
        if errors:
            raise ExceptionGroup("some failed", errors)
        return found[0]
    fine.close()
    try:
        return await failing
    except StepwellError as error:
        if how == "plain":
            raise
        raise RuntimeError("something else") from error


@pytest.mark.parametrize("how", DRESSES)
async def test_a_retry_goes_back_to_the_failed_child_behind_another_error(
    world: World, how: str
) -> None:
    well = False
    calls: list[str] = []

    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        if not well:
            raise ValueError("not yet")
        return "child"

    async def after() -> None:
        await eventually(lambda: calls)
        if not well and how == "both":
            raise ConnectionError

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        async def failing() -> Any:
            try:
                return await ctx.run_child("child", "child")
            finally:
                calls.append("ended")

        return await dressed(how, failing(), ctx.step("after", after, retry=ONCE))

    async with world([parent, child]) as sw, sw.worker():
        run = await sw.start("parent")
        await until(sw, run.id, "failed")
        assert (await sw.get_run(run.id)).error.step == "child"
        well = True
        assert await (await sw.retry(run.id)).result() == "child"


@pytest.mark.parametrize("how", DRESSES)
async def test_a_retry_goes_back_to_the_wait_that_timed_out_behind_another_error(
    world: World, clock: Any, how: str
) -> None:
    well = False
    late: list[str] = []

    async def after() -> None:
        await eventually(lambda: late or well)
        if not well and how == "both":
            raise ConnectionError

    @workflow
    async def waiting(ctx: Any, input: Any) -> Any:
        async def failing() -> Any:
            try:
                return await ctx.wait_for_event("go", timeout="1s", raise_on_timeout=True)
            finally:
                late.append("late")

        return await dressed(how, failing(), ctx.step("after", after, retry=ONCE))

    async with world([waiting]) as sw, sw.worker():
        run = await sw.start("waiting")
        async with flowing(clock):
            await until(sw, run.id, "failed")
        assert (await sw.get_run(run.id)).error.step == "go"
        well = True
        again = await sw.retry(run.id)
        await sw.signal(again.id, "go", "come")
        assert await again.result() == "come"


async def test_the_failure_of_a_step_that_waited_for_another_run_is_the_steps_own(
    world: World,
) -> None:
    well = False

    def fetch() -> None:
        if not well:
            raise ValueError("not yet")

    @workflow
    async def other(ctx: Any, input: Any) -> Any:
        await ctx.step("fetch", fetch, retry=ONCE)
        return "other"

    async def start_and_wait() -> Any:
        return await (await sw.start("other")).result()

    @workflow
    async def waiting(ctx: Any, input: Any) -> Any:
        return await ctx.step("outside", start_and_wait, retry=ONCE)

    async with world([waiting, other]) as sw, sw.worker():
        run = await sw.start("waiting")
        await until(sw, run.id, "failed")
        assert (await sw.get_run(run.id)).error.step == "outside"
        well = True
        assert await (await sw.retry(run.id)).result() == "other"

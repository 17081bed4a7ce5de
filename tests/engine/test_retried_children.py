"""Retries of runs that have children: what is done again, what is found again, what is kept."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import Retry, RunFailed, workflow
from tests.conftest import World
from tests.engine.support import flowing, until, until_code

NEVER = Retry(attempts=1)


class Broken:
    """A step function that raises until it is mended, and counts its calls."""

    def __init__(self) -> None:
        self.mended = False
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if not self.mended:
            raise ValueError("broken")
        return "fine"


@pytest.mark.parametrize("value", [5, 42, "", None, True, '"', {"a": 1}])
async def test_a_retry_keeps_what_a_child_put_out_whatever_it_was(world: World, value: Any) -> None:
    broken = Broken()

    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        return value

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        got = await ctx.run_child("child", "child")
        await ctx.step("broken", broken, retry=NEVER)
        return got

    async with world([parent, child]) as sw, sw.worker():
        run = await sw.start("parent")
        await until(sw, run.id, "failed")
        broken.mended = True
        assert await (await sw.retry(run.id)).result() == value
        assert len((await sw.list_runs(definition="child")).items) == 1


async def test_a_child_that_put_out_the_id_of_a_failed_run_is_not_run_again(world: World) -> None:
    broken = Broken()
    launched: list[str] = []

    @workflow
    async def job(ctx: Any, input: Any) -> Any:
        raise ValueError("the job fails")

    @workflow
    async def launcher(ctx: Any, input: Any) -> Any:
        launched.append(ctx.run_id)
        return (await ctx.start_child("job", "job")).id

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        job_id = await ctx.run_child("launch", "launcher")
        await ctx.step("broken", broken, retry=NEVER)
        return job_id

    async with world([parent, launcher, job]) as sw, sw.worker():
        run = await sw.start("parent")
        await until(sw, run.id, "failed")
        [failed] = (await sw.list_runs(definition="job")).items
        await until(sw, failed.id, "failed")
        broken.mended = True
        assert await (await sw.retry(run.id)).result() == failed.id
        assert len(launched) == 1


def write_early_journals(sw: Any) -> None:
    """Write journals as they were before what starts a child had a kind of its own."""
    store_commit = sw.store.commit

    async def commit(batch: Any) -> Any:
        for change in batch:
            if getattr(change, "kind", "") == "start":
                change.kind = "child"
        return await store_commit(batch)

    sw.store.commit = commit


@pytest.mark.parametrize("early", [False, True])
async def test_a_retry_starts_a_child_again_that_failed_unseen(world: World, early: bool) -> None:
    broken = Broken()

    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        return await ctx.step("broken", broken, retry=NEVER)

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        handle = await ctx.start_child("child", "child")
        await ctx.wait_for_event("go")
        return await handle.result()

    async with world([parent, child]) as sw:
        if early:
            write_early_journals(sw)
        async with sw.worker():
            run = await sw.start("parent")
            await until_code(sw, run.id, "event")
        async with sw.worker():  # begins it again from its journal
            [first] = (await sw.list_runs(definition="child")).items
            await until(sw, first.id, "failed")
            await sw.signal(run.id, "go")
            with pytest.raises(RunFailed):
                await run.result()
            broken.mended = True
            assert await (await sw.retry(run.id)).result() == "fine"
            assert broken.calls == 2


async def test_a_retry_and_its_child_under_one_limit_do_not_wait_for_each_other(
    world: World, clock: Any
) -> None:
    broken = Broken()

    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        return await ctx.wait_for_event("go")

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        handle = await ctx.start_child("child", "child", concurrency_key="customer")
        await ctx.step("broken", broken, retry=NEVER)
        await ctx.emit("go", "gone")
        return await handle.result()

    async with world([parent, child]) as sw, sw.worker(), flowing(clock):
        run = await sw.start("parent", concurrency_key="customer")
        await until(sw, run.id, "failed")
        broken.mended = True
        assert await (await sw.retry(run.id)).result() == "gone"


@pytest.mark.parametrize("own", [None, "90s"])
async def test_a_child_that_a_retry_adopts_has_the_time_of_the_retry(
    world: World, clock: Any, own: str | None
) -> None:
    broken = Broken()

    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        return await ctx.wait_for_event("go")

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        handle = await ctx.start_child("child", "child", deadline=own)
        await ctx.step("broken", broken, retry=NEVER)
        return await handle.result()

    async with world([parent, child]) as sw, sw.worker(lease="1d"):
        run = await sw.start("parent", deadline="100s")
        await until(sw, run.id, "failed")
        [adopted] = (await sw.list_runs(definition="child")).items
        await until(sw, adopted.id, "waiting")
        broken.mended = True
        clock.advance("50s")
        again = await sw.retry(run.id)
        await until(sw, again.id, "waiting")
        clock.advance("60s")  # the time of the first one is over
        if own is None:
            await sw.signal(adopted.id, "go", "come")
            assert await again.result() == "come"
        else:
            assert (await until(sw, adopted.id, "timed_out")).error.type == "deadline_exceeded"

"""Retries of runs that have children: what is done again, what is found again, what is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import Retry, RunFailed, workflow
from stepwell.kernel.changes import GROUP_BITS, ClaimRuns, EndRun, Held
from stepwell.kernel.codec import encode
from stepwell.store import WorkerRow
from stepwell.testing.samples import WORKSPACE, commit, record, start
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


async def leave_a_journal(sw: Any, run_id: str) -> None:
    """Die as a worker may: after a failure and then the child's result, before the run's end."""
    store, worker_id = sw.store, "gone"
    programs = ["code:parent@1", "code:child@1"]
    now = store.clock.now()
    await store.enlist(WorkerRow(worker_id, WORKSPACE, "host", 1, "", 10, programs, now, 15))

    async def take() -> Held:
        [outcome] = await commit(store, ClaimRuns(WORKSPACE, worker_id, programs, 1, now))
        return Held(outcome.runs[0].id, worker_id, outcome.runs[0].fence)

    held = await take()
    trigger = encode({"type": "run", "run_id": run_id, "step": "child"}, "A trigger")
    child = start(
        store, "child-1", definition="child", program=programs[1], parent_run_id=run_id, held=held,
        trigger=trigger,
    )  # fmt: skip
    failure = encode({"type": "ValueError", "message": "broken", "step": "broken"}, "An error")
    failed = record(
        store, held, "broken", None, status="failed", error=failure, seq=2, position=1 << GROUP_BITS
    )
    await commit(store, child)
    await commit(store, failed)
    await commit(store, EndRun(await take(), "completed", '"put out"', None, now))
    result = record(store, held, "child", '"put out"', kind="child", position=2 << GROUP_BITS)
    await commit(store, result)
    await store.retire([worker_id], alive=True)


async def test_a_retry_finds_a_child_again_that_was_given_up_on_replay(world: World) -> None:
    broken = Broken()

    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        return "run again"

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(ctx.run_child("child", "child"))
            second = group.create_task(ctx.step("broken", broken, retry=NEVER))
        return [first.result(), second.result()]

    async with world([parent, child]) as sw:
        run = await sw.start("parent")
        await leave_a_journal(sw, run.id)
        async with sw.worker():
            await until(sw, run.id, "failed")
            broken.mended = True
            assert await (await sw.retry(run.id)).result() == ["put out", "fine"]


async def test_a_child_knows_the_step_that_started_it(world: World) -> None:
    @workflow
    async def child(ctx: Any, input: Any) -> Any: ...

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        await ctx.run_child("one", "child")
        await ctx.run_child("one", "child")

    async with world([parent, child]) as sw, sw.worker():
        run = await sw.start("parent")
        await run.result()
        triggers = [each.trigger for each in (await sw.list_runs(definition="child")).items]
        assert triggers == [
            {"type": "run", "run_id": run.id, "step": step, "depth": 1} for step in ("one#2", "one")
        ]


async def test_one_retry_is_enough_for_several_children_that_failed(world: World) -> None:
    broken = True

    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        if broken:
            raise ValueError(f"child {input}")
        return input

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        handles = [await ctx.start_child(f"c{i}", "child", i) for i in range(3)]
        results = await asyncio.gather(*(h.result() for h in handles), return_exceptions=True)
        if errors := [each for each in results if isinstance(each, Exception)]:
            raise ExceptionGroup("some failed", errors)
        return results

    async with world([parent, child]) as sw, sw.worker():
        run = await sw.start("parent")
        await until(sw, run.id, "failed")
        broken = False
        assert await (await sw.retry(run.id)).result() == [0, 1, 2]


async def test_a_child_that_a_retry_starts_again_keeps_its_place_among_the_branches(
    world: World,
) -> None:
    broken, never = Broken(), Broken()

    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        await ctx.step("never", never, retry=NEVER)

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        seen: list[str] = []

        async def ask(name: str) -> None:
            assert await ctx.step("ask", lambda: name) == name  # in the order they are called
            seen.append(name)

        async def starting() -> None:
            await ctx.start_child("child", "child")
            await ask("a")

        async def later() -> None:
            await ctx.wait_for_event("go")
            await ask("b")

        await asyncio.gather(starting(), later())
        await ctx.step("broken", broken, retry=NEVER)
        await ctx.wait_for_event("end")
        return seen

    async with world([parent, child]) as sw:
        async with sw.worker():
            run = await sw.start("parent")
            await until_code(sw, run.id, "event")
            await sw.signal(run.id, "go")
            await until(sw, run.id, "failed")
            [first] = (await sw.list_runs(definition="child")).items
            await until(sw, first.id, "failed")
        cancelled = await sw.retry(run.id)  # one that never comes to start the child
        await sw.cancel(cancelled.id)
        broken.mended = True
        again = await sw.retry(cancelled.id)
        async with sw.worker():
            await until_code(sw, again.id, "event")
        async with sw.worker():  # the second child is in the place of the first
            await sw.signal(again.id, "end")
            assert await again.result() == ["a", "b"]
        assert never.calls == 2

"""Forks and retries: a new run that begins with another's journal."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from stepwell import Retry, RunFailed, workflow
from stepwell.errors import RunNotFailed, StepNotFound
from tests.conftest import World
from tests.engine.support import echo, eventually, until, until_code

NEVER = Retry(attempts=1)


async def test_a_fork_goes_on_from_a_step_with_another_input(world: World) -> None:
    calls: list[Any] = []

    def work(name: str, value: Any) -> Any:
        calls.append(name)
        return [name, value]

    @workflow
    async def three(ctx: Any, input: Any) -> Any:
        return [await ctx.step(name, work, name, input["x"]) for name in ("a", "b", "c")]

    async with world([three]) as sw, sw.worker():
        origin = await sw.start("three", {"x": 1})
        await origin.result()
        calls.clear()
        fork = await sw.fork(origin.id, from_step="b", input={"x": 2})
        assert await fork.result() == [["a", 1], ["b", 2], ["c", 2]]
        assert calls == ["b", "c"]
        record = await sw.get_run(fork.id)
        assert (record.forked_from, record.input) == (origin.id, {"x": 2})
        same = await sw.fork(origin.id, from_step="c")
        assert await same.result() == [["a", 1], ["b", 1], ["c", 1]]
        with pytest.raises(StepNotFound, match=r"no step 'nope'\. Its steps are: 'a', 'b', 'c'"):
            await sw.fork(origin.id, from_step="nope")


async def test_of_many_steps_ten_are_named_when_one_is_not_found(world: World) -> None:
    @workflow
    async def many(ctx: Any, input: Any) -> Any:
        for _ in range(12):
            await ctx.step("s", echo, 1)

    async with world([many]) as sw, sw.worker():
        run = await sw.start("many")
        await run.result()
        with pytest.raises(StepNotFound, match=r"'s', 's#2', .*'s#10' and 2 more\.$"):
            await sw.fork(run.id, from_step="s#13")
        assert await (await sw.fork(run.id, from_step="s#12")).result() is None


async def test_retry_goes_on_from_the_failed_step_with_its_idempotency_key(world: World) -> None:
    keys: list[str] = []
    calls: list[str] = []
    broken = True

    @workflow
    async def fragile(ctx: Any, input: Any) -> Any:
        def work(name: str) -> str:
            calls.append(name)
            if name == "bad":
                keys.append(ctx.idempotency_key)
                if broken:
                    raise ValueError("broken")
            return name

        def caught() -> None:
            raise KeyError("always")

        with pytest.raises(KeyError):
            await ctx.step("caught", caught, retry=NEVER)
        return [await ctx.step(name, work, name, retry=NEVER) for name in ("good", "bad", "last")]

    async with world([fragile]) as sw, sw.worker():
        run = await sw.start("fragile")
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert failed.value.error.step == "bad"
        broken = False
        again = await sw.retry(run.id)
        assert again.id != run.id
        assert await again.result() == ["good", "bad", "last"]
        assert calls == ["good", "bad", "bad", "last"]
        assert keys[0] == keys[1]
        assert (await sw.get_run(run.id)).status == "failed"
        assert (await sw.get_run(again.id)).forked_from == run.id
        with pytest.raises(RunNotFailed):
            await sw.retry(again.id)


async def test_a_retry_goes_on_from_a_failed_child_or_a_wait_that_timed_out(
    world: World, clock: Any
) -> None:
    broken = True
    keys: list[str] = []

    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        if broken:
            raise ValueError("broken")
        return "fine"

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        got = await ctx.run_child("child", "child")
        heard = await ctx.wait_for_event("go", timeout="1h", raise_on_timeout=True)

        def charge() -> None:
            keys.append(ctx.idempotency_key)
            if len(keys) < 3:
                raise OSError("declined")

        await ctx.step("charge", charge, retry=NEVER)
        return [got, heard]

    async with world([parent, child]) as sw, sw.worker():
        first = await sw.start("parent")
        with pytest.raises(RunFailed) as failed:
            await first.result()
        assert failed.value.error.step == "child"
        broken = False
        second = await sw.retry(first.id)
        await until_code(sw, second.id, "event")
        clock.advance("61m")
        with pytest.raises(RunFailed) as failed:
            await second.result()
        assert failed.value.error.step == "go"
        run = await sw.retry(second.id)
        await sw.signal(run.id, "go", 1)
        for _ in range(2):
            with pytest.raises(RunFailed):
                await run.result()
            run = await sw.retry(run.id)
        assert await run.result() == ["fine", 1]
        assert len(set(keys)) == 1


async def test_forks_and_retries_keep_how_the_run_was_started(world: World, clock: Any) -> None:
    @workflow
    async def fails(ctx: Any, input: Any) -> Any:
        await ctx.step("fine", echo, 1)
        raise ValueError("broken")

    async with world([fails]) as sw, sw.worker(lease="1h"):
        origin = await sw.start(
            "fails",
            retention="5d",
            deadline="2h",
            concurrency_key="customer",
            concurrency_limit=3,
            priority=7,
            idempotency_key="k",
        )
        with pytest.raises(RunFailed):
            await origin.result()
        clock.advance("10m")
        for copy in (await sw.retry(origin.id), await sw.fork(origin.id, from_step="fine")):
            assert copy.created
            run = await sw.get_run(copy.id)
            assert run.retention_seconds == 5 * 86_400
            assert run.deadline_at == run.created_at + datetime.timedelta(hours=2)
            assert (run.concurrency_key, run.concurrency_limit) == ("customer", 3)
            assert run.priority == 7
            assert run.idempotency_key is None


async def test_a_fork_may_go_on_with_another_version(world: World) -> None:
    def made(version: int) -> Any:
        @workflow(name="work", version=version)
        async def work(ctx: Any, input: Any) -> Any:
            return [await ctx.step(key, echo, f"{key} of {version}") for key in ("a", "b")]

        return work

    async with world([made(1), made(2)]) as sw, sw.worker():
        origin = await sw.start("work", version=1)
        assert await origin.result() == ["a of 1", "b of 1"]
        same = await sw.fork(origin.id, from_step="b")
        other = await sw.fork(origin.id, from_step="b", version=2)
        assert await same.result() == ["a of 1", "b of 1"]
        assert await other.result() == ["a of 1", "b of 2"]
        assert [(await sw.get_run(run.id)).version for run in (same, other)] == [1, 2]


async def test_a_run_that_waits_can_be_forked_and_goes_on_waiting_itself(world: World) -> None:
    calls: list[str] = []

    @workflow
    async def patient(ctx: Any, input: Any) -> Any:
        await ctx.step("before", lambda: calls.append("before"))
        return await ctx.wait_for_event("go")

    async with world([patient]) as sw, sw.worker():
        origin = await sw.start("patient")
        await until(sw, origin.id, "waiting")
        fork = await sw.fork(origin.id, from_step="go")
        await until(sw, fork.id, "waiting")
        await sw.signal(fork.id, "go", "fork")
        assert await fork.result() == "fork"
        for _ in range(20):
            assert (await sw.get_run(origin.id)).status == "waiting"
        await sw.signal(origin.id, "go", "origin")
        assert await origin.result() == "origin"
    assert calls == ["before"]


@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_retry_remembers_what_may_have_happened(world: World, attempts: int) -> None:
    calls: list[str] = []

    async def charge() -> str:
        calls.append("charge")
        if len(calls) < attempts:
            raise ConnectionError
        if len(calls) == attempts:
            await asyncio.Event().wait()
        return "charged"

    @workflow
    async def pay(ctx: Any, input: Any) -> Any:
        return await ctx.step("charge", charge, once=True, retry=Retry(attempts=2, base="0s"))

    async with world([pay]) as sw, sw.worker():
        run = await sw.start("pay")
        await eventually(lambda: len(calls) == attempts)
        assert await sw.cancel(run.id)
        again = await sw.retry(run.id)
        with pytest.raises(RunFailed, match="unknown"):
            await again.result()
        assert len(calls) == attempts
        # Somebody has looked, and wants it done.
        assert await (await sw.retry(again.id)).result() == "charged"


async def test_a_retry_adopts_children_that_are_still_at_work(world: World) -> None:
    began, mended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    def fail() -> None:
        if not mended.is_set():
            raise ValueError

    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        await ctx.step("work", work)

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        handle = await ctx.start_child("child", "child")
        await ctx.step("fail", fail, retry=Retry(attempts=1))
        await handle.result()

    async with world([parent, child]) as sw, sw.worker():
        run = await sw.start("parent")
        await until(sw, run.id, "failed")
        await began.wait()
        mended.set()
        again = await sw.retry(run.id)
        await until(sw, again.id, "waiting")
        [found] = (await sw.list_runs(definition="child")).items
        assert found.parent_run_id == again.id
        assert await sw.cancel(again.id)
        assert (await sw.get_run(found.id)).status == "cancelled"


class Loose:
    """Like a task group, but one that leaves its tasks alone."""

    create_task = staticmethod(asyncio.create_task)

    async def __aenter__(self) -> Loose:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("how", [Loose, asyncio.TaskGroup])
@pytest.mark.parametrize("meanwhile", ["works", "completes", "fails"])
async def test_a_retry_goes_on_waiting_for_a_child_unless_that_failed(
    world: World, meanwhile: str, how: Any
) -> None:
    go, mended = asyncio.Event(), asyncio.Event()
    calls: list[str] = []

    async def work() -> str:
        calls.append("work")
        await go.wait()
        if meanwhile == "fails" and not mended.is_set():
            raise ValueError
        return "worked"

    async def fail() -> None:
        if not mended.is_set():
            await eventually(lambda: calls)
            raise ValueError

    @workflow
    async def child(ctx: Any, input: Any) -> Any:
        return await ctx.step("work", work, retry=Retry(attempts=1))

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        async with how() as group:
            waited = group.create_task(ctx.run_child("child", "child"))
            await asyncio.sleep(0)
            await ctx.step("fail", fail, retry=Retry(attempts=1))
        return await waited

    async with world([parent, child]) as sw, sw.worker():
        run = await sw.start("parent")
        await until(sw, run.id, "failed")
        [first] = (await sw.list_runs(definition="child")).items
        if meanwhile != "works":
            go.set()
            await until(sw, first.id, "completed", "failed")
        mended.set()
        again = await sw.retry(run.id)
        if meanwhile == "works":
            await until(sw, again.id, "waiting")
            go.set()
        assert await again.result() == "worked"
    assert len(calls) == (2 if meanwhile == "fails" else 1)


async def test_a_retry_knows_that_a_once_step_was_given_up_in_the_middle(world: World) -> None:
    calls: list[str] = []

    async def charge() -> None:
        calls.append("charged")
        await asyncio.Event().wait()

    async def fail() -> None:
        await eventually(lambda: calls)
        raise ValueError

    @workflow
    async def pay(ctx: Any, input: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step("charge", charge, once=True))
            group.create_task(ctx.step("fail", fail, retry=Retry(attempts=1)))

    async with world([pay]) as sw, sw.worker():
        run = await sw.start("pay")
        await until(sw, run.id, "failed")
        again = await sw.retry(run.id)
        with pytest.raises(RunFailed, match="outcome"):
            await again.result()
    assert calls == ["charged"]

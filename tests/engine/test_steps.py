"""Steps: what they return, how they fail, and that a recorded one never runs again."""

from __future__ import annotations

import asyncio
import datetime
import sys
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from stepwell import Retry, RunFailed, workflow
from tests.conftest import World
from tests.engine.support import double, echo, eventually, until

QUICK = Retry(attempts=3, backoff="fixed", base=0, jitter=0)


async def test_steps_run_in_order_and_the_run_has_its_output(world: World) -> None:
    @workflow
    async def chain(ctx: Any, input: Any) -> Any:
        x = await ctx.step("first", double, input["x"])
        return {"x": await ctx.step("second", double, x)}

    async with world([chain]) as sw, sw.worker():
        run = await sw.start("chain", {"x": 3})
        assert run.created
        assert await run.result() == {"x": 12}
        steps = await sw.steps(run.id)
        assert [(s.key, s.kind, s.status, s.attempts, s.output) for s in steps] == [
            ("first", "step", "completed", 1, 6),
            ("second", "step", "completed", 1, 12),
        ]
        record = await sw.get_run(run.id)
        assert (record.status, record.input, record.output) == ("completed", {"x": 3}, {"x": 12})
        assert record.definition == "chain"
        assert record.version == 1
        assert record.attempt == 1
        assert record.error is None
        assert record.created_at <= record.started_at <= record.completed_at


async def test_a_plain_function_is_a_workflow_too(world: World) -> None:
    @workflow(name="plain")
    def plain(ctx: Any, input: Any) -> Any:
        a = ctx.step("sync", echo, 4)
        b = ctx.step("async", double, a)
        c = ctx.step("lambda", lambda: double(b))
        child = ctx.start_child("child", "leaf", {"n": c})
        assert ctx.patched("new-way")
        ctx.emit("seen", {"n": c})
        return [a, b, c, child.result(), ctx.run_child("again", "leaf", {"n": 1}), ctx.cancelled]

    @workflow
    def leaf(ctx: Any, input: Any) -> Any:
        return input["n"]

    async with world([plain, leaf]) as sw, sw.worker():
        run = await sw.start("plain")
        assert await run.result() == [4, 8, 16, 16, 1, False]


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, 0.0, {"a": None}, [[]]])
async def test_empty_values_come_back_exactly(world: World, value: Any) -> None:
    seen = []

    @workflow
    async def hold(ctx: Any, input: Any) -> Any:
        got = await ctx.step("value", echo, value)
        seen.append(got)
        await ctx.wait_for_event("go")
        return {"got": got}

    async with world([hold]) as sw:
        async with sw.worker():
            run = await sw.start("hold", value)
            await until(sw, run.id, "waiting")
        async with sw.worker():  # a new worker replays
            await sw.signal(run.id, "go")
            output = await run.result()
        assert output == {"got": value}
        assert [repr(x) for x in seen] == [repr(value)] * len(seen)
        assert len(seen) >= 2
        assert repr((await sw.get_run(run.id)).input) == repr(value)


async def test_results_are_decoded_from_json_also_the_first_time(world: World) -> None:
    @dataclass
    class Point:
        x: int

    class Struct(msgspec.Struct):
        y: int

    class Model(pydantic.BaseModel):
        z: int
        at: datetime.datetime

    at = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    values: list[Any] = [
        Point(1), Struct(2), Model(z=3, at=at), at, b"ab", (1, 2), {1: 2}, 2**70, "\x00",
    ]  # fmt: skip

    @workflow
    async def kinds(ctx: Any, input: Any) -> Any:
        return [await ctx.step(f"v{i}", echo, value) for i, value in enumerate(values)]

    async with world([kinds]) as sw, sw.worker():
        output = await (await sw.start("kinds")).result()
    assert output == [
        {"x": 1}, {"y": 2}, {"z": 3, "at": "2026-01-02T00:00:00Z"}, "2026-01-02T00:00:00Z",
        "YWI=", [1, 2], {"1": 2}, 2**70, "\x00",
    ]  # fmt: skip


async def test_what_cannot_be_json_fails_the_step_without_a_retry(world: World) -> None:
    calls = []

    def bad() -> Any:
        calls.append(1)
        return object()

    @workflow
    async def unserialisable(ctx: Any, input: Any) -> Any:
        await ctx.step("bad", bad, retry=QUICK)

    @workflow
    async def bad_output(ctx: Any, input: Any) -> Any:
        return {1, object()}

    async with world([unserialisable, bad_output]) as sw, sw.worker():
        with pytest.raises(RunFailed) as failed:
            await (await sw.start("unserialisable")).result()
        assert failed.value.error.type == "result_not_serialisable"
        assert failed.value.error.step == "bad"
        assert calls == [1]
        with pytest.raises(RunFailed) as failed:
            await (await sw.start("bad_output")).result()
        assert failed.value.error.type == "result_not_serialisable"


async def test_a_result_that_is_too_large_is_refused(world: World) -> None:
    @workflow
    async def large(ctx: Any, input: Any) -> Any:
        return await ctx.step("large", echo, "x" * 1_100_000)

    async with world([large]) as sw, sw.worker():
        with pytest.raises(RunFailed) as failed:
            await (await sw.start("large")).result()
        assert failed.value.error.type == "result_too_large"


async def test_repeated_names_are_numbered_in_order_of_call(world: World) -> None:
    @workflow
    async def repeated(ctx: Any, input: Any) -> Any:
        return [await ctx.step("again", echo, i) for i in range(3)]

    async with world([repeated]) as sw, sw.worker():
        run = await sw.start("repeated")
        assert await run.result() == [0, 1, 2]
        assert [s.key for s in await sw.steps(run.id)] == ["again", "again#2", "again#3"]


async def test_an_error_whose_text_is_broken_still_fails_the_run_cleanly(world: World) -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    class Surrogate(Exception):
        pass

    @workflow
    async def broken(ctx: Any, input: Any) -> Any:
        def raise_it() -> None:
            raise Broken if input == 1 else Surrogate("\ud800")

        await ctx.step("it", raise_it, retry=Retry(attempts=1))

    async with world([broken]) as sw, sw.worker():
        for kind in (1, 2):
            with pytest.raises(RunFailed) as failed:
                await (await sw.start("broken", kind)).result()
            assert failed.value.error.type == ("Broken" if kind == 1 else "Surrogate")
            assert failed.value.error.message


async def test_sys_exit_in_a_step_does_not_take_the_worker_along(world: World) -> None:
    @workflow
    async def leaver(ctx: Any, input: Any) -> Any:
        await ctx.step("exit", sys.exit, 3, retry=Retry(attempts=1))

    @workflow
    async def abrupt(ctx: Any, input: Any) -> Any:
        sys.exit(3)

    async with world([leaver, abrupt]) as sw, sw.worker():
        for name in ("leaver", "abrupt"):
            with pytest.raises(RunFailed) as failed:
                await (await sw.start(name)).result()
            assert "sys.exit(3)" in failed.value.error.message


async def test_a_step_in_progress_shows_as_running(world: World) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        await go.wait()

    @workflow
    async def visible(ctx: Any, input: Any) -> Any:
        await ctx.step("work", work)

    async with world([visible]) as sw, sw.worker():
        run = await sw.start("visible")
        await started.wait()
        (step,) = await sw.steps(run.id)
        assert (step.key, step.status, step.completed_at) == ("work", "running", None)
        assert (await sw.explain(run.id)).code == "running"
        go.set()
        await run.result()
        (step,) = await sw.steps(run.id)
        assert step.status == "completed"


async def test_durable_operations_inside_a_step_function_are_refused(world: World) -> None:
    @workflow
    async def nested(ctx: Any, input: Any) -> Any:
        async def inner() -> None:
            await ctx.step("inner", echo, 1)

        await ctx.step("outer", inner)

    @workflow
    def nested_plain(ctx: Any, input: Any) -> Any:
        ctx.step("outer", lambda: ctx.sleep("inner", 1))

    async with world([nested, nested_plain]) as sw, sw.worker():
        for name in ("nested", "nested_plain"):
            with pytest.raises(RunFailed) as failed:
                await (run := await sw.start(name)).result()
            assert failed.value.error.type == "context_misuse"
            # It would go wrong again however often it is tried.
            assert [step.attempts for step in await sw.steps(run.id)] == [1]


async def test_five_hundred_parallel_steps(world: World) -> None:
    running = 0
    most = 0

    async def work(i: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return i

    @workflow
    async def wide(ctx: Any, input: Any) -> Any:
        return await asyncio.gather(*(ctx.step(f"s{i}", work, i) for i in range(500)))

    async with world([wide]) as sw, sw.worker():
        assert await (await sw.start("wide")).result() == list(range(500))
    assert most == 500


async def test_now_stays_the_same_on_replay(world: World, clock: Any) -> None:
    seen: list[list[str]] = []

    @workflow
    async def timed(ctx: Any, input: Any) -> Any:
        times = [ctx.now()]
        await ctx.step("a", echo, 1)
        times.append(ctx.now())
        await asyncio.gather(ctx.step("b", echo, 1), ctx.step("c", echo, 1))
        times.append(ctx.now())
        seen.append([str(t) for t in times])
        await ctx.wait_for_event("go")
        return seen[-1]

    async with world([timed]) as sw:
        async with sw.worker():
            run = await sw.start("timed")
            await until(sw, run.id, "waiting")
        clock.advance("1h")
        async with sw.worker():
            await sw.signal(run.id, "go")
            await run.result()
    await eventually(lambda: len(seen) >= 2)
    assert seen[0] == seen[-1]

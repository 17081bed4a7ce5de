"""What a program sees of an error, what is told of it, and how a retry finds its way back."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import subprocess
from typing import Any

import pytest

from stepwell import Retry, RunFailed, RunTimedOut, StepFailed, StepTimedOut, Stepwell, workflow
from stepwell.errors import InvalidInput, NotOpen, WaitTimedOut
from tests.conftest import World
from tests.engine.support import echo, flowing, until

ONCE = Retry(attempts=1)


class ApiError(Exception):
    """An error that cannot be made from a text alone."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


def _refuse() -> None:
    raise ApiError("refused", status=503)


def _exit_code() -> None:
    raise subprocess.CalledProcessError(3, ["make"])


def _decode() -> None:
    b"\xff".decode()


@pytest.mark.parametrize(
    ("function", "args", "kind"),
    [
        (json.loads, ("not json",), ValueError),
        (_refuse, (), ApiError),
        (_exit_code, (), subprocess.CalledProcessError),
        (_decode, (), UnicodeDecodeError),
    ],
)
async def test_an_error_whose_class_wants_more_than_a_text_can_be_caught_and_replays(
    world: World, function: Any, args: Any, kind: Any
) -> None:
    @workflow
    async def careful(ctx: Any, input: Any) -> Any:
        try:
            await ctx.step("work", function, *args, retry=ONCE)
        except kind as error:
            caught = [isinstance(error, StepFailed), error.error.type, bool(str(error))]
        await ctx.wait_for_event("go")
        return caught

    async with world([careful]) as sw:
        async with sw.worker():
            run = await sw.start("careful")
            await until(sw, run.id, "waiting")
        async with sw.worker():  # which has nothing in memory, and replays
            await sw.signal(run.id, "go")
            assert await run.result() == [True, kind.__name__ if kind is not ValueError else
                                          "JSONDecodeError", True]  # fmt: skip


async def test_a_step_that_timed_out_is_a_timeout_error(world: World, clock: Any) -> None:
    @workflow
    async def slow(ctx: Any, input: Any) -> Any:
        try:
            await ctx.step("wait", asyncio.Event().wait, timeout="1s", retry=ONCE)
        except TimeoutError as error:
            return isinstance(error, StepTimedOut) and error.code == "step_timed_out"

    async with world([slow]) as sw, sw.worker(), flowing(clock):
        assert await (await sw.start("slow")).result() is True


@pytest.mark.parametrize("how", ["from", "during", "group"])
async def test_a_retry_goes_back_to_the_failed_step_behind_another_error(
    world: World, how: str
) -> None:
    calls: list[str] = []
    well = False

    def fetch(name: str) -> str:
        calls.append(name)
        if not well and name != "fine":
            raise ConnectionError(name)
        return name

    @workflow
    async def wrapping(ctx: Any, input: Any) -> Any:
        await ctx.step("fine", fetch, "fine")
        if how == "group":
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(ctx.step(name, fetch, name, retry=ONCE)) for name in "ab"
                ]
            return [task.result() for task in tasks]
        try:
            return [await ctx.step("a", fetch, "a", retry=ONCE)]
        except ConnectionError as error:
            if how == "from":
                raise RuntimeError("could not fetch") from error
            raise RuntimeError("could not fetch")  # noqa: B904 (that is the case at hand)

    async with world([wrapping]) as sw, sw.worker():
        run = await sw.start("wrapping")
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert failed.value.error.step in ("a", "b")
        assert ("ConnectionError" in failed.value.error.message) == (how == "group")
        well = True
        again = await sw.retry(run.id)
        assert await again.result() == (["a", "b"] if how == "group" else ["a"])
    assert calls.count("fine") == 1


async def test_a_failure_tells_its_class_and_is_logged_with_where_it_comes_from(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def boom() -> None:
        raise KeyError("email")

    @workflow
    async def in_step(ctx: Any, input: Any) -> Any:
        await ctx.step("read", boom, retry=ONCE)

    @workflow
    async def in_body(ctx: Any, input: Any) -> Any:
        return input["email"]

    caplog.set_level(logging.WARNING, "stepwell")
    async with world([in_step, in_body]) as sw, sw.worker():
        for name in ("in_step", "in_body"):
            run = await sw.start(name, {})
            with pytest.raises(RunFailed, match="KeyError: 'email'"):
                await run.result()
            assert "KeyError: 'email'" in (await sw.explain(run.id)).message
    (step, body) = [record.getMessage() for record in caplog.records]
    assert "in boom" in step
    assert "attempt 1 of step 'read' failed." in step
    assert "in in_body" in body


async def test_a_run_past_its_deadline_is_not_begun(world: World, clock: Any) -> None:
    calls: list[int] = []

    @workflow
    async def late(ctx: Any, input: Any) -> Any:
        calls.append(1)
        return await ctx.step("work", echo, 1)

    async with world([late]) as sw:
        runs = [await sw.start("late", deadline=0), await sw.start("late", delay=5, deadline=3)]
        clock.advance("10s")
        async with sw.worker(), flowing(clock):
            runs.append(await sw.start("late", deadline=0))
            for run in runs:
                with pytest.raises(RunTimedOut):
                    await run.result()
    assert calls == []


async def test_a_stepwell_that_is_not_open_says_so(world: World, store_url: str) -> None:
    @workflow
    async def idle(ctx: Any, input: Any) -> Any:
        await ctx.wait_for_event("never")

    closed = Stepwell(store_url, workflows=[idle])
    with pytest.raises(NotOpen, match="async with"):
        await closed.list_runs()
    with pytest.raises(NotOpen):
        await closed.start("idle")
    with pytest.raises(NotOpen):
        async with closed.worker():
            pass
    async with world([idle]) as sw:
        run = await sw.start("idle")
    with pytest.raises(NotOpen):
        await run.result(timeout=1)
    with pytest.raises(NotOpen):
        await sw.get_run(run.id)
    with pytest.raises(NotOpen, match="opens once"):
        async with sw:
            pass


def test_a_function_that_yields_is_no_workflow() -> None:
    async def one_by_one(ctx: Any, input: Any) -> Any:
        yield 1

    def plainly(ctx: Any, input: Any) -> Any:
        yield 1

    class Callable:
        async def __call__(self, ctx: Any, input: Any) -> Any:
            yield 1

    for function in (one_by_one, plainly, functools.partial(one_by_one), Callable()):
        with pytest.raises(InvalidInput, match="has `yield`"):
            workflow(name="x")(function)


async def test_wrong_arguments_get_named_errors(world: World) -> None:
    @workflow
    async def idle(ctx: Any, input: Any) -> Any:
        await ctx.wait_for_event("never")

    @workflow
    async def wrong(ctx: Any, input: Any) -> Any:
        if input == "retry":
            await ctx.step("a", echo, 1, retry=3)
        elif input == "match":
            await ctx.wait_for_event("a", match="b")
        else:
            await ctx.run_child("a", "idle", colour="red")

    with pytest.raises(InvalidInput, match="a list"):
        Stepwell("sqlite:///x.db", workflows=idle)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"\(ctx, input\)"):
        workflow(lambda ctx: None)
    async with world([idle, wrong]) as sw, sw.worker():
        run = await sw.start("idle")
        for call in (
            lambda: sw.list_runs(since="1h"),
            lambda: sw.list_runs(input=[1]),
            lambda: sw.list_runs(input={"a": object()}),
            lambda: sw.get_run(run),
            lambda: sw.cancel(run),
            lambda: sw.signal(run, "a"),
            lambda: sw.start("idle", colour="red"),
        ):
            with pytest.raises(InvalidInput):
                await call()
        for what in ("retry", "match", "option"):
            with pytest.raises(RunFailed) as failed:
                await (await sw.start("wrong", what)).result()
            assert failed.value.error.type == "invalid_input"


async def test_an_error_whose_class_has_a_broken_name_fails_its_run(world: World) -> None:
    class Broken(Exception):
        pass

    Broken.__qualname__ = "Broken\udcff"

    @workflow
    async def fails(ctx: Any, input: Any) -> Any:
        raise Broken("as it is")

    async with world([fails]) as sw, sw.worker():
        with pytest.raises(RunFailed, match="as it is"):
            await (await sw.start("fails")).result()


class Unspeakable(Exception):
    """An error that cannot be looked at closely."""

    @property
    def __context__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("do not ask")


@pytest.mark.parametrize(
    "error", [Unspeakable("broken"), WaitTimedOut("odd", step=object())], ids=["context", "step"]
)
async def test_an_error_that_cannot_be_described_still_fails_its_run(
    world: World, error: Exception
) -> None:
    @workflow
    async def odd(ctx: Any, input: Any) -> Any:
        raise error

    async with world([odd]) as sw, sw.worker():
        with pytest.raises(RunFailed, match=r"broken|odd"):
            await (await sw.start("odd")).result()

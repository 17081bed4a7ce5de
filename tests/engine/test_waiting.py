"""Sleeping, signals, events: what a run waits for, and that nothing it waits for is lost."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from stepwell import RunFailed, RunNotFound, WaitTimedOut, workflow
from stepwell.errors import InvalidInput
from stepwell.kernel.clock import to_datetime
from tests.conftest import World
from tests.engine.support import eventually, until


@workflow
async def listen(ctx: Any, input: Any) -> Any:
    options = dict(input or {})
    return await ctx.wait_for_event("inbox", options.pop("event", None), **options)


async def test_a_sleeping_run_survives_a_restart(world: World, clock: Any) -> None:
    counts: dict[str, int] = {}

    def count(name: str) -> None:
        counts[name] = counts.get(name, 0) + 1

    @workflow
    async def sleeper(ctx: Any, input: Any) -> Any:
        await ctx.step("before", count, "before")
        await ctx.sleep("nap", "2d")
        await ctx.step("after", count, "after")
        return "rested"

    async with world([sleeper]) as sw, sw.worker():
        run = await sw.start("sleeper")
        await until(sw, run.id, "waiting")
        explanation = await sw.explain(run.id)
        assert explanation.code == "sleep"
        assert explanation.details["step"] == "nap"
    clock.advance("1d")
    async with world([sleeper]) as sw:
        async with sw.worker():
            for _ in range(20):  # ample time to go on, were it due
                assert (await sw.get_run(run.id)).status == "waiting"
            assert counts == {"before": 1}
        clock.advance("1d")
        async with sw.worker():
            assert await sw.result(run.id) == "rested"
    assert counts == {"before": 1, "after": 1}


async def test_sleep_until_a_moment_and_one_in_the_past(world: World, clock: Any) -> None:
    @workflow
    async def until_then(ctx: Any, input: Any) -> Any:
        await ctx.sleep_until("past", datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC))
        await ctx.sleep_until("soon", ctx.now() + datetime.timedelta(hours=1))
        await ctx.sleep("zero", 0)
        return str(ctx.now())

    async with world([until_then]) as sw, sw.worker():
        run = await sw.start("until_then")
        start = to_datetime(clock.now())
        await until(sw, run.id, "waiting")
        while (await sw.explain(run.id)).details.get("step") != "soon":
            await asyncio.sleep(0.001)
        clock.advance("1h")
        assert await run.result() == str(start + datetime.timedelta(hours=1))


async def test_a_signal_ends_a_wait(world: World) -> None:
    async with world([listen]) as sw, sw.worker():
        run = await sw.start("listen")
        await until(sw, run.id, "waiting")
        explanation = await sw.explain(run.id)
        assert explanation.code == "event"
        assert explanation.details["event"] == "inbox"
        assert await sw.signal(run.id, "inbox", {"n": 1})
        assert await run.result() == {"n": 1}
        assert not await sw.signal(run.id, "inbox", {"n": 2})


async def test_signals_before_the_wait_are_kept_and_come_in_order(world: World) -> None:
    @workflow
    async def two(ctx: Any, input: Any) -> Any:
        return [await ctx.wait_for_event("inbox"), await ctx.wait_for_event("inbox")]

    async with world([two]) as sw:
        run = await sw.start("two")
        await sw.signal(run.id, "inbox", 1)
        await sw.signal(run.id, "inbox", 2)
        await sw.signal(run.id, "inbox", 3)
        async with sw.worker():
            assert await run.result() == [1, 2]


async def test_a_signal_that_does_not_match_is_left_for_a_wait_it_does(world: World) -> None:
    @workflow
    async def choosy(ctx: Any, input: Any) -> Any:
        first = await ctx.wait_for_event("a", "order", match={"id": 2, "items": ["x"]})
        second = await ctx.wait_for_event("b", "order")
        return [first, second]

    async with world([choosy]) as sw, sw.worker():
        run = await sw.start("choosy")
        await until(sw, run.id, "waiting")
        await sw.signal(run.id, "order", {"id": 1})
        await sw.signal(run.id, "order", {"id": 2, "items": ["y"]})
        await sw.signal(run.id, "other", {"id": 2})
        for _ in range(20):  # ample time to go on, were it woken
            assert (await sw.get_run(run.id)).status == "waiting"
        assert (await sw.explain(run.id)).details["step"] == "a"
        good = {"id": 2, "items": ["x", "y"], "more": True}
        await sw.signal(run.id, "order", good)
        assert await run.result() == [good, {"id": 1}]


async def test_a_payload_of_null_is_not_a_timeout(world: World) -> None:
    async with world([listen]) as sw, sw.worker():
        run = await sw.start("listen", {"raise_on_timeout": True})
        await until(sw, run.id, "waiting")
        await sw.signal(run.id, "inbox", None)
        assert await run.result() is None
        assert (await sw.steps(run.id))[0].status == "completed"


async def test_a_timeout_is_a_durable_result(world: World, clock: Any) -> None:
    seen = []

    @workflow
    async def patient(ctx: Any, input: Any) -> Any:
        got = await ctx.wait_for_event("never", timeout="1h")
        seen.append(got)
        again = await ctx.wait_for_event("never-more")
        return [got, again]

    async with world([patient]) as sw:
        async with sw.worker():
            run = await sw.start("patient")
            await until(sw, run.id, "waiting")
            clock.advance("61m")
            await eventually(lambda: seen)
            while (await sw.explain(run.id)).details.get("step") != "never-more":
                await asyncio.sleep(0.001)
        # Too late: the timeout has been recorded, and stays.
        await sw.signal(run.id, "never", "late")
        await sw.signal(run.id, "never-more", "x")
        async with sw.worker():
            assert await run.result() == [None, "x"]
        assert (await sw.steps(run.id))[0].status == "timed_out"


async def test_a_timeout_may_raise(world: World, clock: Any) -> None:
    @workflow
    async def strict(ctx: Any, input: Any) -> Any:
        with pytest.raises(WaitTimedOut):
            await ctx.wait_for_event("a", timeout="1s", raise_on_timeout=True)
        await ctx.wait_for_event("b", timeout="1s", raise_on_timeout=True)

    async with world([strict]) as sw, sw.worker():
        run = await sw.start("strict")
        for key in ("a", "b"):
            while (await sw.explain(run.id)).details.get("step") != key:
                await asyncio.sleep(0.001)
            clock.advance("2s")
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert failed.value.error.type == "wait_timed_out"


async def test_an_event_reaches_every_wait_it_matches_and_no_other(world: World) -> None:
    async with world([listen]) as sw, sw.worker():
        runs = [
            await sw.start("listen", {"event": "paid", "match": {"order": {"id": n % 2}}})
            for n in range(4)
        ]
        open_to_all = await sw.start("listen", {"event": "paid"})
        other_type = await sw.start("listen", {"event": "refunded"})
        for run in (*runs, open_to_all, other_type):
            await until(sw, run.id, "waiting")
        assert await sw.emit("paid", {"order": {"id": 1, "total": 5}})
        payload = {"order": {"id": 1, "total": 5}}
        assert await runs[1].result() == payload
        assert await runs[3].result() == payload
        assert await open_to_all.result() == payload
        for run in (runs[0], runs[2], other_type):
            assert (await sw.get_run(run.id)).status == "waiting"


async def test_earlier_events_are_seen_only_with_lookback(world: World, clock: Any) -> None:
    async with world([listen]) as sw, sw.worker():
        await sw.emit("news", {"n": 1})
        clock.advance("10m")
        await sw.emit("news", {"n": 2})
        clock.advance("1m")
        plain = await sw.start("listen", {"event": "news"})
        recent = await sw.start("listen", {"event": "news", "lookback": "5m"})
        matched = await sw.start("listen", {"event": "news", "lookback": "1h", "match": {"n": 1}})
        assert await recent.result() == {"n": 2}
        assert await matched.result() == {"n": 1}
        await until(sw, plain.id, "waiting")
        await sw.emit("news", {"n": 3})
        assert await plain.result() == {"n": 3}


async def test_of_events_sent_once_the_first_wins(world: World) -> None:
    async with world([listen]) as sw, sw.worker():
        assert await sw.emit("done", 1, key="a", once=True)
        assert not await sw.emit("done", 2, key="a", once=True)
        assert await sw.emit("done", 3, key="b", once=True)
        assert await sw.emit("done", 4, key="a")
        run = await sw.start("listen", {"event": "done", "lookback": "1h"})
        assert await run.result() == 1


async def test_an_event_emitted_by_a_run_wakes_another(world: World) -> None:
    @workflow
    async def speak(ctx: Any, input: Any) -> Any:
        await ctx.emit("spoken", {"by": ctx.run_id})
        await ctx.emit("spoken", {"by": ctx.run_id})
        return "done"

    async with world([speak, listen]) as sw, sw.worker():
        listener = await sw.start("listen", {"event": "spoken"})
        await until(sw, listener.id, "waiting")
        speaker = await sw.start("speak")
        assert await listener.result() == {"by": speaker.id}
        assert await speaker.result() == "done"
        assert [s.key for s in await sw.steps(speaker.id)] == ["emit:spoken", "emit:spoken#2"]


async def test_emit_against_wait_loses_nothing(world: World) -> None:
    """Runs register while events of the same name pour in; each must get the next one."""
    async with world([listen]) as sw, sw.worker():
        runs = [await sw.start("listen", {"event": "tick"}) for _ in range(60)]
        ended = asyncio.gather(*(run.result() for run in runs))
        while not ended.done():
            await sw.emit("tick", 1)
        assert await ended == [1] * 60


async def test_a_signal_to_an_unknown_run_is_an_error(world: World) -> None:
    async with world([listen]) as sw:
        for call in (sw.signal("nope", "x"), sw.cancel("nope"), sw.get_run("nope"),
                     sw.steps("nope"), sw.explain("nope"), sw.result("nope"),
                     sw.retry("nope"), sw.fork("nope", from_step="x")):  # fmt: skip
            with pytest.raises(RunNotFound) as missing:
                await call
            assert missing.value.code == "run_not_found"


@pytest.mark.parametrize(
    "name", ["it's", "back\\slash", "\\'; DROP TABLE runs; --", "$1 %s {x}", "grün", "x" * 199]
)
async def test_an_event_of_any_name_ends_its_wait(world: World, name: str) -> None:
    async with world([listen]) as sw, sw.worker():
        run = await sw.start("listen", {"event": name})
        other = await sw.start("listen", {"event": name + "'"})
        await until(sw, run.id, "waiting")
        await until(sw, other.id, "waiting")
        await sw.emit(name, 1)
        assert await run.result() == 1
        assert (await sw.get_run(other.id)).status == "waiting"


async def test_an_event_whose_name_no_store_can_keep_is_refused(world: World) -> None:
    async with world([listen]) as sw:
        for name in ("a\0b", "\ud800", ""):
            with pytest.raises(InvalidInput):
                await sw.emit(name, 1)
        assert await sw.emit("fine", 1)

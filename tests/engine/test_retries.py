"""Failing steps: retries, timeouts, and outcomes nobody knows."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from stepwell import NonRetryable, Retry, RunFailed, StepFailed, workflow
from stepwell.testing.crash import vanish
from tests.conftest import World
from tests.engine.support import eventually, until, until_code

LEASE = "15s"
QUICK = Retry(attempts=3, backoff="fixed", base=0, jitter=0)


async def test_a_failing_step_is_tried_again_and_its_attempts_are_kept(world: World) -> None:
    seen: list[tuple[int, str]] = []

    @workflow
    async def flaky(ctx: Any, input: Any) -> Any:
        def work() -> str:
            seen.append((ctx.attempt, ctx.idempotency_key))
            if len(seen) < 3:
                raise ValueError(f"no {len(seen)}")
            return "yes"

        assert ctx.attempt == 1
        return await ctx.step("work", work, retry=QUICK)

    async with world([flaky]) as sw, sw.worker():
        run = await sw.start("flaky")
        assert await run.result() == "yes"
        assert [attempt for attempt, _ in seen] == [1, 2, 3]
        assert len({key for _, key in seen}) == 1
        (step,) = await sw.steps(run.id)
        assert step.attempts == 3
        assert [f.error.message for f in step.failures] == ["no 1", "no 2"]


async def test_exhausted_retries_are_recorded_and_can_be_caught_again_and_again(
    world: World,
) -> None:
    caught: list[tuple[str, bool, str]] = []
    calls = []

    def boom() -> None:
        calls.append(1)
        raise KeyError("boom")

    @workflow
    async def catching(ctx: Any, input: Any) -> Any:
        try:
            await ctx.step("boom", boom, retry=QUICK)
        except KeyError as error:
            caught.append((type(error).__name__, isinstance(error, StepFailed), str(error)))
        await ctx.wait_for_event("go")
        return "fine"

    async with world([catching]) as sw:
        async with sw.worker():
            run = await sw.start("catching")
            await until_code(sw, run.id, "event")
        async with sw.worker():
            await sw.signal(run.id, "go")
            assert await run.result() == "fine"
        assert len(calls) == 3
        assert len(caught) >= 2
        assert len(set(caught)) == 1
        assert caught[0] == ("KeyError", True, "'boom'")
        failed = (await sw.steps(run.id))[0]
        assert (failed.status, failed.error.type) == ("failed", "KeyError")


async def test_policies_decide_what_is_tried_again(world: World) -> None:
    calls: dict[str, int] = {}

    def fail(name: str, error: Exception) -> None:
        calls[name] = calls.get(name, 0) + 1
        raise error

    @workflow(retry=QUICK)
    async def policies(ctx: Any, input: Any) -> Any:
        for name, error, retry in [
            ("never", NonRetryable("stop"), QUICK),
            ("listed", ValueError(), Retry(attempts=2, base=0, retry_on=(ValueError,))),
            ("unlisted", TypeError(), Retry(attempts=2, base=0, retry_on=(ValueError,))),
            ("given-up", TypeError(), Retry(attempts=2, base=0, give_up_on=(TypeError,))),
            ("default", TypeError(), None),
        ]:
            with pytest.raises(StepFailed):
                await ctx.step(name, fail, name, error, retry=retry)

    async with world([policies]) as sw, sw.worker():
        await (await sw.start("policies")).result()
    assert calls == {"never": 1, "listed": 2, "unlisted": 1, "given-up": 1, "default": 3}


async def test_a_long_backoff_parks_the_run_and_attempts_survive_a_restart(
    world: World, clock: Any
) -> None:
    attempts = []

    @workflow
    async def patient(ctx: Any, input: Any) -> Any:
        def work() -> int:
            attempts.append(ctx.attempt)
            if ctx.attempt < 3:
                raise OSError("not yet")
            return ctx.attempt

        return await ctx.step("work", work, retry=Retry(attempts=3, base="10m", max="1h"))

    async with world([patient]) as sw:
        run = await sw.start("patient")
        for _ in range(2):
            async with sw.worker():
                waiting = await until(sw, run.id, "waiting")
                assert waiting.error is None
                explanation = await sw.explain(run.id)
                assert explanation.code == "retry"
            clock.advance("30m")
        async with sw.worker():
            assert await run.result() == 3
        assert attempts == [1, 2, 3]
        assert (await sw.get_run(run.id)).attempt == 1


async def test_a_step_that_takes_too_long_is_stopped(world: World, clock: Any) -> None:
    started = asyncio.Event()

    async def slow() -> None:
        started.set()
        await asyncio.Event().wait()

    @workflow
    async def limited(ctx: Any, input: Any) -> Any:
        await ctx.step("slow", slow, timeout="10s", retry=Retry(attempts=1))

    async with world([limited]) as sw, sw.worker():
        run = await sw.start("limited")
        await started.wait()
        clock.advance("11s")
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert failed.value.error.type == "step_timed_out"


async def test_once_fails_asks_or_retries_when_the_outcome_is_unknown(
    world: World, clock: Any
) -> None:
    executions: list[str] = []
    interrupted = asyncio.Event()

    async def charge(how: str) -> str:
        executions.append(how)
        if executions.count(how) == 1:
            if len(executions) == 4:
                interrupted.set()
            await asyncio.Event().wait()
        return f"charged {how}"

    @workflow
    async def pay(ctx: Any, input: Any) -> Any:
        return await ctx.step("charge", charge, input["id"], once=True, on_unknown=input["how"])

    async with world([pay]) as sw:
        hows = {"fail": "fail", "retry": "retry", "ask-retry": "ask", "ask-done": "ask"}
        runs = {}
        async with sw.worker() as worker:
            for name, how in hows.items():
                runs[name] = await sw.start("pay", {"id": name, "how": how})
            await interrupted.wait()
            vanish(worker)
        clock.advance(LEASE)
        async with sw.worker():
            with pytest.raises(RunFailed) as failed:
                await runs["fail"].result()
            assert failed.value.error.type == "outcome_unknown"
            assert await runs["retry"].result() == "charged retry"
            for name in ("ask-retry", "ask-done"):
                await until(sw, runs[name].id, "waiting")
                assert (await sw.explain(runs[name].id)).code == "unknown"
            await sw.signal(runs["ask-retry"].id, "resolve:charge", {"action": "retry"})
            done = {"action": "complete", "output": "by hand"}
            await sw.signal(runs["ask-done"].id, "resolve:charge", done)
            assert await runs["ask-retry"].result() == "charged ask-retry"
            assert await runs["ask-done"].result() == "by hand"
    assert {name: executions.count(name) for name in hows} == {
        "fail": 1, "retry": 2, "ask-retry": 2, "ask-done": 1,
    }  # fmt: skip


async def test_a_cancellation_from_within_fails_the_step_and_the_run_like_any_error(
    world: World,
) -> None:
    calls = []

    async def cancels_its_own() -> None:
        calls.append(1)
        task = asyncio.create_task(asyncio.sleep(10))
        await asyncio.sleep(0)
        task.cancel()
        await task

    @workflow
    async def in_step(ctx: Any, input: Any) -> Any:
        await ctx.step("odd", cancels_its_own, retry=Retry(attempts=2, base=0))

    @workflow
    async def in_body(ctx: Any, input: Any) -> Any:
        await cancels_its_own()

    async with world([in_step, in_body]) as sw, sw.worker():
        with pytest.raises(RunFailed) as failed:
            await (await sw.start("in_step")).result()
        assert failed.value.error.type == "CancelledFromWithin"
        assert len(calls) == 2
        with pytest.raises(RunFailed) as failed:
            await (await sw.start("in_body")).result()
        assert failed.value.error.type == "CancelledError"


async def test_once_writes_its_intent_down_before_every_attempt(world: World, clock: Any) -> None:
    entered = asyncio.Event()
    calls: list[int] = []

    @workflow
    async def pay(ctx: Any, input: Any) -> Any:
        async def charge() -> None:
            calls.append(ctx.attempt)
            if ctx.attempt == 1:
                raise OSError("declined")
            entered.set()
            await asyncio.Event().wait()

        await ctx.step("charge", charge, once=True, retry=QUICK)

    async with world([pay]) as sw:
        async with sw.worker() as worker:
            run = await sw.start("pay")
            await entered.wait()
            vanish(worker)
        clock.advance(LEASE)
        async with sw.worker():
            with pytest.raises(RunFailed) as failed:
                await run.result()
        assert failed.value.error.type == "outcome_unknown"
        assert calls == [1, 2]


async def asked(world: World, clock: Any, answers: list[Any]) -> tuple[Any, int]:
    """A run of a once-step that was interrupted, after these answers; how often it executed."""
    entered = asyncio.Event()
    executions: list[int] = []

    async def charge() -> str:
        executions.append(1)
        entered.set()
        if len(executions) == 1:
            await asyncio.Event().wait()
        return "charged"

    @workflow
    async def pay(ctx: Any, input: Any) -> Any:
        return await ctx.step("charge", charge, once=True, on_unknown="ask")

    async with world([pay]) as sw:
        async with sw.worker() as worker:
            run = await sw.start("pay")
            await entered.wait()
            vanish(worker)
        clock.advance(LEASE)
        async with sw.worker():
            for answer in answers:
                await until(sw, run.id, "waiting")
                await until_code(sw, run.id, "unknown")
                await sw.signal(run.id, "resolve:charge", answer)
            await until(sw, run.id, "completed", "failed")
            return await sw.get_run(run.id), len(executions)


@pytest.mark.parametrize("nonsense", ["maybe", None, {"action": "perhaps"}, ["retry"]])
async def test_an_answer_that_resolves_nothing_is_asked_for_again(
    world: World, clock: Any, caplog: pytest.LogCaptureFixture, nonsense: Any
) -> None:
    run, executions = await asked(world, clock, [nonsense, {"output": {"by": "hand"}}])
    assert (run.status, run.output, executions) == ("completed", {"by": "hand"}, 1)
    assert [log.message for log in caplog.records if "does not resolve step" in log.message]


async def test_an_unknown_outcome_can_be_resolved_as_failed(world: World, clock: Any) -> None:
    run, executions = await asked(world, clock, [{"action": "fail"}])
    assert (run.status, run.error.type, executions) == ("failed", "outcome_unknown", 1)
    assert "resolved as failed" in run.error.message


async def test_an_output_of_null_resolves_too(world: World, clock: Any) -> None:
    run, executions = await asked(world, clock, [{"output": None}])
    assert (run.status, run.output, executions) == ("completed", None, 1)


@pytest.mark.parametrize("on_unknown", ["fail", "ask", "retry"])
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_timeout_of_a_once_step_is_an_unknown_outcome(
    world: World, clock: Any, on_unknown: str, plain: bool
) -> None:
    entered: list[int] = []
    go = threading.Event()

    def in_thread() -> str:
        entered.append(1)
        if len(entered) == 1:
            go.wait()
        return "charged"

    async def in_loop() -> str:
        entered.append(1)
        if len(entered) == 1:
            await asyncio.Event().wait()
        return "charged"

    @workflow
    async def pay(ctx: Any, input: Any) -> Any:
        charge = in_thread if plain else in_loop
        return await ctx.step(
            "charge", charge, once=True, on_unknown=on_unknown, timeout="10s", retry=QUICK
        )

    async with world([pay]) as sw, sw.worker():
        run = await sw.start("pay")
        await eventually(lambda: entered)
        clock.advance("11s")
        try:
            if on_unknown == "fail":
                with pytest.raises(RunFailed) as failed:
                    await run.result()
                assert failed.value.error.type == "outcome_unknown"
                assert "timeout" in failed.value.error.message
            elif on_unknown == "ask":
                await until_code(sw, run.id, "unknown")
                await sw.signal(run.id, "resolve:charge", {"output": "by hand"})
                assert await run.result() == "by hand"
            else:
                assert await run.result() == "charged"
        finally:
            go.set()
    assert len(entered) == (2 if on_unknown == "retry" else 1)


async def test_what_a_run_gave_up_is_not_begun_by_its_retry(world: World) -> None:
    begun = asyncio.Event()
    broken, calls = True, 0

    async def slow() -> None:
        nonlocal calls
        calls += 1
        begun.set()
        await asyncio.Event().wait()

    async def fast() -> str:
        await begun.wait()
        return "fast"

    def work() -> str:
        if broken:
            raise NonRetryable("broken")
        return "fine"

    @workflow
    async def race(ctx: Any, input: Any) -> Any:
        losing = asyncio.create_task(ctx.step("slow", slow))
        await ctx.step("fast", fast)
        losing.cancel()
        await asyncio.wait([losing])
        return await ctx.step("work", work)

    async with world([race]) as sw, sw.worker():
        run = await sw.start("race")
        await until(sw, run.id, "failed")
        broken = False
        assert await (await sw.retry(run.id)).result() == "fine"
    assert calls == 1

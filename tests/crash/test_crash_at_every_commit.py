"""Stop the process after its 1st, 2nd … nth commit, start again, compare with a calm run."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from stepwell import Stepwell, workflow
from stepwell.catalog import store_for
from stepwell.kernel.retry import Retry
from stepwell.testing.clock import FakeClock
from tests.crash.process import doomed
from tests.engine.support import flowing

QUICK = Retry(attempts=3, backoff="fixed", base="0.1s", jitter=0)
executed: Counter[str] = Counter()


async def act(ctx: Any, name: str, value: Any = None, failures: int = 0) -> Any:
    async def work() -> Any:
        executed[f"{ctx.run_id}/{name}"] += 1
        if ctx.attempt <= failures:
            raise ValueError(name)
        return value

    return await ctx.step(name, work, retry=QUICK)


@workflow
async def steps_and_retries(ctx: Any, input: Any) -> Any:
    total = [await act(ctx, f"s{n}", n) for n in range(3)]
    at = str(ctx.now())
    recorded = await act(ctx, "at", at)
    total.append(await act(ctx, "flaky", 9, failures=1))
    try:
        await act(ctx, "hopeless", failures=5)
    except ValueError as error:
        total.append(str(error))
    return [total, recorded == at]


@workflow
async def waiting(ctx: Any, input: Any) -> Any:
    await ctx.sleep("nap", "0.5s")
    first = await ctx.wait_for_event("mail", match={"n": 1})
    nothing = await ctx.wait_for_event("silence", timeout="0.5s")
    await ctx.emit("read", {"by": "me"}, key="k", once=True)
    return [first, nothing, await ctx.patched("change"), await act(ctx, "end", "end")]


@workflow
async def family(ctx: Any, input: Any) -> Any:
    handle = await ctx.start_child("loose", "child", 1)
    got = await ctx.run_child("awaited", "child", 2)
    return [got, await handle.result(), await act(ctx, "end", "end")]


@workflow
async def child(ctx: Any, input: Any) -> Any:
    return [input, await act(ctx, "inner", "x")]


@workflow
async def gathered(ctx: Any, input: Any) -> Any:
    order: list[Any] = []

    async def branch(name: str) -> None:
        order.append(await act(ctx, name, name))

    await asyncio.gather(branch("a"), branch("b"), ctx.sleep("nap", "0.2s"), branch("c"))
    tasks = {
        asyncio.create_task(ctx.sleep("timer", "0.3s")): "timer",
        asyncio.create_task(ctx.wait_for_event("never")): "never",
    }
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    same = await act(ctx, "order", order)
    return [same == order, sorted(order), [tasks[t] for t in done]]


@workflow(max_concurrent_runs=1)
def plain(ctx: Any, input: Any) -> Any:
    a = ctx.step("a", lambda: executed.update([f"{ctx.run_id}/a"]))
    ctx.sleep("nap", "0.2s")
    return [a, ctx.step("b", lambda: executed.update([f"{ctx.run_id}/b"]) or "b")]


ALL = [steps_and_retries, waiting, family, child, gathered, plain]
EXPECTED: dict[str, Any] = {
    "steps_and_retries": [[0, 1, 2, 9, "hopeless"], True],
    "waiting": [{"n": 1}, None, True, "end"],
    "family": [[2, "x"], [1, "x"], "end"],
    "gathered": [True, ["a", "b", "c"], ["timer"]],
    "plain": [None, "b"],
}


async def start(sw: Stepwell, name: str, key: str) -> str:
    run = await sw.start(name, {"n": 1}, idempotency_key=key)
    if name == "waiting":
        await sw.signal(run.id, "mail", {"n": 1})
    return run.id


@pytest.mark.parametrize("name", list(EXPECTED))
@pytest.mark.parametrize("lose", [False, True], ids=["before", "unacknowledged"])
async def test_a_crash_after_any_commit_changes_nothing(
    store_url: str, clock: FakeClock, name: str, lose: bool
) -> None:
    after = 0
    crashed = True
    while crashed:
        after += 1
        executed.clear()
        async with Stepwell(workflows=ALL, store=store_for(store_url, clock)) as calm:
            run_id = await start(calm, name, f"{name}-{after}")
            other = Stepwell(workflows=ALL, store=store_for(store_url, clock))
            crashed = await doomed(other, clock, run_id, after, lose)
            async with calm.worker(lease="1h"), flowing(clock, "0.1s"):
                output = await calm.result(run_id)
            assert output == EXPECTED[name], f"after commit {after}"
            await _check_journal(calm, run_id, after)
    assert after > 3, "the program was never interrupted"


async def _check_journal(sw: Stepwell, run_id: str, after: int) -> None:
    journal = await sw.steps(run_id)
    assert {step.status for step in journal} <= {"completed", "failed", "timed_out", "skipped"}
    for step in journal:
        if step.kind == "step":
            times = executed[f"{run_id}/{step.key}"]
            # One more than recorded at most: what was in flight when the process stopped.
            assert step.attempts <= times <= step.attempts + 1, (step.key, times, after)

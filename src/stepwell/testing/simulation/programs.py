"""What simulated runs do: every operation, with outcomes that do not depend on any fault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from stepwell.errors import NonRetryable, RunFailed
from stepwell.kernel.retry import Retry
from stepwell.sdk.workflow import Workflow, workflow
from stepwell.testing.simulation.weaving import Traces, make_weave

Perform = Callable[[str, str, int], Any]
QUICK = Retry(attempts=4, backoff="fixed", base="0.2s", jitter=0)


def make_programs(perform: Perform, mended: Callable[[], bool], traces: Traces) -> list[Workflow]:
    """The workflows of a simulation; `perform(run, step, attempt)` is told of every execution.

    `mended` says whether what makes UNLUCKY runs fail is over; `traces` is told what `weave` sees.
    """

    async def act(ctx: Any, name: str, value: Any = None, fail_until: int = 0) -> Any:
        async def work() -> Any:
            await perform(ctx.run_id, ctx.idempotency_key.rpartition(":")[2], ctx.attempt)
            if ctx.attempt <= fail_until:
                raise ValueError(f"attempt {ctx.attempt} fails")
            return value

        return await ctx.step(name, work, retry=QUICK)

    async def luck(ctx: Any) -> None:
        async def try_it() -> None:
            await perform(ctx.run_id, "luck", ctx.attempt)
            if not mended():
                raise NonRetryable("bad luck")

        await ctx.step("luck", try_it)

    @workflow
    async def steps(ctx: Any, input: Any) -> Any:
        total = 0
        for _ in range(3):
            total += await act(ctx, "add", input["n"])
        begun = str(ctx.now())
        one, recorded = await act(ctx, "flaky", [1, begun], fail_until=2)
        total += one
        try:
            await act(ctx, "hopeless", fail_until=9)
        except ValueError:
            total += 100
        return {"total": total, "stable": recorded == begun}

    @workflow
    async def sleeper(ctx: Any, input: Any) -> Any:
        await act(ctx, "before")
        await ctx.sleep("short", "0.3s")
        await act(ctx, "between")
        await ctx.sleep("long", "20s")
        return await act(ctx, "after", "rested")

    @workflow
    async def listener(ctx: Any, input: Any) -> Any:
        first = await ctx.wait_for_event("mail", match={"n": 1})
        await act(ctx, "read")
        second = await ctx.wait_for_event("mail", match={"n": 2}, timeout="1h")
        nothing = await ctx.wait_for_event("silence", timeout="3s")
        return [first["n"], second["n"], nothing]

    @workflow
    async def fan(ctx: Any, input: Any) -> Any:
        order: list[int] = []

        async def branch(i: int) -> int:
            got: int = await act(ctx, f"branch-{i}", i)
            order.append(got)
            return got

        values = await asyncio.gather(*(branch(i) for i in range(4)), ctx.sleep("nap", "1s"))
        recorded = await act(ctx, "order", list(order))
        return [sum(v for v in values if v), recorded == order]

    @workflow
    async def race(ctx: Any, input: Any) -> Any:
        tasks = {
            asyncio.create_task(ctx.sleep("timer", "2s")): "timer",
            asyncio.create_task(ctx.wait_for_event("never")): "event",
        }
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        winner = sorted(tasks[task] for task in done)
        seen = await act(ctx, "winner", winner)
        return [winner, seen]

    @workflow
    async def parent(ctx: Any, input: Any) -> Any:
        handle = await ctx.start_child("loose", "leaf", {"n": 1})
        got = await ctx.run_child("awaited", "leaf", {"n": 2})
        await act(ctx, "between")
        try:
            await ctx.run_child("failing", "leaf", {"n": -1})
        except RunFailed as error:
            got = [got, error.error.type]
        return [got, await handle.result()]

    @workflow
    async def leaf(ctx: Any, input: Any) -> Any:
        await act(ctx, "leaf")
        await ctx.emit("leafed", {"n": input["n"]}, key=ctx.run_id, once=True)
        if input["n"] < 0:
            raise LookupError("a leaf that fails")
        return input["n"]

    @workflow(max_concurrent_runs=2)
    async def limited(ctx: Any, input: Any) -> Any:
        await act(ctx, "one")
        await ctx.sleep("hold", "1s")
        await act(ctx, "two")
        return "done"

    @workflow
    async def patched(ctx: Any, input: Any) -> Any:
        await act(ctx, "first")
        new = await ctx.patched("change")
        await ctx.sleep("pause", "1s")
        return [new, await ctx.patched("change")]

    @workflow
    async def fickle(ctx: Any, input: Any) -> Any:
        working = asyncio.create_task(act(ctx, "beside"))
        first = asyncio.create_task(ctx.wait_for_event("first", "word"))
        await asyncio.wait({working})
        first.cancel()
        await asyncio.wait({first})
        return await ctx.wait_for_event("second", "word") if first.cancelled() else first.result()

    @workflow
    async def stoppable(ctx: Any, input: Any) -> Any:
        working = asyncio.create_task(act(ctx, "work"))
        word = await ctx.wait_for_event("stop")
        working.cancel()
        await ctx.sleep("pause", "2s")
        return word

    @workflow
    async def hasty(ctx: Any, input: Any) -> Any:
        never = asyncio.create_task(ctx.wait_for_event("never"))
        slow = asyncio.create_task(act(ctx, "slow"))
        await asyncio.wait({slow}, timeout=0.3)
        slow.cancel()
        await ctx.sleep("nap", "1s")
        never.cancel()
        return await act(ctx, "after", "done")

    @workflow
    async def impatient(ctx: Any, input: Any) -> Any:
        working = asyncio.create_task(act(ctx, "beside"))
        first = asyncio.create_task(ctx.wait_for_event("first", "word"))
        await asyncio.wait({first}, timeout=0.2)
        first.cancel()
        await asyncio.wait({first})
        await act(ctx, "between")
        await working
        return await ctx.wait_for_event("second", "word") if first.cancelled() else first.result()

    @workflow(max_concurrent_runs=1)
    async def unlucky(ctx: Any, input: Any) -> Any:
        if input["n"] == 0:
            return await act(ctx, "bottom", "bottom")

        waited = asyncio.create_task(ctx.run_child("waited", "between", input))
        loose = await ctx.start_child("loose", "leaf", {"n": 4})
        noticed, begun = await asyncio.gather(
            act(ctx, "notice", str(ctx.now())), act(ctx, "again", str(ctx.now()))
        )
        await luck(ctx)
        return [await waited, await loose.result(), noticed <= begun]

    @workflow
    async def between(ctx: Any, input: Any) -> Any:
        await act(ctx, "between")
        await ctx.sleep("pause", "2s")
        return await ctx.run_child("below", "unlucky", {"n": 0})

    return [
        steps, sleeper, listener, fan, race, parent, leaf, limited, patched, fickle, stoppable,
        hasty, impatient, unlucky, between, make_weave(act, luck, traces),
    ]  # fmt: skip


# What each definition must end with, whatever happened on the way.
EXPECTED: dict[str, Any] = {
    "steps": {"total": 107, "stable": True},
    "sleeper": "rested",
    "listener": [1, 2, None],
    "fan": [6, True],
    "race": [["timer"], ["timer"]],
    "parent": [[2, "LookupError"], 1],
    "limited": "done",
    "patched": [True, True],
    "fickle": "spoken",
    "stoppable": "enough",
    "hasty": "done",
    "impatient": "spoken",
    "unlucky": ["bottom", 4, True],
    "bottom": "bottom",
    "weave": "woven",
}

# Those of them that fail at first, and have to be retried.
UNLUCKY = frozenset({"unlucky-0", "weave-0"})

# How runs are started that must end with that: definition, input, and how many of them.
STARTS: dict[str, tuple[str, Any, int]] = {
    **{name: (name, {"n": 2}, 1) for name in EXPECTED},
    "limited": ("limited", {"n": 2}, 4),
    "bottom": ("unlucky", {"n": 0}, 2),
    "weave": ("weave", {"n": 0}, 1),
}

# What the client sends to runs of a definition, one after the other.
SIGNALS: dict[str, list[tuple[str, Any]]] = {
    "listener": [("mail", {"n": 1}), ("mail", {"n": 2})],
    "fickle": [("word", "spoken")],
    "impatient": [("word", "spoken")],
    "stoppable": [("stop", "enough")],
    "weave": [("word-x", 1), ("word-y", 2)],
}

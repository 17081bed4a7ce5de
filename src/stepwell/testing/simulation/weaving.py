"""A program made of branches at random, which notes what it has seen, and in which order.

However often its run is begun again, each execution has to see what the others saw, in the same
order, as far as it comes; and so have those of its retry, for the run fails in the end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from stepwell.errors import RunFailed
from stepwell.sdk.workflow import Workflow, workflow

Act = Callable[..., Awaitable[Any]]
Luck = Callable[[Any], Awaitable[None]]
Part = Callable[[], Coroutine[Any, Any, None]]
Trace = list[Any]


class Traces:
    """What each execution of the one program has seen that the seed stands for."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._all: list[Trace] = []

    def begin(self) -> Trace:
        self._all.append([])
        return self._all[-1]

    def problems(self) -> list[str]:
        found = []
        longest = max(self._all, key=len, default=[])
        for trace in self._all:
            differing = [i for i, seen in enumerate(trace) if seen != longest[i]]
            if differing:
                at = differing[0]
                here, there = trace[max(0, at - 2) : at + 2], longest[max(0, at - 2) : at + 2]
                found.append(f"weave saw {here} once and {there} another time")
        return found


def make_weave(act: Act, luck: Luck, traces: Traces) -> Workflow:
    """The workflow; `act` executes a step of that name, and `luck` one that fails at first."""

    @workflow
    async def weave(ctx: Any, input: Any) -> Any:
        weaver = _Weaver(ctx, act, random.Random(traces.seed), traces.begin())
        await weaver.draw(2)()
        await weaver.draw(2)()
        await luck(ctx)
        return "woven"

    return weave


class _Weaver:
    def __init__(self, ctx: Any, act: Act, rng: random.Random, trace: Trace) -> None:
        self._ctx = ctx
        self._act = act
        self._rng = rng
        self._trace = trace
        self._count = 0

    def _note(self, *seen: Any) -> None:
        if not self._ctx._execution.departed:  # one that is being unwound has seen nothing
            self._trace.append(seen)

    def draw(self, depth: int) -> Part:
        """A part of the program, drawn to its last leaf before any of it is executed."""
        self._count += 1
        if depth == 0 or self._rng.random() < 0.25:
            kinds = [
                self._step, self._step, self._sleep, self._wait, self._child, self._loose,
                self._patched, self._begun,
            ]  # fmt: skip
            leaf, name, share = self._rng.choice(kinds), self._rng.choice("xy"), self._rng.random()
            return partial(leaf, self._count, name, share)
        shapes = [
            self._sequence, self._sequence, self._gather, self._group, self._first, self._keep,
            self._completed, self._lanes,
        ]  # fmt: skip
        shape = self._rng.choice(shapes)
        number = self._count
        parts = [self.draw(depth - 1) for _ in range(self._rng.randint(2, 3))]
        return partial(shape, number, parts)

    # -- leaves: several of one name are told apart by the order in which they are called --

    async def _step(self, number: int, name: str, _: float) -> None:
        self._note("step", number, await self._act(self._ctx, f"step-{name}", number))

    async def _sleep(self, number: int, name: str, seconds: float) -> None:
        await self._ctx.sleep(f"sleep-{name}", seconds)
        self._note("slept", number)

    async def _wait(self, number: int, name: str, seconds: float) -> None:
        timeout = 4 * seconds
        got = await self._ctx.wait_for_event(f"wait-{name}", f"word-{name}", timeout=timeout)
        self._note("heard", number, got)

    async def _child(self, number: int, name: str, chance: float) -> None:
        wanted = number if chance < 0.7 else -1
        try:
            got = await self._ctx.run_child(f"child-{name}", "leaf", {"n": wanted})
        except RunFailed as error:
            got = error.error.type
        self._note("child", number, got)

    async def _loose(self, number: int, name: str, chance: float) -> None:
        wanted = number if chance < 0.5 else -1
        await self._ctx.start_child(f"loose-{name}", "leaf", {"n": wanted})
        self._note("started", number)
        await self._step(number, name, 0)

    async def _patched(self, number: int, name: str, _: float) -> None:
        self._note("patched", number, await self._ctx.patched(f"change-{name}"))
        await self._step(number, name, 0)

    async def _begun(self, number: int, name: str, _: float) -> None:
        """One operation is under way when another is begun in a branch of its own."""
        task = asyncio.create_task(self._nested(number, name))
        await self._ctx.emit(f"word-{name}", number)
        await self._step(number, name, 0)
        await task

    async def _nested(self, number: int, name: str) -> None:
        await asyncio.gather(asyncio.gather(self._step(-number, name, 0)))

    # -- shapes --------------------------------------------------------------------------

    async def _sequence(self, number: int, parts: list[Part]) -> None:
        for part in parts:
            await part()

    async def _gather(self, number: int, parts: list[Part]) -> None:
        await asyncio.gather(*(part() for part in parts))
        self._note("gathered", number)

    async def _group(self, number: int, parts: list[Part]) -> None:
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(part())
        self._note("grouped", number)

    async def _first(self, number: int, parts: list[Part]) -> None:
        tasks = [asyncio.create_task(part()) for part in parts]
        await self._one_of(number, tasks)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._note("left", number, [task.cancelled() for task in tasks])

    async def _keep(self, number: int, parts: list[Part]) -> None:
        tasks = [asyncio.create_task(part()) for part in parts]
        await self._one_of(number, tasks)
        await asyncio.gather(*tasks)

    async def _one_of(self, number: int, tasks: list[asyncio.Task[None]]) -> None:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self._note("first", number, [task in done for task in tasks])

    async def _completed(self, number: int, parts: list[Part]) -> None:
        tasks = [asyncio.create_task(part()) for part in parts]
        for count, each in enumerate(asyncio.as_completed(tasks)):
            await each
            self._note("completed", number, count, sum(task.done() for task in tasks))
            await self._act(self._ctx, f"after-{number}", count)

    async def _lanes(self, number: int, parts: list[Part]) -> None:
        lanes = asyncio.Semaphore(2)

        async def lane(index: int, part: Part) -> None:
            async with lanes:
                self._note("lane", number, index)
                await part()

        await asyncio.gather(*(lane(index, part) for index, part in enumerate(parts)))

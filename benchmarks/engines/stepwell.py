"""Stepwell itself, through its public API; only counting reads the tables."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import apsw
import asyncpg

from benchmarks.engine import Options, Trace
from benchmarks.workloads import STEPS, main
from stepwell import Stepwell, workflow
from stepwell.catalog import node_types
from stepwell.graph.documents import checked
from stepwell.graph.problems import Problems
from stepwell.record import graph_version

WIDTH = 1_000  # nodes of the graph in which they are all beside each other

trace: Trace


async def one() -> int:
    return 1


@workflow(name="steps")
async def steps(ctx: Any, count: int) -> None:
    for _ in range(count):
        await ctx.step("step", one)


async def count_step(line: str) -> None:
    trace.write(line)


@workflow(name="counted")
async def counted(ctx: Any, run: int) -> None:
    for step in range(STEPS):
        await ctx.step("step", count_step, f"{run}.{step}")


@workflow(name="sleeper")
async def sleeper(ctx: Any, seconds: float) -> None:
    await ctx.sleep("sleep", seconds)


@workflow(name="until")
async def until(ctx: Any, due_at: float) -> None:
    await ctx.sleep_until("sleep", datetime.fromtimestamp(due_at, UTC))
    trace.write(str(time.time() - due_at))


@workflow(name="waiter")
async def waiter(ctx: Any, run: int) -> None:
    assert await ctx.wait_for_event("go") == "go"


async def ten_ms() -> None:
    await asyncio.sleep(0.01)


@workflow(name="fan_out")
async def fan_out(ctx: Any, count: int) -> None:
    await asyncio.gather(*(ctx.step("step", ten_ms) for _ in range(count)))


def transform(number: int, value: Any) -> dict[str, Any]:
    return {"id": f"n{number}", "type": "transform", "config": {"value": value}}


GRAPHS = (
    {
        "name": "chain",
        "nodes": [transform(n, f"@n{n - 1}" if n else 1) for n in range(STEPS)],
    },
    {
        "name": "wide",
        "nodes": [transform(n, n) for n in range(WIDTH)],
        "output": "@n0",
    },
)


class StepwellEngine:
    def __init__(self, options: Options) -> None:
        global trace
        trace = Trace(options.trace)
        self.worker_pid = os.getpid()
        self._options = options
        self._stack = AsyncExitStack()
        self._reader: apsw.Connection | asyncpg.Connection | None = None

    async def __aenter__(self) -> StepwellEngine:
        workflows = [steps, counted, sleeper, until, waiter, fan_out]
        self._sw = Stepwell(self._options.dsn, workflows=workflows)
        await self._stack.enter_async_context(self._sw)
        if self._options.workload == "w9":
            await self._publish()
        worker = self._sw.worker(concurrency=self._options.concurrency)
        await self._stack.enter_async_context(worker)
        return self

    async def _publish(self) -> None:
        store = self._sw.store
        for document in GRAPHS:
            found = checked(document, node_types(), Problems())
            assert found is not None
            await store.records.keep("default", found.hash, json.dumps(document), store.clock.now())
            await store.register("default", [graph_version(found.definition, 1, found.hash)])

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def start(self, program: str, inputs: list[Any]) -> list[Any]:
        return await self._sw.start_many(
            [{"definition": program, "input": each} for each in inputs]
        )

    async def finish(self, handles: list[Any]) -> None:
        await asyncio.gather(*(handle.result() for handle in handles))

    async def signal(self, handles: list[Any]) -> None:
        await asyncio.gather(*(self._sw.signal(handle.id, "go", "go") for handle in handles))

    async def parked(self) -> int:
        return await self._count("status = 'waiting'")

    async def unfinished(self) -> int:
        return await self._count("status IN ('pending', 'running', 'waiting')")

    async def _count(self, condition: str) -> int:
        query = f"SELECT count(*) FROM runs WHERE {condition}"
        if self._options.store == "sqlite":
            self._reader = self._reader or apsw.Connection(
                self._options.dsn.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READONLY
            )
            return await asyncio.to_thread(lambda: self._reader.execute(query).get)
        self._reader = self._reader or await asyncpg.connect(
            self._options.dsn, server_settings={"search_path": "stepwell"}
        )
        return await self._reader.fetchval(query)


if __name__ == "__main__":
    main(StepwellEngine, "benchmarks.engines.stepwell")

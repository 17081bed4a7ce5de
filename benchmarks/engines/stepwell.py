"""Stepwell itself, through its public API; only counting reads the tables."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import apsw
import asyncpg

from benchmarks.engine import Options, Trace, poll
from benchmarks.http import w12
from benchmarks.listing import w13
from benchmarks.workloads import STEPS, main
from stepwell import Stepwell, workflow

WIDTH = 1_000  # nodes of the graph in which they are all beside each other

trace: Trace


async def one() -> int:
    return 1


@workflow(name="steps")
async def steps(ctx: Any, count: Any) -> None:
    for _ in range(count or 1):
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


@workflow(name="matched")
async def matched(ctx: Any, number: int) -> None:
    await ctx.wait_for_event("numbered", match={"number": number})


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
        workflows = [steps, counted, sleeper, until, waiter, matched, fan_out]
        self._sw = Stepwell(self._options.dsn, workflows=workflows)
        await self._stack.enter_async_context(self._sw)
        if self._options.workload == "w9":
            for document in GRAPHS:
                await self._sw.definitions.publish(document)
        worker = self._sw.worker(concurrency=self._options.concurrency)
        await self._stack.enter_async_context(worker)
        return self

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

    async def emit(self, number: int) -> None:
        await self._sw.emit("numbered", {"number": number})

    async def schedule(self, count: int, at: float) -> list[float]:
        due = datetime.fromtimestamp(at, UTC)
        for number in range(count):
            await self._sw.triggers.create(
                "steps", "schedule", {"at": due.isoformat(), "map": {}}, name=f"t{number}"
            )
        assert time.time() < at, "there was no time to make them all"
        found: list[Any] = []

        async def all_started() -> bool:
            found[:] = (await self._sw.list_runs(since=due, limit=count)).items
            return len(found) == count

        await poll(all_started, 0.01)
        return [(run.created_at - due).total_seconds() for run in found]

    async def parked(self) -> int:
        return await self._count("status = 'waiting'")

    async def settled(self) -> None:
        """Return once the server has cleaned up after what was written, as it does each minute."""
        if self._options.store == "postgres":
            await self._count("true")

            async def cleaned() -> bool:
                return await self._reader.fetchval(
                    """SELECT last_autovacuum IS NOT NULL AND NOT EXISTS (
                           SELECT FROM pg_stat_activity WHERE backend_type = 'autovacuum worker')
                       FROM pg_stat_user_tables
                       WHERE schemaname = 'stepwell' AND relname = 'runs'"""
                )

            await poll(cleaned, 1.0)

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
    main(StepwellEngine, "benchmarks.engines.stepwell", {"w12": w12, "w13": w13})

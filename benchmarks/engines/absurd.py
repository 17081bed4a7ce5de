"""Absurd on PostgreSQL, the way that measured fastest: one thread with a connection per slot.

Each thread claims four tasks at a time. Parallel steps inside a task exist only in the
asynchronous client, so W6 uses that. Results are polled for as often as helps.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
from absurd_sdk import Absurd, AsyncAbsurd

from benchmarks.engine import Options, Trace, poll
from benchmarks.workloads import STEPS, main

BATCH = 4
POLL_SECONDS = 0.02
CLAIM_SECONDS = 10  # the default of 120 would make W7 wait that long

trace: Trace


def steps(count: int, ctx: Any) -> None:
    for _ in range(count):
        ctx.step("step", lambda: 1)


def counted(run: int, ctx: Any) -> None:
    for step in range(STEPS):
        ctx.step("step", lambda line=f"{run}.{step}": trace.write(line))


def sleeper(seconds: float, ctx: Any) -> None:
    ctx.sleep_for("sleep", seconds)


def until(due_at: float, ctx: Any) -> None:
    ctx.sleep_until("sleep", due_at)
    trace.write(str(time.time() - due_at))


def waiter(run: int, ctx: Any) -> None:
    ctx.await_event(f"go-{run}")


async def one() -> int:
    return 1


async def steps_async(count: int, ctx: Any) -> None:
    for _ in range(count):
        await ctx.step("step", one)


async def fan_out(count: int, ctx: Any) -> None:
    async def ten_ms() -> None:
        await asyncio.sleep(0.01)

    await asyncio.gather(*(ctx.step("step", ten_ms) for _ in range(count)))


class AbsurdEngine:
    def __init__(self, options: Options) -> None:
        global trace
        trace = Trace(options.trace)
        self.worker_pid = os.getpid()
        self._options = options
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(options.concurrency)

    async def __aenter__(self) -> AbsurdEngine:
        self._reader = psycopg.connect(self._options.dsn, autocommit=True)
        if not self._reader.execute("SELECT to_regnamespace('absurd')").fetchone()[0]:
            control = Path(sys.executable).with_name("absurdctl")
            subprocess.run(
                [control, "init", "-d", self._options.dsn], check=True, stdout=sys.stderr
            )
            self._client().create_queue()
        if self._options.workload == "w6":
            client = AsyncAbsurd(self._options.dsn)
            client.register_task(name="steps")(steps_async)
            client.register_task(name="fan_out")(fan_out)
            self._worker = asyncio.create_task(client.start_worker(poll_interval=POLL_SECONDS))
            return self
        # An idle worker is measured with the default polling interval.
        polling = {} if self._options.workload == "idle" else {"poll_interval": POLL_SECONDS}
        for _ in range(self._options.concurrency):
            threading.Thread(
                target=self._make_client().start_worker,
                kwargs={"batch_size": BATCH, "claim_timeout": CLAIM_SECONDS} | polling,
                daemon=True,
            ).start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._pool.shutdown()

    def _make_client(self) -> Absurd:
        client = Absurd(self._options.dsn)
        for program in (steps, counted, sleeper, until, waiter):
            client.register_task(name=program.__name__)(program)
        return client

    def _client(self) -> Absurd:
        """The client of the calling thread."""
        if not hasattr(self._local, "client"):
            self._local.client = self._make_client()
        return self._local.client

    async def _map(self, function: Any, items: list[Any]) -> list[Any]:
        loop = asyncio.get_running_loop()
        calls = (loop.run_in_executor(self._pool, function, item) for item in items)
        return await asyncio.gather(*calls)

    async def start(self, program: str, inputs: list[Any]) -> list[Any]:
        await self._map(lambda each: self._client().spawn(program, each, queue="default"), inputs)
        return inputs

    async def finish(self, handles: list[Any]) -> None:
        pause = 0.002 if len(handles) == 1 else POLL_SECONDS

        async def ended() -> bool:
            return not await self.unfinished()

        await poll(ended, pause)
        query = "SELECT count(*) FROM absurd.t_default WHERE state <> 'completed'"
        assert self._reader.execute(query).fetchone() == (0,)

    async def signal(self, handles: list[Any]) -> None:
        await self._map(lambda run: self._client().emit_event(f"go-{run}", "go"), handles)

    async def parked(self) -> int:
        query = "SELECT count(*) FROM absurd.r_default WHERE state = 'sleeping'"
        return self._reader.execute(query).fetchone()[0]

    async def unfinished(self) -> int:
        query = (
            "SELECT count(*) FROM absurd.t_default"
            " WHERE state IN ('pending', 'running', 'sleeping')"
        )
        return self._reader.execute(query).fetchone()[0]


if __name__ == "__main__":
    main(AbsurdEngine, "benchmarks.engines.absurd")

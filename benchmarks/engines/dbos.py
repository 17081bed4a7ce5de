"""DBOS on SQLite and PostgreSQL, each the way that measured fastest.

Steps run as plain functions on a pool of threads, which beat coroutines here; sleepers and
waiters stay in memory as coroutines. SQLite is put into WAL mode, where DBOS is half as
fast again as with its default journal; both are synchronous=FULL.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import sqlalchemy
from dbos import DBOS, SetWorkflowID

from benchmarks.engine import Options, Trace
from benchmarks.workloads import STEPS, main

QUEUE = "bench"
QUEUE_SLOTS = 10  # at least; its queue is slow with fewer
IN_MEMORY = 100  # starts under way at once for programs that then only wait

trace: Trace


@DBOS.step()
def one() -> int:
    return 1


@DBOS.workflow()
def steps(count: int) -> None:
    for _ in range(count):
        one()


@DBOS.step()
def count_step(line: str) -> None:
    trace.write(line)


@DBOS.workflow()
def counted(run: int) -> None:
    for step in range(STEPS):
        count_step(f"{run}.{step}")


@DBOS.workflow()
async def sleeper(seconds: float) -> None:
    await DBOS.sleep_async(seconds)


@DBOS.workflow()
async def until(due_at: float) -> None:
    await DBOS.sleep_async(due_at - time.time())
    trace.write(str(time.time() - due_at))


@DBOS.workflow()
async def waiter(run: int) -> None:
    assert await DBOS.recv_async("go", timeout_seconds=600) == "go"


@DBOS.step()
async def ten_ms(_: int) -> None:
    await asyncio.sleep(0.01)


@DBOS.workflow()
async def fan_out(count: int) -> None:
    await asyncio.gather(*(ten_ms(i) for i in range(count)))


COROUTINES = {f.__name__: f for f in (sleeper, until, waiter, fan_out)}


class Dbos:
    def __init__(self, options: Options) -> None:
        global trace
        trace = Trace(options.trace)
        self.worker_pid = os.getpid()
        self._options = options
        self._pool = ThreadPoolExecutor(options.concurrency)
        if options.store == "sqlite":
            connection = sqlite3.connect(options.dsn.removeprefix("sqlite:///"))
            connection.execute("PRAGMA journal_mode=WAL")
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
            connection.close()
        url = options.dsn.replace("postgresql://", "postgresql+psycopg://")
        self._reader = sqlalchemy.create_engine(url)

    async def __aenter__(self) -> Dbos:
        DBOS(
            config={
                "name": "bench",
                "system_database_url": self._options.dsn,
                "application_version": "1",
                "log_level": "ERROR",
                "sys_db_pool_size": max(20, self._options.concurrency),
                "notification_listener_polling_interval_sec": 0.01,
            }
        )
        DBOS.launch()
        if self._options.workload in ("crash", "recover"):
            self._queue = await DBOS.register_queue_async(
                QUEUE,
                worker_concurrency=max(self._options.concurrency, QUEUE_SLOTS),
                polling_interval_sec=0.02,
            )
        return self

    async def __aexit__(self, *exc: object) -> None:
        DBOS.destroy()

    async def start(self, program: str, inputs: list[Any]) -> list[Any]:
        if program == "steps":
            return [self._pool.submit(steps, each) for each in inputs]
        limit = asyncio.Semaphore(IN_MEMORY)

        async def start(each: Any) -> Any:
            async with limit:
                if program == "counted":
                    with SetWorkflowID(f"run-{each}"):
                        return await self._queue.enqueue_async(counted, each)
                return await DBOS.start_workflow_async(COROUTINES[program], each)

        return await asyncio.gather(*(start(each) for each in inputs))

    async def finish(self, handles: list[Any]) -> None:
        ends = (
            asyncio.wrap_future(each) if isinstance(each, Future) else each.get_result()
            for each in handles
        )
        await asyncio.gather(*ends)

    async def signal(self, handles: list[Any]) -> None:
        limit = asyncio.Semaphore(self._options.concurrency)

        async def send(handle: Any) -> None:
            async with limit:
                await DBOS.send_async(handle.get_workflow_id(), "go", "go")

        await asyncio.gather(*(send(handle) for handle in handles))

    async def parked(self) -> int:
        return await asyncio.to_thread(
            self._count, "operation_outputs WHERE function_name = 'DBOS.sleep'"
        )

    async def unfinished(self) -> int:
        return await asyncio.to_thread(
            self._count, "workflow_status WHERE status IN ('PENDING', 'ENQUEUED')"
        )

    def _count(self, rows: str) -> int:
        schema = "" if self._options.store == "sqlite" else "dbos."
        with self._reader.connect() as connection:
            query = sqlalchemy.text(f"SELECT count(*) FROM {schema}{rows}")
            return connection.execute(query).scalar_one()


if __name__ == "__main__":
    main(Dbos, "benchmarks.engines.dbos")

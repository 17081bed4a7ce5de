"""Restate: its server, and a service on Hypercorn and uvloop in a process of its own.

The client is another process, so that submitting does not slow the service down.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import hypercorn
import hypercorn.asyncio
import restate
import uvloop

from benchmarks import process
from benchmarks.engine import Options, Trace, poll, read_trace
from benchmarks.workloads import STEPS, main

UNLIMITED = 2**31 - 1
SUSPEND_AT_ONCE = timedelta(milliseconds=10)
ONE_WAY = ("sleeper", "until")

bench = restate.Service("bench")
trace: Trace


async def one() -> int:
    return 1


@bench.handler()
async def steps(ctx: restate.Context, count: int) -> None:
    for _ in range(count):
        await ctx.run_typed("step", one)


@bench.handler()
async def counted(ctx: restate.Context, run: int) -> None:
    for step in range(STEPS):
        await ctx.run_typed("step", lambda line=f"{run}.{step}": trace.write(line))


@bench.handler(inactivity_timeout=SUSPEND_AT_ONCE)
async def sleeper(ctx: restate.Context, seconds: float) -> None:
    await ctx.sleep(timedelta(seconds=seconds))


@bench.handler(inactivity_timeout=SUSPEND_AT_ONCE)
async def until(ctx: restate.Context, due_at: float) -> None:
    await ctx.sleep(timedelta(seconds=max(0.0, due_at - time.time())))
    trace.write(str(time.time() - due_at))


@bench.handler()
async def waiter(ctx: restate.Context, run: int) -> None:
    awakeable, value = ctx.awakeable()
    trace.write(awakeable)
    assert await value == "go"


@bench.handler()
async def fan_out(ctx: restate.Context, count: int) -> None:
    async def ten_ms() -> None:
        await asyncio.sleep(0.01)

    await restate.gather(*(ctx.run_typed("step", ten_ms) for _ in range(count)))


class Restate:
    def __init__(self, options: Options) -> None:
        ingress, admin, self._service_port = options.dsn.split(",")
        self._ingress = f"http://127.0.0.1:{ingress}"
        self._admin = f"http://127.0.0.1:{admin}"
        self._options = options

    async def __aenter__(self) -> Restate:
        command = [sys.executable, "-m", "benchmarks.engines.restate", "serve"]
        service = process.spawn([*command, self._service_port, str(self._options.trace)])
        self.worker_pid = service.pid
        limits = aiohttp.TCPConnector(limit=0)
        self._http = aiohttp.ClientSession(
            connector=limits,
            timeout=aiohttp.ClientTimeout(),
            headers={"Accept": "application/json"},
        )
        uri = f"http://127.0.0.1:{self._service_port}"
        await poll(lambda: self._answers(f"{uri}/health"), 0.005)
        if self._options.workload != "recover":
            await self._post(f"{self._admin}/deployments", {"uri": uri, "force": True})
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._http.close()

    async def start(self, program: str, inputs: list[Any]) -> list[Any]:
        url = f"{self._ingress}/bench/{program}"
        if program not in ONE_WAY:
            # A plain call answers with the result, so starting and waiting are one request.
            return [asyncio.create_task(self._post(url, each)) for each in inputs]
        limit = asyncio.Semaphore(100)

        async def send(each: Any) -> None:
            async with limit:
                await self._post(f"{url}/send", each)

        return await asyncio.gather(*(send(each) for each in inputs))

    async def finish(self, handles: list[Any]) -> None:
        await asyncio.gather(*handles)

    async def signal(self, handles: list[Any]) -> None:
        await asyncio.gather(
            *(
                self._post(f"{self._ingress}/restate/awakeables/{awakeable}/resolve", "go")
                for awakeable in read_trace(self._options.trace)
            )
        )

    async def parked(self) -> int:
        if self._options.workload == "w5":
            return len(set(read_trace(self._options.trace)))
        return await self._count("status = 'suspended'")

    async def unfinished(self) -> int:
        return await self._count("status <> 'completed'")

    async def _count(self, condition: str) -> int:
        query = f"SELECT count(*) AS n FROM sys_invocation WHERE {condition}"
        answer = await self._post(f"{self._admin}/query", {"query": query})
        return answer["rows"][0]["n"]

    async def _post(self, url: str, body: Any) -> Any:
        async with self._http.post(url, json=body) as response:
            answer = await response.read()
            assert response.status < 300, (url, response.status, answer)
            return await response.json() if answer else None

    async def _answers(self, url: str) -> bool:
        try:
            async with self._http.get(url) as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False


def serve(port: str, trace_path: Path) -> None:
    """The service process, configured as Restate's documentation advises for production."""
    global trace
    trace = Trace(trace_path)
    config = hypercorn.Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.h2_max_concurrent_streams = UNLIMITED
    config.keep_alive_max_requests = UNLIMITED
    config.keep_alive_timeout = UNLIMITED
    uvloop.run(hypercorn.asyncio.serve(restate.app([bench]), config))
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], Path(sys.argv[3]))
    else:
        main(Restate, "benchmarks.engines.restate")

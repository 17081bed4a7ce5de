"""A worker process for tests to kill: `python -m tests.faults.load STORE LOG`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from stepwell import Stepwell, workflow

STEPS = 4


@workflow(name="load")
async def load(ctx: Any, input: Any) -> Any:
    total = 0
    for n in range(STEPS):
        total += await ctx.step(f"s{n}", note, ctx, input["log"], n)
        if n == 1:
            await ctx.sleep("pause", "0.05s")
    return total


async def note(ctx: Any, log: str, n: int) -> int:
    """One execution, written down with a single append so that nothing can tear it."""
    line = f"{ctx.idempotency_key} {ctx.attempt}\n".encode()
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
    await asyncio.sleep(0.002)
    return n


async def serve(url: str) -> None:
    async with Stepwell(url, workflows=[load]) as sw, sw.worker(concurrency=20, lease="5s"):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))

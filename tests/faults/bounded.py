"""A worker process under limits, for tests to kill: `python -m tests.faults.bounded STORE`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from stepwell import Stepwell, workflow


@workflow(name="bounded")
async def bounded(ctx: Any, input: Any) -> Any:
    await ctx.step("first", note, input["log"], f"begins {input['key']} {ctx.run_id}")
    await ctx.step("last", note, input["log"], f"ends {input['key']} {ctx.run_id}")
    return input["key"]


async def note(log: str, line: str) -> None:
    """Written with a single append: the lines of all processes are in the order of time."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)
    await asyncio.sleep(0.02)


async def serve(url: str) -> None:
    async with Stepwell(url, workflows=[bounded]) as sw, sw.worker(concurrency=20, lease="3s"):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))

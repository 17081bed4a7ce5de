"""Small things that the tests of stores share."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import apsw
import asyncpg

from stepwell import workflow
from tests.engine.support import double


def named(url: str, user: str, password: str = "") -> str:
    """The same database for another user."""
    return re.sub(r"//[^@/]*@", f"//{user}:{password}@", url)


async def execute(url: str, *statements: str) -> None:
    if url.startswith("sqlite:"):
        with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as db:
            for statement in statements:
                db.execute(statement)
        return
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@workflow
async def doubling(ctx: Any, input: Any) -> Any:
    return await ctx.step("double", double, input)


@workflow(max_concurrent_runs=1)
async def alone(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("go")

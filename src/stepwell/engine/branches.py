"""Branches of a program: tasks that are begun together and have all ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any


async def all_of(calls: Sequence[Callable[[], Awaitable[Any]]], most: int) -> list[Any]:
    """The results of all calls, at most so many of them at a time; the first error ends all."""
    results: list[Any] = [None] * len(calls)
    left = iter(enumerate(calls))

    async def work() -> None:
        for index, call in left:
            results[index] = await call()

    if most == 1 or len(calls) <= 1:
        await work()
        return results
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(work()) for _ in range(min(most, len(calls)))]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task in done:
                task.result()
    finally:
        await called_off(tasks)
    return results


async def race(
    work: Coroutine[Any, Any, Any], timer: Coroutine[Any, Any, None], late: Callable[[], None]
) -> tuple[bool, Any]:
    """Whether the work ended before the timer, and what it gave.

    If it did not, `late` is called before the work is called off.
    """
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(work), loop.create_task(timer)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return True, tasks[0].result()
        tasks[1].result()
        late()
        return False, None
    finally:
        await called_off(tasks)


async def called_off(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel what has not ended, and wait until it has."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()

"""What has ended leaves memory by itself: looking for garbage holds everybody up."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stepwell import workflow
from tests.conftest import World
from tests.engine.support import double, until

GRAPH = {
    "name": "greeting",
    "nodes": [
        {"id": "say", "type": "transform", "config": {"value": "Hello, {{input.name}}!"}},
        {"id": "go", "type": "wait_event", "config": {"event": "go"}},
    ],
    "triggers": [{"id": "hook", "type": "webhook", "path": "greeting"}],
}


@workflow
async def doubling(ctx: Any, input: Any) -> Any:
    await ctx.step("double", double, input, timeout="1h")
    return await ctx.wait_for_event("go")


@workflow
async def failing(ctx: Any, input: Any) -> None:
    raise ValueError("no")


@pytest.fixture
def garbage() -> Iterator[Callable[[], Counter[str]]]:
    """What only a garbage collector finds since the test began."""

    def found() -> Counter[str]:
        gc.collect()
        return Counter(type(each).__name__ for each in gc.garbage)

    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield found
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


async def test_runs_and_deliveries_leave_nothing_to_the_garbage_collector(
    world: World, garbage: Callable[[], Counter[str]]
) -> None:
    async with world([doubling, failing]) as sw, sw.worker():
        await sw.definitions.publish(GRAPH)
        waiting = [(await sw.start("doubling", number)).id for number in range(5)]
        for number in range(5):
            delivered = await sw.receive("greeting", body=b'{"name": "%d"}' % number)
            assert delivered.run_id is not None
            waiting.append(delivered.run_id)
        for run_id in waiting:
            await until(sw, run_id, "waiting")
        await sw.emit("go", 1)
        for run_id in waiting:
            await until(sw, run_id, "completed")
        await until(sw, (await sw.start("failing")).id, "failed")
    assert garbage().keys().isdisjoint({"Execution", "Context", "TimeLimit", "Task"})

"""What a graph does not want any more: children and gates of nodes that it has given up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import RunFailed, Stepwell
from stepwell.errors import GateClosed
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import flowing, until
from tests.operations.support import definition, node, open_gate

CHILD = definition(node("wait", "wait_event", event="never"), name="child")
RUN_CHILD = node("child", "run", definition="child")


async def child_of(sw: Stepwell, run_id: str) -> str:
    """The child of a run, once both wait."""
    await until(sw, run_id, "waiting")
    child = next(run for run in (await sw.list_runs()).items if run.parent_run_id == run_id)
    await until(sw, child.id, "waiting")
    return child.id


async def started(sw: Stepwell, document: dict[str, Any]) -> tuple[Any, str]:
    await sw.definitions.publish(CHILD, enabled=True)
    run = await sw.start_document(document)
    return run, await child_of(sw, run.id)


async def test_the_second_child_of_a_node_ends_with_its_time_too(
    world: World, clock: FakeClock
) -> None:
    tried = {**RUN_CHILD, "timeout": "2m", "retry": {"attempts": 2, "base": "1s", "jitter": 0}}
    async with world() as sw, sw.worker():
        run, first = await started(sw, definition(tried))
        await sw.cancel(first)
        async with flowing(clock, "0.1s"):
            while len((await sw.list_runs(definition="child")).items) < 2:
                await asyncio.sleep(0.001)
        (second,) = (
            each.id for each in (await sw.list_runs(definition="child")).items if each.id != first
        )
        await until(sw, second, "waiting")
        async with flowing(clock):
            with pytest.raises(RunFailed, match="took longer than 120 s"):
                await run.result()
            await until(sw, second, "cancelled")


@pytest.mark.parametrize("around", ["node", "parallel", "loop"])
async def test_a_child_ends_with_the_time_of_its_node(
    world: World, clock: FakeClock, around: str
) -> None:
    waiting = {
        "node": RUN_CHILD,
        "parallel": {
            "id": "p", "type": "parallel", "branches": [{"id": "b", "nodes": [RUN_CHILD]}]
        },
        "loop": {
            "id": "l", "type": "loop", "config": {"until": "true"}, "body": {"nodes": [RUN_CHILD]}
        },
    }[around]  # fmt: skip
    async with world() as sw, sw.worker():
        run, child = await started(sw, definition({**waiting, "timeout": "1m"}))
        async with flowing(clock):
            with pytest.raises(RunFailed, match="took longer than 60 s"):
                await run.result()
            assert (await until(sw, child, "cancelled")).ended


async def test_a_child_ends_when_its_parent_returns_early(world: World) -> None:
    nodes = [
        RUN_CHILD, node("go", "wait_event", event="go"), node("out", "return", value="enough")
    ]  # fmt: skip
    document = {
        "name": "made", "nodes": nodes, "edges": [{"source": "go", "target": "out"}]
    }  # fmt: skip
    async with world() as sw, sw.worker():
        run, child = await started(sw, document)
        await sw.signal(run.id, "go")
        assert await run.result() == "enough"
        await until(sw, child, "cancelled")


async def test_a_child_beside_a_failure_goes_on_and_a_retry_waits_for_it(world: World) -> None:
    nodes = [
        RUN_CHILD, node("go", "wait_event", event="go"),
        node("fails", "transform", value="{{input.missing}}"), node("after", "delay", duration=0),
    ]  # fmt: skip
    document = {
        "name": "made", "nodes": nodes,
        "edges": [
            {"source": "go", "target": "fails"},
            {"source": "fails", "target": "after", "on_failure": "fail_run"},
        ],
    }  # fmt: skip
    async with world() as sw, sw.worker():
        run, child = await started(sw, document)
        await sw.signal(run.id, "go")
        with pytest.raises(RunFailed):
            await run.result()
        assert (await sw.get_run(child)).status == "waiting"
        retried = await sw.retry(run.id)
        await sw.cancel(retried.id)
        await until(sw, child, "cancelled")


async def test_nobody_can_decide_at_the_gate_of_a_node_whose_time_is_up(
    world: World, clock: FakeClock
) -> None:
    asking = {**node("ask", "approval", prompt="Go on?"), "timeout": "1m"}
    after = node("after", "wait_event", event="never")
    document = definition(asking, after)
    document["edges"][0]["on_failure"] = "continue"
    async with world() as sw, sw.worker():
        run = await sw.start_document(document)
        gate = await open_gate(sw, run.id)
        async with flowing(clock):
            while await sw.gates.list(run.id):
                pass
        assert (await sw.get_run(run.id)).status in ("waiting", "running")
        assert await sw.gates.list() == []
        assert (await sw.gates.get(gate.id)).status == "void"
        for decision in ("approve", "deny"):
            with pytest.raises(GateClosed, match="gone on without a decision"):
                await sw.gates.decide(gate.id, decision, by="ada")

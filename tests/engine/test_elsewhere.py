"""Runs of graphs that need something of their worker: they go to one that has it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell import Stepwell
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import eventually, flowing, until_code
from tests.operations.support import definition, node

calls: list[str] = []
door = threading.Event()


def here(value: str) -> str:
    calls.append(f"here {value}")
    return value


def there(value: str) -> str:
    calls.append(f"there {value}")
    return value


def slow(value: str) -> str:
    calls.append(f"slow {value}")
    door.wait()
    return value


@pytest.fixture(autouse=True)
def nothing_called() -> Iterator[None]:
    calls.clear()
    door.clear()
    yield
    door.set()


def calling(function: str, value: str = "a", node_id: str = "") -> dict[str, Any]:
    return node(node_id or function, "python", function=function, args={"value": value})


async def is_alone(sw: Stepwell, run_id: str) -> None:
    """Return once nobody holds the run, which no worker can execute."""
    await until_code(sw, run_id, "unknown_function")


async def test_a_run_waits_for_a_worker_that_has_the_function(
    world: World, clock: FakeClock
) -> None:
    document = definition(calling("here"), calling("there"))
    async with world(functions=[here]) as one, one.worker():
        run = await one.start_document(document)
        await is_alone(one, run.id)
        explanation = await one.explain(run.id)
        assert explanation.message == (
            "No living worker has the Python function 'there'; they have here."
        )
        assert explanation.details == {"function": "there", "functions": ["here"]}
        async with world(functions=[there]) as two, two.worker(), flowing(clock):
            assert await run.result() == "a"
    assert calls == ["here a", "there a"]


async def test_what_is_at_work_beside_it_is_not_interrupted(world: World, clock: FakeClock) -> None:
    document = {"name": "made", "nodes": [calling("slow"), calling("there")]}
    async with world(functions=[slow]) as one, one.worker():
        run = await one.start_document(document)
        async with world(functions=[there]) as two, two.worker(), flowing(clock):
            await eventually(lambda: calls == ["slow a"])
            assert (await one.explain(run.id)).code == "running"
            door.set()
            assert await run.result() == {"slow": "a", "there": "a"}
    assert calls == ["slow a", "there a"]


async def test_it_goes_there_also_while_other_parts_of_it_wait(
    world: World, clock: FakeClock
) -> None:
    nodes = [node("answer", "wait_event", event="answer"), calling("there")]
    async with world(functions=[there]) as two:
        async with world() as one, one.worker():
            run = await one.start_document({"name": "made", "nodes": nodes})
            await is_alone(one, run.id)
        async with two.worker():
            await eventually(lambda: calls == ["there a"])
            await two.signal(run.id, "answer", 42)
            assert await two.result(run.id) == {"answer": 42, "there": "a"}


async def test_what_else_it_waits_for_is_open_while_it_waits_for_a_worker(
    world: World, clock: FakeClock
) -> None:
    nodes = [node("news", "wait_event", event="news"), calling("there")]
    async with world() as one, one.worker():
        run = await one.start_document({"name": "made", "nodes": nodes})
        await is_alone(one, run.id)
        await one.emit("news", "heard")  # an event of the workspace ends only waits that are open
        async with world(functions=[there]) as two, two.worker(), flowing(clock):
            assert await run.result() == {"news": "heard", "there": "a"}


async def test_two_workers_that_have_one_function_each_share_a_run(
    world: World, clock: FakeClock
) -> None:
    nodes = [
        calling(function, str(number), f"n{number}")
        for number, function in enumerate(["here", "there", "there", "here"])
    ]
    async with world(functions=[here]) as one, world(functions=[there]) as two:
        async with one.worker(), two.worker(), flowing(clock):
            run = await one.start_document(definition(*nodes))
            assert await run.result() == "3"
            retried = await two.start_document(definition(*nodes))
            assert await retried.result() == "3"
    assert calls == ["here 0", "there 1", "there 2", "here 3"] * 2


async def test_a_part_that_is_given_up_needs_nobody(world: World, clock: FakeClock) -> None:
    nodes = [
        calling("there"),
        node("go", "wait_event", event="go"),
        node("out", "return", value="done"),
    ]
    document = {
        "name": "made", "nodes": [*nodes, calling("slow")],
        "edges": [{"source": "go", "target": "out"}],
    }  # fmt: skip
    async with world(functions=[slow]) as one, one.worker():
        run = await one.start_document(document)
        await eventually(lambda: calls == ["slow a"])
        await one.signal(run.id, "go")
        assert await run.result() == "done"


async def test_for_each_item_that_needs_it_goes_along(world: World, clock: FakeClock) -> None:
    each = {
        "id": "each", "type": "python", "for_each": "@input",
        "config": {"function": "there", "args": {"value": "@item"}},
    }  # fmt: skip
    async with world() as one, one.worker():
        run = await one.start_document({"name": "made", "nodes": [each]}, ["a", "b", "c"])
        await is_alone(one, run.id)
        async with world(functions=[there]) as two, two.worker(), flowing(clock):
            assert await run.result() == ["a", "b", "c"]
    assert sorted(calls) == ["there a", "there b", "there c"]

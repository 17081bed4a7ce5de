"""Nodes that are more than a step in the live feed of a run: when they begin, and that they end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stepwell.kernel.feed import RunEvent
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.listening import Listener, check_resuming, heard, lasting, lines
from tests.engine.support import flowing
from tests.operations.support import definition, node


async def test_a_node_of_several_steps_is_told_to_begin_with_its_first(world: World) -> None:
    async with world() as sw, sw.worker():
        run = await sw.start_document(definition(node("chore", "task", title="Do it")))
        listener = Listener(sw, run.id)
        await listener.until(lambda found: "run.waiting" in found)
        assert lasting(listener.events) == [
            "run.started", "step.started chore", "step.started chore.task",
        ]  # fmt: skip
        await sw.advance(run.id, "chore", summary="done")
        live = await listener.all()
        assert lasting(live)[3:] == [
            "step.completed chore.task", "step.completed chore", "run.finished",
        ]  # fmt: skip
        assert lasting(await heard(sw, run.id)) == lasting(live)
        await check_resuming(sw, run.id, live)


async def test_a_node_that_its_run_ends_before_is_told_to_be_cancelled(world: World) -> None:
    async with world() as sw, sw.worker():
        run = await sw.start_document(definition(node("chore", "task", title="Do it")))
        listener = Listener(sw, run.id)
        await listener.until(lambda found: "run.waiting" in found)
        await sw.cancel(run.id)
        live = await listener.all()
        assert lasting(live)[3:] == [
            "step.cancelled chore.task", "step.cancelled chore", "run.finished",
        ]  # fmt: skip
        await check_resuming(sw, run.id, live)


async def test_whatever_ends_has_begun(world: World, clock: FakeClock) -> None:
    naps = [node(f"nap{number}", "delay", duration="1s") for number in range(2)]
    document = definition(
        node("ready", "transform", value=1),
        {**node("often", "loop", until="index == 2"), "body": {"nodes": naps[:1]}},
        {"id": "both", "type": "parallel", "branches": [
            {"id": "left", "nodes": naps[1:]},
            {"id": "right", "nodes": [node("one", "transform", value=1)]},
        ]},
        {**node("late", "task", title="Never"), "timeout": "1s"},
        node("sure", "condition", expression="1 > 0"),
        edges=[
            {"source": "ready", "target": "often"}, {"source": "often", "target": "both"},
            {"source": "both", "target": "late"}, {"source": "both", "target": "sure"},
        ],
    )  # fmt: skip
    async with world() as sw, sw.worker():
        run = await sw.start_document(document)
        listener = Listener(sw, run.id)
        async with flowing(clock), asyncio.timeout(60):
            live = await listener.all()
        for told in (live, await heard(sw, run.id)):
            ended = check_order(told)
            assert {"ready", "often", "both", "both.left.nap1", "late", "sure"} <= ended


def check_order(events: Sequence[RunEvent]) -> set[str]:
    """What has ended; each once, and after it has begun, once."""
    begun: set[str] = set()
    ended: set[str] = set()
    for event in events:
        step = event.data.get("step", "")
        if event.type == "step.started":
            assert step not in begun, lines(events)
            begun.add(step)
        elif event.type in ("step.completed", "step.failed", "step.cancelled"):
            assert step in begun - ended, (step, lines(events))
            ended.add(step)
    return ended

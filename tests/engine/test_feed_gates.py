"""Gates in the live feed of a run: when a decision is required, and what it came to."""

from __future__ import annotations

import pytest

from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.listening import Listener, check_resuming, heard, lasting, lines
from tests.engine.support import flowing
from tests.operations.support import definition, node, open_gate


def gated(**config: object) -> dict[str, object]:
    return definition(
        node("before", "transform", value="ready"),
        node("ok", "approval", **{"prompt": "Ship?", "on_deny": "continue", **config}),
        node("after", "transform", value="@ok"),
    )


@pytest.mark.parametrize(("decision", "told"), [("approve", "approved"), ("deny", "denied")])
async def test_a_gate_is_told_when_it_opens_and_when_it_is_decided(
    world: World, decision: str, told: str
) -> None:
    async with world() as sw, sw.worker():
        run = await sw.start_document(gated(approvers=["ada"]))
        listener = Listener(sw, run.id)
        gate = await open_gate(sw, run.id)
        await listener.until(lambda found: "run.waiting" in found)
        await sw.gates.decide(gate.id, decision, by="ada", note="As agreed.")
        live = await listener.all()
        assert [line for line in lines(live) if line.startswith(("gate", "run"))] == [
            "run.started", "gate.required ok", "run.waiting", f"gate.{told} ok", "run.resumed 1",
            "run.finished",
        ]  # fmt: skip
        by_type = {event.type: event.data for event in live}
        required = by_type["gate.required"]
        assert (required["gate_id"], required["prompt"]) == (gate.id, "Ship?")
        assert required["approvers"] == ["ada"]
        assert by_type[f"gate.{told}"]["by"] == ["ada"]
        assert by_type[f"gate.{told}"]["note"] == "As agreed."
        await check_resuming(sw, run.id, live)


async def test_a_gate_decided_while_no_worker_is_there_is_told_at_once(
    world: World, clock: FakeClock
) -> None:
    async with world() as sw:
        async with sw.worker():
            run = await sw.start_document(gated())
            gate = await open_gate(sw, run.id)
        listener = Listener(sw, run.id)
        await listener.until(lambda found: "run.waiting" in found)
        await sw.gates.decide(gate.id, "approve", by="ada")
        async with flowing(clock):
            await listener.until(lambda found: "gate.approved ok" in found)
        async with sw.worker():
            await check_resuming(sw, run.id, await listener.all())


async def test_a_gate_whose_time_is_up_is_told_to_have_expired(
    world: World, clock: FakeClock
) -> None:
    async with world() as sw, sw.worker():
        run = await sw.start_document(gated(timeout="5s", on_timeout="approve"))
        listener = Listener(sw, run.id)
        await listener.until(lambda found: "run.waiting" in found)
        async with flowing(clock):
            live = await listener.all()
        assert [line for line in lines(live) if line.startswith("gate")] == [
            "gate.required ok", "gate.expired ok",
        ]  # fmt: skip
        (asked,) = [event for event in live if event.type == "gate.required"]
        assert asked.data["deadline_at"].endswith("Z")
        await check_resuming(sw, run.id, live)


async def test_a_gate_that_nobody_decided_before_its_run_was_cancelled_stays_undecided(
    world: World,
) -> None:
    async with world() as sw, sw.worker():
        run = await sw.start_document(gated())
        listener = Listener(sw, run.id)
        await open_gate(sw, run.id)
        await sw.cancel(run.id)
        live = await listener.all()
        assert [line for line in lines(live) if line.startswith("gate")] == ["gate.required ok"]
        await check_resuming(sw, run.id, live)


async def test_gates_side_by_side_are_told_one_by_one(world: World) -> None:
    document = {
        "name": "made",
        "nodes": [node(f"ok{number}", "approval", prompt=f"{number}?") for number in range(3)],
        "edges": [],
    }
    async with world() as sw, sw.worker():
        run = await sw.start_document(document)
        listener = Listener(sw, run.id)
        await listener.until(lambda found: "run.waiting" in found)
        for gate in sorted(await sw.gates.list(run.id), key=lambda gate: gate.prompt, reverse=True):
            await sw.gates.decide(gate.id, "approve", by="ada")
        live = await listener.all()
        assert sorted(line for line in lines(live) if line.startswith("gate")) == sorted(
            [f"gate.{what} ok{number}" for what in ("required", "approved") for number in range(3)]
        )
        assert lasting(await heard(sw, run.id))[-1] == "run.finished"
        await check_resuming(sw, run.id, live)

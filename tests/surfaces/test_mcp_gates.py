"""Runs that wait for a decision: the caller is asked where that can be, and told how where not."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest

from stepwell.mcp.seat import Manner
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import until
from tests.operations.support import definition, node, open_gate
from tests.surfaces.agents import (
    GATED,
    NEW,
    OLD,
    Person,
    agent,
    done,
    generations,
    publish,
    refused,
    seat,
)


@generations
async def test_whoever_is_asked_approves_and_the_run_goes_on(world: World, generation: str) -> None:
    ada = Person(decision="approve", note="Looks right.")
    async with world() as sw, sw.worker():
        await publish(sw, GATED)
        async with agent(seat(sw, "run"), generation, elicitation_callback=ada) as client:
            answer = await done(client, "run_ship", tag="v1")
        assert answer["output"] == {"by": ["ada"], "note": "Looks right."}
        [asked] = ada.asked
        assert asked.startswith("Ship v1?")
        assert '"tag": "v1"' in asked
        assert len((await sw.list_runs()).items) == 1


@generations
async def test_whoever_is_asked_denies_and_the_run_is_cancelled(
    world: World, generation: str
) -> None:
    ada = Person(decision="deny")
    async with world() as sw, sw.worker():
        await publish(sw, GATED)
        async with agent(seat(sw, "run"), generation, elicitation_callback=ada) as client:
            error = await refused(client, "run_ship", tag="v1")
        assert error["code"] == "run_cancelled"
        [run] = (await sw.list_runs()).items
        assert (run.status, error["details"]["run_id"]) == ("cancelled", run.id)
        assert run.error is not None
        assert "denied, by ada" in run.error.message


@generations
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_whoever_does_not_answer_leaves_the_gate_open(
    world: World, generation: str, action: str
) -> None:
    ada = Person(action)
    async with world() as sw, sw.worker():
        await publish(sw, GATED)
        async with agent(seat(sw, "run"), generation, elicitation_callback=ada) as client:
            answer = await done(client, "run_ship", tag="v1")
        assert len(ada.asked) == 1
        [gate] = await sw.gates.list(answer["run_id"])
        assert answer["gates"][0]["id"] == gate.id


@generations
async def test_who_cannot_be_asked_is_told_how_to_decide(world: World, generation: str) -> None:
    manner = Manner(wait_seconds=60, url="https://stepwell.test")
    async with world() as sw, sw.worker():
        await publish(sw, GATED)
        async with agent(seat(sw, "run"), generation, manner) as client:
            answer = await done(client, "run_ship", tag="v1")
            [gate] = answer["gates"]
            assert (gate["prompt"], gate["subject"]) == ("Ship v1?", {"tag": "v1"})
            assert gate["link"] == f"https://stepwell.test/gates/{gate['id']}"
            assert "gates_decide" in answer["next"]
            chosen = {"gate_id": gate["id"], "decision": "approve"}
            error = await refused(client, "gates_decide", **chosen, seen_hash="another")
            assert error["code"] == "gate_drifted"
            decided = await done(client, "gates_decide", **chosen, seen_hash=gate["subject_hash"])
            assert decided["decisions"][0]["by"] == "ada"
            assert (await until(sw, answer["run_id"], "completed")).output["by"] == ["ada"]


async def test_without_an_address_there_is_no_link(world: World) -> None:
    async with world() as sw, sw.worker():
        await publish(sw, GATED)
        async with agent(seat(sw)) as client:
            answer = await done(client, "run_ship", tag="v1")
            assert "link" not in answer
            assert "link" not in answer["gates"][0]


@generations
async def test_nobody_is_asked_who_may_not_decide(world: World, generation: str) -> None:
    gated = definition(node("ok", "approval", prompt="Well?", approvers=["grace"]), name="strict")
    ada = Person(decision="approve")
    async with world() as sw, sw.worker():
        await publish(sw, gated)
        async with agent(seat(sw), generation, elicitation_callback=ada) as client:
            answer = await done(client, "run_strict")
        assert ada.asked == []
        assert "grace may decide" in answer["gates"][0]["who"]


@generations
async def test_one_approval_of_two_waits_for_the_other(world: World, generation: str) -> None:
    gated = definition(node("ok", "approval", prompt="Both?", required=2), name="two")
    ada = Person(decision="approve")
    async with world() as sw, sw.worker():
        await publish(sw, gated)
        async with agent(seat(sw), generation, elicitation_callback=ada) as client:
            answer = await done(client, "run_two")
        assert len(ada.asked) == 1
        assert "1 of 2, approved by ada" in answer["gates"][0]["who"]
        await sw.gates.decide(answer["gates"][0]["id"], "approve", by="grace")
        await until(sw, answer["run_id"], "completed")


@generations
async def test_several_gates_are_asked_about_until_none_is_left(
    world: World, generation: str
) -> None:
    nodes = [node(name, "approval", prompt=f"{name}?") for name in ("left", "right", "last")]
    edges = [{"source": each, "target": "last"} for each in ("left", "right")]
    ada = Person(decision="approve")
    async with world() as sw, sw.worker():
        await publish(sw, {"name": "gates", "nodes": nodes, "edges": edges})
        async with agent(seat(sw), generation, elicitation_callback=ada) as client:
            assert (await done(client, "run_gates"))["status"] == "completed"
        assert sorted(each.partition("?")[0] for each in ada.asked) == ["last", "left", "right"]


@generations
async def test_a_decision_that_comes_too_late_changes_nothing(
    world: World, generation: str
) -> None:
    async with world() as sw, sw.worker():
        await publish(sw, GATED)

        async def slow(_: Any, __: Any) -> types.ElicitResult:
            [run] = (await sw.list_runs()).items
            await sw.gates.decide((await open_gate(sw, run.id)).id, "approve", by="grace")
            return types.ElicitResult(action="accept", content={"decision": "deny"})

        async with agent(seat(sw), generation, elicitation_callback=slow) as client:
            assert (await done(client, "run_ship", tag="v1"))["output"]["by"] == ["grace"]


@generations
@pytest.mark.parametrize(
    "content",
    [
        None,
        {},
        {"decision": "perhaps"},
        {"decision": 7},
        {"decision": "deny", "note": "x" * 10_001},
    ],
)
async def test_an_answer_that_is_none_decides_nothing(
    world: World, generation: str, content: Any
) -> None:
    async def odd(_: Any, __: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content=content)

    async with world() as sw, sw.worker():
        await publish(sw, GATED)
        async with agent(seat(sw), generation, elicitation_callback=odd) as client:
            answer = await done(client, "run_ship", tag="v1")
        [gate] = await sw.gates.list(answer["run_id"])
        assert (answer["gates"][0]["id"], gate.decisions) == (gate.id, [])


async def test_a_call_that_comes_again_goes_on_with_its_run(world: World) -> None:
    """As a client does that was started anew meanwhile, or lost the answer."""
    async with world() as sw, sw.worker():
        await publish(sw, GATED)
        async with agent(seat(sw), NEW, elicitation_callback=Person()) as client:
            asked = await client.session.call_tool(
                "run_ship", {"tag": "v1"}, allow_input_required=True
            )
            assert isinstance(asked, types.InputRequiredResult)
            [gate_id] = asked.input_requests or {}
        said = {gate_id: types.ElicitResult(action="accept", content={"decision": "approve"})}
        async with agent(seat(sw), NEW, elicitation_callback=Person()) as client:
            for _ in range(2):
                result = await client.session.call_tool(
                    "run_ship", {"tag": "v1"}, input_responses=said,
                    request_state=asked.request_state,
                )  # fmt: skip
                assert result.structured_content["output"]["by"] == ["ada"]
        assert len((await sw.list_runs()).items) == 1


async def test_nobody_is_asked_again_about_a_gate_whose_time_is_up(
    world: World, clock: FakeClock
) -> None:
    gated = definition(node("ok", "approval", prompt="Soon?", timeout="1h"), name="soon")
    async with world() as sw, agent(seat(sw), elicitation_callback=Person()) as client:
        async with sw.worker():
            await publish(sw, gated)
            asked = await client.session.call_tool("run_soon", {}, allow_input_required=True)
            assert isinstance(asked, types.InputRequiredResult)
        clock.advance("2h")
        [gate_id] = asked.input_requests or {}
        said = {gate_id: types.ElicitResult(action="accept", content={"decision": "approve"})}
        result = await client.session.call_tool(
            "run_soon", {}, input_responses=said, request_state=asked.request_state
        )
        assert result.structured_content["gates"][0]["id"] == gate_id


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("", "invalid_input"),
        ("{}", "invalid_input"),
        ('{"run_id": 1, "seen": {}}', "invalid_input"),
        ('{"run_id": "nosuchrun", "seen": {}}', "run_not_found"),
        ("[" * 10_000, "invalid_input"),
    ],
)
async def test_a_state_that_was_not_given_is_refused(world: World, state: str, code: str) -> None:
    async with world() as sw:
        await publish(sw, GATED)
        async with agent(seat(sw)) as client:
            result = await client.call_tool("run_ship", {"tag": "v1"}, request_state=state)
            assert result.is_error
            assert result.structured_content["error"]["code"] == code
        assert (await sw.list_runs()).items == []


async def test_a_state_reaches_no_run_of_another_definition_or_workspace(world: World) -> None:
    async with world() as sw, world(workspace="other") as other, sw.worker():
        await publish(sw, GATED, {**GATED, "name": "second"})
        await publish(other, GATED)
        run = await sw.start("second", {"tag": "v1"})
        state = f'{{"run_id": "{run.id}", "seen": {{}}}}'
        for place, code in ((sw, "invalid_input"), (other, "run_not_found")):
            async with agent(seat(place)) as client:
                result = await client.call_tool("run_ship", {"tag": "v1"}, request_state=state)
                assert result.structured_content["error"]["code"] == code


async def test_a_client_that_refuses_to_ask_is_told_how_to_decide(world: World) -> None:
    async def unable(_: Any, __: Any) -> types.ErrorData:
        return types.ErrorData(code=types.INTERNAL_ERROR, message="Nobody is here.")

    async with world() as sw, sw.worker():
        await publish(sw, GATED)
        async with agent(seat(sw), OLD, elicitation_callback=unable) as client:
            assert "gates_decide" in (await done(client, "run_ship", tag="v1"))["next"]

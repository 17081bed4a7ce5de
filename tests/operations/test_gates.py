"""Gates: who decides about what, once, in time; and what their runs make of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell.errors import (
    GateClosed,
    GateDrifted,
    GateNotFound,
    InvalidInput,
    InvalidName,
    NotAnApprover,
    TokenInvalid,
)
from stepwell.operation import Caller
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import flowing, until
from tests.operations.people import call
from tests.operations.support import definition, node, open_gate

calls: list[str] = []


def tell(what: str) -> str:
    calls.append(what)
    return what


def gated(**config: Any) -> dict[str, Any]:
    return definition(
        node("before", "python", function="tell", input="before"),
        node("ok", "approval", **{"prompt": "Ship {{input.tag}}?", "subject": "@before", **config}),
        node("after", "transform", value="@ok"),
    )


async def test_what_was_approved_goes_on_and_nothing_before_the_gate_runs_again(
    world: World,
) -> None:
    calls.clear()
    async with world(functions=[tell]) as sw:
        async with sw.worker():
            run = await sw.start_document(gated(), {"tag": "v1"})
            gate = await open_gate(sw, run.id)
            assert (gate.prompt, gate.subject, gate.definition) == ("Ship v1?", "before", "made")
            assert (await sw.explain(run.id)).code == "gate"
    async with world(functions=[tell]) as sw, sw.worker():
        await sw.gates.decide(gate.id, "approve", by="ada", note="go")
        output = await run_result(sw, run.id)
    assert output["approved"] is True
    assert (output["by"], output["note"]) == (["ada"], "go")
    assert calls == ["before"]


async def run_result(sw: Any, run_id: str) -> Any:
    return await sw.result(run_id, 30)


@pytest.mark.parametrize(
    ("on_deny", "status"), [("cancel", "cancelled"), ("fail", "failed"), ("continue", "completed")]
)
async def test_a_denial_cancels_fails_or_goes_on(world: World, on_deny: str, status: str) -> None:
    async with world(functions=[tell]) as sw, sw.worker():
        run = await sw.start_document(gated(on_deny=on_deny), {"tag": "v1"})
        gate = await open_gate(sw, run.id)
        await sw.gates.decide(gate.id, "deny", by="ada", note="not on a Friday")
        ended = await until(sw, run.id, "completed", "failed", "cancelled")
        assert ended.status == status
        if status == "completed":
            assert ended.output["approved"] is False
        else:
            assert ended.error is not None
            assert "not on a Friday" in ended.error.message
            assert ended.error.step == "ok"


@pytest.mark.parametrize(
    ("on_timeout", "status"),
    [("approve", "completed"), ("deny", "cancelled"), ("fail", "failed")],
)
async def test_a_gate_whose_time_is_up_takes_its_default(
    world: World, clock: FakeClock, on_timeout: str, status: str
) -> None:
    async with world(functions=[tell]) as sw, sw.worker():
        document = gated(timeout="5s", on_timeout=on_timeout)
        run = await sw.start_document(document, {"tag": "v1"})
        gate = await open_gate(sw, run.id)
        async with flowing(clock):
            assert (await until(sw, run.id, "completed", "failed", "cancelled")).status == status
        assert (await sw.gates.get(gate.id)).status == "expired"
        with pytest.raises(GateClosed):
            await sw.gates.decide(gate.id, "approve", by="ada")


async def test_nobody_decides_after_the_deadline_even_if_the_run_has_not_noticed(
    world: World, clock: FakeClock
) -> None:
    async with world(functions=[tell]) as sw:
        async with sw.worker():
            run = await sw.start_document(gated(timeout="1h"), {"tag": "v1"})
            gate = await open_gate(sw, run.id)
        clock.advance("2h")
        with pytest.raises(GateClosed, match="ran out of time"):
            await sw.gates.decide(gate.id, "approve", by="ada")


async def test_of_two_decisions_at_once_one_counts(world: World) -> None:
    async with world(functions=[tell]) as sw, sw.worker():
        run = await sw.start_document(gated(on_deny="continue"), {"tag": "v1"})
        gate = await open_gate(sw, run.id)
        results = await asyncio.gather(
            sw.gates.decide(gate.id, "approve", by="ada"),
            sw.gates.decide(gate.id, "deny", by="bob"),
            return_exceptions=True,
        )
        assert sum(isinstance(each, GateClosed) for each in results) == 1
        output = await sw.result(run.id, 30)
        [won] = [each for each in results if not isinstance(each, BaseException)]
        assert output["approved"] is (won.status == "approved")


async def test_several_people_have_to_approve_and_none_of_them_twice(world: World) -> None:
    async with world(functions=[tell]) as sw, sw.worker():
        document = gated(required=2, approvers=["ada", "bob", "admin"])
        run = await sw.start_document(document, {"tag": "v1"})
        gate = await open_gate(sw, run.id)
        with pytest.raises(NotAnApprover, match="ada, bob, admin"):
            await sw.gates.decide(gate.id, "approve", by="eve")
        assert (await sw.gates.decide(gate.id, "approve", by="ada")).status == "open"
        with pytest.raises(NotAnApprover, match="already"):
            await sw.gates.decide(gate.id, "approve", by="ada")
        closed = await sw.gates.decide(gate.id, "approve", by="root", roles=["admin"])
        assert closed.status == "approved"
        assert (await sw.result(run.id, 30))["by"] == ["ada", "root"]


async def test_a_token_decides_once_and_is_not_in_the_store(world: World) -> None:
    async with world(functions=[tell]) as sw, sw.worker():
        document = gated(required=2, approvers=["nobody"])
        run = await sw.start_document(document, {"tag": "v1"})
        gate = await open_gate(sw, run.id)
        token = await sw.gates.token(gate.id)
        other = await sw.gates.token(gate.id)
        assert token not in str(await sw.gates.get(gate.id))
        with pytest.raises(TokenInvalid):
            await sw.gates.decide(gate.id, "approve", by="a", token=token[:-1])
        await sw.gates.decide(gate.id, "approve", by="a", token=token)
        with pytest.raises(TokenInvalid):
            await sw.gates.decide(gate.id, "approve", by="b", token=token)
        await sw.gates.decide(gate.id, "approve", by="b", token=other)
        assert (await sw.result(run.id, 30))["approved"] is True


async def test_a_token_is_given_out_by_those_who_may_decide_and_by_owners(world: World) -> None:
    async with world(functions=[tell]) as sw, sw.worker():
        run = await sw.start_document(gated(approvers=["ada", "member"]), {"tag": "v1"})
        gate = await open_gate(sw, run.id)
        agent = Caller("agent", "build", "viewer", "a")
        with pytest.raises(NotAnApprover, match="ada, member may"):
            await call(sw, agent, "gates.token", gate_id=gate.id)
        for caller in (
            Caller("ada", "build", "viewer", "b"),
            Caller("bob", "build", "member", "c"),
            Caller("eve", "own", "owner", "d"),
        ):
            assert await call(sw, caller, "gates.token", gate_id=gate.id)
        everybodys = await sw.start_document(gated(), {"tag": "v1"})
        gate = await open_gate(sw, everybodys.id)
        assert await call(sw, agent, "gates.token", gate_id=gate.id)


async def test_a_decision_about_something_else_than_was_shown_is_refused(world: World) -> None:
    async with world(functions=[tell]) as sw, sw.worker():
        run = await sw.start_document(gated(), {"tag": "v1"})
        gate = await open_gate(sw, run.id)
        with pytest.raises(GateDrifted):
            await sw.gates.decide(gate.id, "approve", by="ada", seen_hash="0" * 64)
        await sw.gates.decide(gate.id, "approve", by="ada", seen_hash=gate.subject_hash)
        await sw.result(run.id, 30)


async def test_what_was_approved_for_one_input_is_asked_again_for_another(world: World) -> None:
    async with world(functions=[tell]) as sw, sw.worker():
        run = await sw.start_document(gated(), {"tag": "v1"})
        gate = await open_gate(sw, run.id)
        await sw.gates.decide(gate.id, "approve", by="ada")
        await sw.result(run.id, 30)
        same = await sw.fork(run.id, "after")
        assert (await same.result(30))["approved"] is True
        other = await sw.fork(run.id, "after", input={"tag": "v2"})
        asked = await open_gate(sw, other.id)
        assert asked.prompt == "Ship v2?"
        assert asked.subject_hash != gate.subject_hash


async def test_a_gate_cannot_be_opened_by_a_signal_or_an_event(world: World) -> None:
    async with world(functions=[tell]) as sw, sw.worker():
        run = await sw.start_document(gated(), {"tag": "v1"})
        gate = await open_gate(sw, run.id)
        with pytest.raises(InvalidName):
            await sw.signal(run.id, f"gate:{gate.id}", {"decision": "approve"})
        with pytest.raises(InvalidName):
            await sw.emit(f"gate:{gate.id}", {"decision": "approve"})


async def test_the_gate_of_a_run_that_was_cancelled_is_gone(world: World) -> None:
    async with world(functions=[tell]) as sw, sw.worker():
        run = await sw.start_document(gated(), {"tag": "v1"})
        gate = await open_gate(sw, run.id)
        await sw.cancel(run.id)
        assert await sw.gates.list() == []
        with pytest.raises(GateClosed, match="has ended"):
            await sw.gates.decide(gate.id, "approve", by="ada")
        with pytest.raises(GateNotFound):
            await sw.gates.get("nothing")


async def test_the_gate_of_a_child_is_found_by_its_parent(world: World) -> None:
    child = definition(node("ask", "approval", prompt="Really?"), name="child")
    parent = definition(node("kid", "run", definition="child"), name="parent")
    async with world() as sw, sw.worker():
        await sw.definitions.publish(child)
        run = await sw.start_document(parent)
        gate = await open_gate(sw, run.id)
        assert gate.prompt == "Really?"
        assert await sw.gates.list((await sw.start_document(child)).id) != [gate]
        await sw.gates.decide(gate.id, "approve", by="ada")
        assert (await run.result(30))["approved"] is True


@pytest.mark.parametrize("how", ["cancelled", "timed_out", "forked"])
async def test_a_run_that_is_taken_up_again_at_its_gate_has_a_gate_of_its_own(
    world: World, clock: FakeClock, how: str
) -> None:
    calls.clear()
    async with world(functions=[tell]) as sw, sw.worker():
        deadline = "1m" if how == "timed_out" else None
        run = await sw.start_document(gated(), {"tag": "v1"}, deadline=deadline)
        first = await open_gate(sw, run.id)
        if how == "forked":
            again = await sw.fork(run.id, next(s.key for s in await sw.steps(run.id) if s.about))
        else:
            if how == "cancelled":
                await sw.cancel(run.id)
            async with flowing(clock):
                await until(sw, run.id, how)
            again = await sw.retry(run.id)
        second = await open_gate(sw, again.id)
        assert second.id != first.id
        await sw.gates.decide(second.id, "approve", by="ada")
        assert (await again.result(30))["approved"] is True
        assert calls == ["before"]


@pytest.mark.parametrize(
    "odd",
    [{"decision": "approved"}, {"by": ""}, {"note": "x" * 10_001}],
    ids=lambda odd: str(odd)[:20],
)
async def test_an_odd_decision_is_refused_and_does_no_harm(
    world: World, odd: dict[str, Any]
) -> None:
    async with world(functions=[tell]) as sw, sw.worker():
        run = await sw.start_document(gated(), {"tag": "v1"})
        gate = await open_gate(sw, run.id)
        given = {"decision": "approve", "by": "ada", "note": ""} | odd
        with pytest.raises(InvalidInput):
            await sw.gates.decide(gate.id, given.pop("decision"), **given)
        assert await sw.gates.list() == [gate]

"""The client: what Python has, over HTTP, with the same records and errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import RunCancelled, RunFailed, RunNotFound, Stepwell
from stepwell.errors import (
    DraftNotFound,
    GateNotFound,
    InputInvalid,
    InvalidDefinition,
    InvalidInput,
    NotSerialisable,
    SignalNotDelivered,
    StepwellError,
    Unauthenticated,
    UnknownDefinition,
)
from stepwell.sdk.client import Client
from stepwell.sdk.requests import error_of
from tests.operations.support import some
from tests.sdk.serving import Server

GRAPH: dict[str, Any] = {
    "name": "ask-first",
    "inputs": {
        "type": "object",
        "properties": {"who": {"type": "string"}},
        "additionalProperties": False,
    },
    "nodes": [
        {"id": "gate", "type": "approval", "config": {"prompt": "Really?"}},
        {"id": "done", "type": "transform", "config": {"value": "yes"}},
    ],
    "edges": [{"source": "gate", "target": "done"}],
}


async def test_a_run_is_started_and_waited_for(client: Client) -> None:
    run = await client.start("greet", {"name": "Ada"})
    assert (run.created, run.status) == (True, "pending")
    assert await run.result(timeout="30s") == {"hello": "Ada"}


async def test_records_are_those_that_python_has(client: Client, server: Server) -> None:
    started = await client.start("greet", {"name": "Ada"}, priority=3, retention="1d")
    await started.result("30s")
    async with Stepwell(server._store_url) as stepwell:
        assert await client.get_run(started.id) == await stepwell.get_run(started.id)
        assert await client.steps(started.id) == await stepwell.steps(started.id)
        assert await client.explain(started.id) == await stepwell.explain(started.id)
        assert await client.list_runs() == await stepwell.list_runs()
        [worker], [same] = await client.workers(), await stepwell.workers()
        assert (worker.id, worker.started_at, worker.programs) == (
            same.id, same.started_at, same.programs,
        )  # fmt: skip


async def test_a_start_with_a_key_gives_the_first_run_again(client: Client) -> None:
    first = await client.start("greet", idempotency_key="today")
    second = await client.start("greet", idempotency_key="today")
    assert (first.id, first.created) == (second.id, True)
    assert not second.created


async def test_a_start_that_waits_brings_the_result_along(lite: Client) -> None:
    run = await lite.start("greet", {"name": "Ada"}, wait="30s")
    assert run.status == "completed"
    assert await run.result() == {"hello": "Ada"}
    broken = await lite.start("break", wait="30s")
    with pytest.raises(RunFailed, match="broken on purpose"):
        await broken.result()
    assert (await lite.start("ask", wait="1ms")).status in ("pending", "running", "waiting")


async def test_how_a_run_ended_is_raised(client: Client) -> None:
    broken = await client.start("break")
    with pytest.raises(RunFailed, match="broken on purpose") as raised:
        await broken.result("30s")
    assert raised.value.run_id == broken.id
    asked = await client.start("ask")
    assert await client.cancel(asked.id)
    assert not await client.cancel(asked.id)
    with pytest.raises(RunCancelled):
        await client.result(asked.id)
    assert (await client.wait(asked.id)).status == "cancelled"


async def test_whoever_waits_too_long_is_told_why(lite: Client) -> None:
    asked = await lite.start("ask")
    with pytest.raises(TimeoutError, match=f"stepwell runs explain {asked.id}"):
        await asked.result(timeout=0.05)


async def test_signals_and_events_reach_runs(client: Client) -> None:
    asked = await client.start("ask")
    await client.signal(asked.id, "answer", {"n": 42})
    assert await asked.result("30s") == {"n": 42}
    with pytest.raises(SignalNotDelivered):
        await client.signal(asked.id, "answer", "too late")
    assert await client.emit("seen", {"a": 1}, key="k", once=True)
    assert not await client.emit("seen", {"a": 2}, key="k", once=True)


async def test_runs_are_retried_and_forked(client: Client) -> None:
    broken = await client.start("break")
    with pytest.raises(RunFailed):
        await broken.result("30s")
    again = await client.retry(broken.id)
    assert (await client.get_run(again.id)).forked_from == broken.id
    done = await client.start("greet", {"name": "Ada"})
    await done.result("30s")
    same = await client.fork(done.id, "greet")
    other = await client.fork(done.id, "greet", input={"name": "Bob"})
    nothing = await client.fork(done.id, "greet", input=None)
    assert await same.result("30s") == {"hello": "Ada"}
    assert await other.result("30s") == {"hello": "Bob"}
    assert await nothing.result("30s") == {"hello": "you"}


async def test_runs_are_listed_by_what_is_looked_for(client: Client) -> None:
    before = datetime.now(UTC)
    runs = [await client.start("greet", {"name": name}) for name in ("Ada", "Bob", "42")]
    for run in runs:
        await run.result("30s")
    ids = [run.id for run in reversed(runs)]
    assert [run.id for run in (await client.list_runs(definition="greet")).items] == ids
    assert [run.id async for run in client.all_runs(limit=1)] == ids
    assert [run.id async for run in client.all_runs(input={"name": "42"})] == ids[:1]
    completed = client.all_runs(status=["completed", "failed"], since=before)
    assert [run.id async for run in completed] == ids
    assert [run async for run in client.all_runs(until=before - timedelta(hours=1))] == []
    with pytest.raises(InvalidInput, match="sideways"):
        await client.list_runs(status="sideways")
    with pytest.raises(InvalidInput, match="dot"):
        await client.list_runs(input={"a.b": 1})


async def test_a_deadline_may_be_a_time(lite: Client) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    run = await lite.get_run((await lite.start("ask", deadline=at)).id)
    assert run.deadline_at is not None
    assert abs(run.deadline_at - at) < timedelta(seconds=10)


async def test_definitions_are_published_changed_and_deleted(client: Client) -> None:
    there = client.definitions
    assert (await there.validate(GRAPH)).ok
    published = await there.publish(GRAPH, note="first")
    assert (published.created, published.definition.name) == (True, "ask-first")
    assert (await there.get("ask-first")).hash == published.revision.hash
    assert [each.name for each in await there.list()] == ["ask-first"]
    assert (await there.document("ask-first"))["nodes"][0]["id"] == "gate"
    with pytest.raises(DraftNotFound):
        await there.get_draft("ask-first")
    changed = {**GRAPH, "nodes": GRAPH["nodes"][:1], "edges": []}
    draft = await there.save_draft("ask-first", changed)
    assert (await there.get_draft("ask-first")).etag == draft.etag
    again = await there.publish_draft("ask-first", if_match=draft.etag)
    assert await there.diff("ask-first", published.revision.hash) == await there.diff(
        "ask-first", published.revision.hash, again.revision.hash
    )
    back = await there.rollback("ask-first", published.revision.hash)
    assert back.revision.hash == published.revision.hash
    assert [each.current for each in await there.history("ask-first")] == [True, False]
    assert (await there.revision("ask-first", again.revision.hash)).hash == again.revision.hash
    assert not (await there.set_enabled("ask-first", False)).enabled
    await there.delete("ask-first")
    with pytest.raises(UnknownDefinition):
        await there.get("ask-first")
    assert (await there.create("ask-again")).hash is None
    assert await there.discard_draft("ask-again")


async def test_a_gate_is_decided(client: Client) -> None:
    await client.definitions.publish(GRAPH, enabled=True)
    run = await client.start("ask-first", {"who": "Ada"})
    gates = await some(lambda: client.gates.list(run.id))
    assert await client.gates.get(gates[0].id) == gates[0]
    decided = await client.gates.decide(gates[0].id, "approve", note="fine")
    assert decided.decisions[0].note == "fine"
    assert await run.result("30s") is not None
    with pytest.raises(InputInvalid):
        await client.start("ask-first", {"whom": "Ada"})
    with pytest.raises(GateNotFound):
        await client.gates.get("nowhere")


async def test_errors_are_those_that_python_has(lite: Client, lite_server: Server) -> None:
    with pytest.raises(RunNotFound) as raised:
        await lite.get_run("0" * 26)
    assert raised.value.details == {"run_id": "0" * 26}
    with pytest.raises(UnknownDefinition):
        await lite.start("nobody/knows it?")
    with pytest.raises(InvalidDefinition) as wrong:
        await lite.definitions.publish({"name": "x", "nodes": [{"id": "a", "type": "htpp"}]})
    assert wrong.value.details["problems"]
    with pytest.raises(NotSerialisable):
        await lite.start("greet", object())
    async with Client(lite_server.url, "sw_wrong") as stranger:
        with pytest.raises(Unauthenticated):
            await stranger.list_runs()


def test_a_code_that_is_not_known_is_kept() -> None:
    error = error_of(418, b'{"code": "teapot", "detail": "short and stout"}', "here")
    assert (type(error), error.code, error.message) == (StepwellError, "teapot", "short and stout")


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8787", "ftp://x", "http://", "http://a@b", 7, "http://[x", "http://x:99999",
     "http://x?y"],
)  # fmt: skip
def test_a_url_that_names_no_server_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="http://localhost:8787"):
        Client(url)


def test_a_token_that_can_be_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="token"):
        Client("http://localhost", "sw_ü\n")


def test_url_and_token_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPWELL_URL", raising=False)
    with pytest.raises(InvalidInput, match="STEPWELL_URL"):
        Client()
    monkeypatch.setenv("STEPWELL_URL", "http://there/prefix/")
    assert repr(Client()) == "<client of http://there/prefix>"

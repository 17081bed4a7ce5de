"""Runs of documents: their input, their children, their time, and the worker that executes them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from stepwell import RunFailed, function, workflow
from stepwell.errors import (
    InputInvalid,
    InvalidDefinition,
    NonRetryable,
    RequestFailed,
    UnknownDefinition,
)
from stepwell.testing.clock import FakeClock
from stepwell.testing.crash import vanish
from tests.conftest import World
from tests.engine.support import eventually, flowing, until, until_code
from tests.operations.support import definition, node

calls: list[Any] = []


@function(name="note")
def note(value: Any) -> Any:
    calls.append(value)
    return value


@function
async def add(a: int, b: int = 1) -> int:
    return a + b


@function
def refuse() -> None:
    calls.append("refuse")
    raise NonRetryable("never")


FUNCTIONS = [note, add, refuse]


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


async def test_python_functions_are_called_from_a_graph(world: World) -> None:
    document = definition(
        node("sum", "python", function="add", args={"a": "{{input.n}}", "b": 2}),
        node("noted", "python", function="note", input="@sum"),
    )
    async with world(functions=FUNCTIONS) as sw, sw.worker():
        run = await sw.start_document(document, {"n": 40})
        assert await run.result(30) == 42
        assert calls == [42]


async def test_the_input_is_checked_and_filled_with_defaults(world: World) -> None:
    inputs = {
        "type": "object", "required": ["who"],
        "properties": {"who": {"type": "string"}, "n": {"type": "integer", "default": 3}},
    }  # fmt: skip
    document = definition(node("say", "transform", value="@input"), inputs=inputs)
    async with world() as sw, sw.worker():
        run = await sw.start_document(document, {"who": "ada"})
        assert await run.result(30) == {"who": "ada", "n": 3}
        with pytest.raises(InputInvalid, match="did you mean 'who'") as refused:
            await sw.start_document(document, {"n": "many", "woh": 1})
        assert len(refused.value.details["problems"]) == 3


async def test_a_document_with_problems_is_not_started(world: World) -> None:
    async with world() as sw:
        with pytest.raises(InvalidDefinition) as refused:
            await sw.start_document(definition(node("a", "nonsense"), node("b", "shell")))
        codes = {each["code"] for each in refused.value.details["problems"]}
        assert codes == {"unknown_type", "missing_field"}


async def test_a_run_runs_its_own_definition_without_being_published(world: World) -> None:
    again = {
        "id": "again", "type": "run", "when": "input.n > 0",
        "config": {"definition": "made", "input": {"n": "{{minus.n}}"}},
    }  # fmt: skip
    document = {
        "name": "made",
        "nodes": [
            node("minus", "code", code="{'n': input['n'] - 1}", input="@input"),
            node("noted", "python", function="note", input="{{input.n}}"),
            again,
        ],
        "edges": [],
        "output": {"n": "@input.n", "below": "@again"},
    }
    async with world(functions=FUNCTIONS) as sw, sw.worker():
        run = await sw.start_document(document, {"n": 3})
        output = await run.result(30)
        depth = 0
        while output["below"] is not None:
            output, depth = output["below"], depth + 1
        assert depth == 3
        assert sorted(calls) == [0, 1, 2, 3]
        page = await sw.list_runs(definition="made")
        assert {each.revision for each in page.items} == {page.items[0].revision}


async def test_a_graph_starts_python_workflows_and_takes_their_output(world: World) -> None:
    @workflow(name="double")
    async def double(ctx: Any, input: Any) -> Any:
        return await ctx.step("double", lambda: input["n"] * 2)

    document = definition(
        node("twice", "run", definition="double", input={"n": 21}),
        node("free", "run", definition="double", input={"n": 1}, wait=False),
        output={"twice": "@twice", "free": "@free.run_id"},
    )
    async with world([double]) as sw, sw.worker():
        run = await sw.start_document(document)
        output = await run.result(30)
        assert output["twice"] == 42
        assert await sw.result(output["free"], 30) == 2


async def test_a_node_that_waits_too_long_times_out(world: World, clock: FakeClock) -> None:
    slow = node("slow", "wait_event", event="never") | {"timeout": "10s"}
    loop = {
        "id": "spin", "type": "loop", "timeout": "20s",
        "config": {"while": "true", "max_iterations": 1000, "delay": "5s"},
        "body": {"nodes": [node("turn", "transform", value=1)]},
    }  # fmt: skip
    document = definition(slow, output=1) | {"nodes": [slow, loop], "edges": []}
    async with world() as sw, sw.worker():
        run = await sw.start_document(document)
        async with flowing(clock):
            ended = await until(sw, run.id, "completed", "failed")
        steps = {step.key: step for step in await sw.steps(run.id)}
        assert ended.error is not None
        assert ended.error.type == "step_timed_out"
        for key in ("slow", "spin"):
            error = steps[key].error
            assert error is None or error.type == "step_timed_out"
            assert steps[key].status in ("failed", "skipped")


async def test_a_child_that_fails_is_run_again_if_its_node_says_so(
    world: World, clock: FakeClock
) -> None:
    @workflow(name="flaky")
    async def flaky(ctx: Any, input: Any) -> Any:
        calls.append("flaky")
        if len(calls) < 3:
            raise ValueError("not yet")
        return "at last"

    retried = node("child", "run", definition="flaky") | {"retry": {"attempts": 3, "base": "1m"}}
    async with world([flaky]) as sw, sw.worker():
        run = await sw.start_document(definition(retried))
        async with flowing(clock):
            assert await run.result() == "at last"
        assert calls == ["flaky"] * 3


async def test_nonretryable_errors_of_functions_are_not_tried_again(world: World) -> None:
    refused = node("no", "python", function="refuse") | {"retry": {"attempts": 5}}
    async with world(functions=FUNCTIONS) as sw, sw.worker():
        run = await sw.start_document(definition(refused))
        with pytest.raises(RunFailed, match="never"):
            await run.result(30)
        assert calls == ["refuse"]


async def test_the_next_attempt_waits_as_long_as_the_other_side_asks(
    world: World, clock: FakeClock
) -> None:
    def busy() -> str:
        calls.append(clock.now())
        if len(calls) == 1:
            raise RequestFailed("busy", retry_after_seconds=300)
        return "done"

    polite = node("ask", "python", function="busy") | {"retry": {"attempts": 2, "base": "1s"}}
    async with world(functions={"busy": busy}) as sw, sw.worker():
        run = await sw.start_document(definition(polite))
        async with flowing(clock):
            assert await run.result() == "done"
        assert calls[1] - calls[0] >= 300_000_000


async def test_tasks_wait_to_be_advanced(world: World) -> None:
    document = definition(
        node("build", "task", title="Build {{input.tag}}", instructions="make"),
        node("after", "transform", value="@build"),
    )
    async with world() as sw, sw.worker():
        run = await sw.start_document(document, {"tag": "v1"})
        await until_code(sw, run.id, "task")
        [task] = await sw.tasks(run.id)
        assert (task["step"], task["title"], task["instructions"]) == ("build", "Build v1", "make")
        await sw.advance(run.id, "build", summary="built", output={"size": 3})
        assert await run.result(30) == {"summary": "built", "output": {"size": 3}}


async def test_tasks_of_an_unattended_run_and_its_children_count_as_done(world: World) -> None:
    again = {
        "id": "again", "type": "run", "when": "input.deep",
        "config": {"definition": "made", "input": {"deep": False}},
    }  # fmt: skip
    document = {"name": "made", "nodes": [node("t", "task", title="do"), again]}
    async with world() as sw, sw.worker():
        trigger = {"type": "manual", "auto_advance": True}
        run = await sw.start_document(document, {"deep": True}, trigger=trigger)
        output = await run.result(30)
        assert output["again"]["t"] == {"summary": "", "output": None}


async def test_a_task_that_failed_fails_its_node(world: World) -> None:
    async with world() as sw, sw.worker():
        run = await sw.start_document(definition(node("t", "task", title="do")))
        await until_code(sw, run.id, "task")
        await sw.advance(run.id, "t", summary="no tools", failed=True)
        with pytest.raises(RunFailed, match="no tools"):
            await run.result(30)


async def test_a_graph_goes_on_in_another_process_from_the_document_in_the_store(
    world: World,
) -> None:
    document = definition(
        node("first", "python", function="note", input="first"),
        node("wait", "wait_event", event="go"),
        node("last", "python", function="note", input="last"),
    )
    async with world(functions=FUNCTIONS) as sw:
        async with sw.worker() as worker:
            run = await sw.start_document(document)
            await eventually(lambda: calls)
            await until_code(sw, run.id, "event")
            vanish(worker)
    async with world(functions=FUNCTIONS) as sw, sw.worker():
        await sw.signal(run.id, "go")
        assert await sw.result(run.id, 30) == "last"
        assert calls == ["first", "last"]


async def test_events_that_a_graph_emits_reach_other_runs(world: World) -> None:
    waiting = definition(node("wait", "wait_event", event="done", match={"n": 1}), name="waiting")
    telling = definition(node("tell", "emit", event="done", payload={"n": "{{input.n}}"}))
    async with world() as sw, sw.worker():
        first = await sw.start_document(waiting)
        await until_code(sw, first.id, "event")
        await asyncio.gather(
            *[(await sw.start_document(telling, {"n": n})).result(30) for n in (2, 1)]
        )
        assert await first.result(30) == {"n": 1}


async def test_a_retry_goes_back_to_all_that_failed(world: World) -> None:
    gate = asyncio.Event()

    async def late() -> str:
        await gate.wait()
        return fixed("late")

    def early() -> str:
        return fixed("early")

    def fixed(name: str) -> str:
        calls.append(name)
        if calls.count(name) == 1:
            raise ValueError(name)
        return name

    document = definition(name="two") | {
        "nodes": [
            node("late", "python", function="late"), node("early", "python", function="early"),
            node("good", "python", function="note", input="good"),
        ],
    }  # fmt: skip
    functions = {"late": late, "early": early, "note": note}
    async with world(functions=functions) as sw, sw.worker():
        run = await sw.start_document(document)
        while "failed" not in [step.status for step in await sw.steps(run.id)]:
            await asyncio.sleep(0.001)
        gate.set()
        ended = await until(sw, run.id, "failed")
        assert "early" in str(ended.error)
        assert "late" in str(ended.error)
        again = await sw.retry(run.id)
        assert await again.result(30) == {"late": "late", "early": "early", "good": "good"}
        assert sorted(calls) == ["early", "early", "good", "late", "late"]


async def test_runs_that_start_each_other_without_end_are_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.engine.context.MAX_DEPTH", 5)
    document = definition(node("again", "run", definition="made"))
    async with world() as sw, sw.worker():
        run = await sw.start_document(document)
        with pytest.raises(RunFailed, match="5 runs have started each other"):
            await run.result(30)
        assert len((await sw.list_runs(definition="made")).items) == 6


async def test_a_version_of_data_that_was_never_published_is_not_waited_for(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(definition(node("a", "transform", value=1)))
        with pytest.raises(UnknownDefinition, match="no version 9"):
            await sw.start("made", version=9)


async def test_plain_functions_run_in_the_threads_of_steps(world: World) -> None:
    """Nobody waits for those in the end, as for the threads of asyncio itself."""

    def where() -> str:
        return threading.current_thread().name

    async with world(functions=[where]) as sw, sw.worker():
        run = await sw.start_document(definition(node("where", "python", function="where")))
        assert (await run.result(30)).startswith("stepwell-step")


@pytest.mark.parametrize("around", ["parallel", "loop", "for_each"])
async def test_fail_run_fails_the_run_from_wherever_it_stands(world: World, around: str) -> None:
    inner = definition(node("bad", "python", function="refuse"), node("next", "transform", value=1))
    inner["edges"][0]["on_failure"] = "fail_run"
    del inner["name"]
    outer: dict[str, Any] = {"id": "outer", "type": "parallel"}
    if around == "loop":
        outer |= {"type": "loop", "config": {"until": "true"}, "body": inner}
    else:
        outer["branches"] = [{"id": "one", **inner}]
    if around == "for_each":
        outer["for_each"] = {"items": [1, 2], "on_item_error": "collect"}
    document = definition(outer, node("after", "transform", value=2))
    document["edges"][0]["on_failure"] = "continue"
    async with world(functions=FUNCTIONS) as sw, sw.worker():
        run = await sw.start_document(document)
        with pytest.raises(RunFailed, match="never"):
            await run.result(30)
        assert "after" not in [step.key for step in await sw.steps(run.id)]

"""Graphs as runs: every construct of the language on a real store, replayed from its journal."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from stepwell import RunFailed, Stepwell, workflow
from stepwell.engine.graph_program import Budget, Interpreter
from stepwell.engine.node_call import NodeCall
from stepwell.errors import NonRetryable
from stepwell.graph.check import check
from stepwell.graph.parse import parse
from stepwell.graph.problems import Problems
from stepwell.graph.scope import Scope
from stepwell.kernel.masking import Masking
from stepwell.stores.sqlite import SqliteStore
from stepwell.testing.clock import FakeClock
from stepwell.testing.crash import vanish
from tests.conftest import World
from tests.engine.support import eventually, flowing, until

calls: Counter[str] = Counter()


class Kind:
    """A type of node that is executed as a step."""

    verbatim: frozenset[str] = frozenset()
    acts = True
    max_timeout = None
    timeout = None

    def __init__(self, act: Any) -> None:
        self.act = act

    def check(self, config: dict[str, Any], path: str, problems: Problems) -> None:
        pass


class Durable(Kind):
    acts = False


async def say(call: NodeCall) -> Any:
    calls[call.key] += 1
    return call.config().get("value")


async def fail(call: NodeCall) -> Any:
    calls[call.key] += 1
    if call.durably.attempt > call.config().get("times", 99):
        return "at last"
    raise ValueError(f"{call.key} failed")


async def hang(call: NodeCall) -> Any:
    calls[call.key] += 1
    await asyncio.Event().wait()


async def nap(call: NodeCall) -> Any:
    await call.durably.sleep(call.key, call.config()["duration"])


async def event(call: NodeCall) -> Any:
    return await call.durably.wait_for_event(call.key, call.config()["event"])


KINDS: Any = {
    "say": Kind(say), "fail": Kind(fail), "hang": Kind(hang), "nap": Durable(nap),
    "event": Durable(event),
}  # fmt: skip


class Vault:
    """There are no secrets here."""

    masking = Masking()

    async def secrets(self) -> dict[str, str]:
        return {}

    def masked(self, output: Any) -> Any:
        return output


class Host:
    vault = Vault()


HOST: Any = Host()


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


def node(node_id: str, kind: str = "say", /, value: Any = None, **fields: Any) -> dict[str, Any]:
    config = fields.pop("config", {}) | ({} if value is None else {"value": value})
    return {"id": node_id, "type": kind, "config": config, **fields}


def edge(source: str, target: str, **fields: Any) -> dict[str, Any]:
    return {"source": source, "target": target, **fields}


def graph(nodes: list[Any], edges: Any = (), **fields: Any) -> Any:
    """A workflow that interprets this graph."""
    problems = Problems()
    document = {"name": "graph", "nodes": nodes, "edges": list(edges), **fields}
    definition = parse(document, {}, problems)
    assert definition is not None
    plan = check(definition, KINDS, problems)
    assert problems.found == []
    assert plan is not None

    @workflow(name="graph")
    async def body(ctx: Any, input: Any) -> Any:
        budget = Budget(definition.policy.max_steps, "its policy", {})
        interpreter = Interpreter(ctx, KINDS, HOST, budget=budget)
        return await interpreter.run(plan, Scope({"input": input, "trigger": {}, "run": {}}))

    return body


async def outcome(world: World, nodes: list[Any], edges: Any = (), **fields: Any) -> Any:
    """The output of a run of the graph, or its error; and how each of its nodes ended."""
    async with world([graph(nodes, edges, **fields)]) as sw, sw.worker():
        run = await sw.start("graph", {"n": 3})
        ended = await until(sw, run.id, "completed", "failed")
        steps = {step.key: step for step in await sw.steps(run.id)}
        shown = {
            key: step.output if step.status == "skipped" else step.status
            for key, step in steps.items()
        }
        return ended.output if ended.status == "completed" else ended.error, shown


async def test_nodes_run_in_order_and_see_each_others_outputs(world: World) -> None:
    output, steps = await outcome(
        world,
        [node("a", value={"x": 1}), node("b", value="{{a.x}} and {{n}}"), node("c", value="@b")],
    )
    assert output == "1 and 3"
    assert steps == {"a": "completed", "b": "completed", "c": "completed"}


async def test_a_condition_takes_one_branch_and_the_other_is_skipped(world: World) -> None:
    nodes = [
        node("big", "condition", config={"expression": "input.n > 2"}),
        node("yes", value="yes"), node("no", value="no"), node("after", value="@yes"),
    ]  # fmt: skip
    edges = [
        edge("big", "yes", condition="true"), edge("big", "no", condition="false"),
        edge("yes", "after"), edge("no", "after"),
    ]  # fmt: skip
    output, steps = await outcome(world, nodes, edges)
    assert output == "yes"
    assert steps["no"] == "branch_not_taken"
    assert steps["big"] == "completed"


@pytest.mark.parametrize(
    ("on_failure", "d"),
    [("skip", "upstream_failed"), ("continue", "completed"), ("fail_run", None)],
)
async def test_the_diamond(world: World, on_failure: str, d: str | None) -> None:
    nodes = [node("a"), node("b"), node("c", "fail"), node("d", value={"c": "@c", "b": "@b"})]
    edges = [
        edge("a", "b"), edge("a", "c"), edge("b", "d"), edge("c", "d", on_failure=on_failure),
    ]  # fmt: skip
    output, steps = await outcome(world, nodes, edges)
    assert steps.get("d") == d
    if on_failure == "continue":
        assert output == {"c": None, "b": None}
    else:
        assert (output.type, output.message, output.step) == ("ValueError", "c failed", "c")


async def test_independent_branches_finish_and_all_failures_are_reported(world: World) -> None:
    error, steps = await outcome(world, [node("a", "fail"), node("b", "fail"), node("c")])
    assert steps == {"a": "failed", "b": "failed", "c": "completed"}
    assert "a failed" in error.message
    assert "b failed" in error.message


async def test_when_skips_the_node_and_what_follows(world: World) -> None:
    nodes = [node("a", when="input.n > 5"), node("b", value="@a"), node("c")]
    output, steps = await outcome(world, nodes, [edge("a", "c")])
    assert steps == {"a": "branch_not_taken", "b": "completed", "c": "branch_not_taken"}
    assert output == {"b": None, "c": None}


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_for_each_keeps_outputs_where_their_items_were(
    world: World, concurrency: int
) -> None:
    nodes = [
        node("list", value=[3, 1, 2]),
        node("each", value="{{item}} at {{index}}",
             for_each={"items": "@list", "concurrency": concurrency}),
        node("none", value="@item", for_each={"items": []}),
    ]  # fmt: skip
    output, steps = await outcome(world, nodes, output={"each": "@each", "none": "@none"})
    assert output == {"each": ["3 at 0", "1 at 1", "2 at 2"], "none": []}
    assert {"each", "each[0]", "each[1]", "each[2]", "none"} <= steps.keys()


async def test_for_each_collects_errors_or_fails(world: World) -> None:
    each = {"items": [1, 2, 3], "on_item_error": "collect", "as": "number"}
    nodes = [
        node("some", "fail", config={"times": "{{ number }}"}, for_each=each, retry={
            "attempts": 3, "base": "0s"}),
        node("after", value={"found": "@some", "errors": "@step.some.error"}),
    ]  # fmt: skip
    output, _ = await outcome(world, nodes)
    assert output["found"] == ["at last", "at last", None]
    assert [each["index"] for each in output["errors"]["items"]] == [2]
    error, steps = await outcome(world, [node("all", "fail", for_each={"items": [1]})])
    assert error.message == "all[0] failed"
    assert steps["all"] == "failed"


@pytest.mark.parametrize(
    ("items", "most"), [("@input.n", 10), ([1, 2, 3], 2)], ids=["no list", "too many"]
)
async def test_items_that_cannot_be_gone_through_fail_the_node(
    world: World, items: Any, most: int
) -> None:
    error, _ = await outcome(world, [node("a", for_each={"items": items, "max_items": most})])
    assert error.type == "items_invalid"


async def test_a_loop_repeats_its_body_until_its_condition_holds(world: World) -> None:
    body = {"nodes": [node("count", value={"n": "@index", "before": "@previous"})]}
    loop = node("loop", "loop", config={"until": "steps.count.output.n == input.n - 1"}, body=body)
    output, steps = await outcome(world, [loop])
    assert output == {"n": 2, "before": {"n": 1, "before": {"n": 0, "before": None}}}
    assert [key for key in steps if key != "loop"] == [
        "loop[0].body.count", "loop[1].body.count", "loop[2].body.count",
    ]  # fmt: skip


async def test_a_loop_may_never_begin_and_must_end(world: World) -> None:
    body = [node("inner", value="@index")]
    never = node("never", "loop", config={"while": "input.n > 5"}, body=body)
    assert (await outcome(world, [never]))[0] is None
    endless = node("endless", "loop", config={"until": "false", "max_iterations": 3}, body=body)
    error, _ = await outcome(world, [endless])
    assert error.type == "loop_exhausted"
    assert calls["endless[2].body.inner"] == 1
    assert calls["endless[3].body.inner"] == 0


async def test_parallel_yields_what_its_branches_yield(world: World) -> None:
    branches = [
        {"id": "left", "nodes": [node("l", value="@outer")]},
        {"id": "right", "nodes": [node("r1", value=1), node("r2", value="@r1")]},
    ]
    nodes = [node("outer", value="o"), node("both", "parallel", branches=branches)]
    output, steps = await outcome(world, nodes)
    assert output == {"left": "o", "right": 1}
    assert {"both.left.l", "both.right.r1", "both.right.r2"} <= steps.keys()


async def test_return_ends_the_run_from_inside_a_body(world: World) -> None:
    body = [node("early", "return", config={"value": {"at": "@index"}}, when="index == 1"),
            node("inner")]  # fmt: skip
    loop = node("loop", "loop", config={"until": "false"}, body={"nodes": body})
    output, steps = await outcome(world, [loop, node("beside", "hang")])
    assert output == {"at": 1}
    assert steps["beside"] == "skipped" or steps["beside"] is None


async def test_join_any_is_content_with_one_live_edge(world: World) -> None:
    nodes = [node("good"), node("bad", "fail"), node("any", join="any", value="ran")]
    edges = [edge("good", "any"), edge("bad", "any")]
    error, steps = await outcome(world, nodes, edges)
    assert steps["any"] == "completed"
    assert error.step == "bad"


async def test_a_missing_path_fails_the_node_and_names_it(world: World) -> None:
    error, steps = await outcome(world, [node("a", value="@input.nope.deeper")])
    assert error.type == "missing_path"
    assert "@input.nope.deeper" in error.message
    assert steps == {"a": "failed"}
    assert (await outcome(world, [node("a")], output="@a.nope"))[0].type == "missing_path"


async def test_a_condition_that_cannot_be_answered_fails_its_target(world: World) -> None:
    nodes, edges = [node("a"), node("b")], [edge("a", "b", condition="steps.a.output.x == 1")]
    error, steps = await outcome(world, nodes, edges)
    assert (error.type, error.step) == ("condition_failed", "b")
    assert steps["b"] == "failed"


async def test_nodes_retry_only_if_told_to(world: World, clock: Any) -> None:
    async with flowing(clock):
        retried = node("a", "fail", config={"times": 2}, retry={"attempts": 3, "base": "1s"})
        assert (await outcome(world, [retried]))[0] == "at last"
        assert calls["a"] == 3
        calls.clear()
        await outcome(world, [node("a", "fail")])
        assert calls["a"] == 1


async def test_a_node_that_runs_too_long_is_timed_out(world: World, clock: Any) -> None:
    async with flowing(clock):
        nodes = [node("a", "hang", timeout="5s"), node("b", value="@step.a.status")]
        output, _ = await outcome(world, nodes, [edge("a", "b", on_failure="continue")])
    assert output == "timed_out"


async def test_iterations_count_against_the_budget(world: World) -> None:
    loop = node("loop", "loop", config={"until": "index == 9"}, body=[node("inner")])
    error, _ = await outcome(world, [loop], policy={"max_steps": 5})
    assert error.type == "step_budget_exceeded"
    assert sum(calls.values()) == 4


async def test_a_graph_goes_on_from_its_journal(world: World, clock: Any) -> None:
    nodes = [
        node("a", value=1),
        node("left", value="@a"), node("wait", "event", config={"event": "go"}),
        node("nap", "nap", config={"duration": "1h"}),
        node("each", value="{{item}}@@{{wait.word}}", for_each={"items": [1, 2], "concurrency": 2}),
        node("end", value={"each": "@each", "left": "@left"}),
    ]  # fmt: skip
    body = graph(nodes, [edge("left", "nap"), edge("nap", "end")])
    async with world([body]) as sw:
        async with sw.worker() as victim:
            run = await sw.start("graph", {})
            await until(sw, run.id, "waiting")
            vanish(victim)
        async with sw.worker(lease="30d"), flowing(clock, "10m"):
            await until(sw, run.id, "waiting")
            await sw.signal(run.id, "go", {"word": "gone"})
            assert await run.result() == {"each": ["1@gone", "2@gone"], "left": 1}
    assert calls == {"a": 1, "left": 1, "each[0]": 1, "each[1]": 1, "end": 1}


async def test_a_graph_that_only_waits_leaves_memory(world: World, clock: Any) -> None:
    nodes = [node("one", "event", config={"event": "one"}), node("two", "nap",
             config={"duration": "2h"})]  # fmt: skip
    async with world([graph(nodes)]) as sw, sw.worker(lease="30d") as worker:
        run = await sw.start("graph", {})
        await until(sw, run.id, "waiting")
        async with flowing(clock):
            await eventually(lambda: not worker._warm)
        async with flowing(clock, "10m"):
            await sw.signal(run.id, "one", 1)
            assert await run.result() == {"one": 1, "two": None}


@pytest.mark.parametrize("depth", [1, 4, 9])
async def test_a_graph_is_not_sent_away_while_a_result_is_on_its_way_up(
    clock: FakeClock, depth: int
) -> None:
    inner = node("wait", "event", config={"event": "go"})
    for n in range(depth):
        beside = {"id": f"beside{n}", "nodes": [node(f"said{n}")]}
        branches = [{"id": f"way{n}", "nodes": [inner]}, beside]
        inner = node(f"both{n}", "parallel", branches=branches)
    inner["timeout"] = "1h"
    nodes, edges = [inner, node("after", value="done")], [edge(inner["id"], "after")]
    at_once = SqliteStore(":memory:", clock, inline=True)  # parks before anyone can look up
    async with Stepwell(workflows=[graph(nodes, edges)], store=at_once) as sw, sw.worker():
        run = await sw.start("graph", {})
        await until(sw, run.id, "waiting")
        await sw.signal(run.id, "go", 1)
        assert await run.result() == "done"


async def test_very_many_skips_in_a_row_are_no_trouble(world: World) -> None:
    nodes = [node(f"n{n}") for n in range(1500)]
    nodes[0]["when"] = "false"
    edges = [edge(f"n{n}", f"n{n + 1}") for n in range(1499)]
    output, steps = await outcome(world, nodes, edges, policy={"max_steps": 2000})
    assert output is None
    assert set(steps.values()) == {"branch_not_taken"}


async def test_an_error_that_is_no_nodes_fault_fails_the_run(world: World) -> None:
    async def odd(call: NodeCall) -> Any:
        raise NonRetryable("odd")

    KINDS["odd"] = Kind(odd)
    try:
        async with world([graph([node("a", "odd", retry={"attempts": 5})])]) as sw, sw.worker():
            with pytest.raises(RunFailed, match="odd"):
                await (await sw.start("graph", {})).result()
    finally:
        del KINDS["odd"]

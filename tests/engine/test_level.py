"""A level of a graph while it is executed, against the model that knows nothing of the code."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.engine.graph_level import Level, RunFails
from stepwell.errors import StepFailed, StepTimedOut
from stepwell.graph.conditions import Comparison
from stepwell.graph.decide import fails_run
from stepwell.graph.plan import Plan, PlanEdge, PlanNode
from stepwell.graph.refs import Ref
from stepwell.graph.scope import Scope
from stepwell.kernel.run import ErrorInfo
from tests.graph.test_decide import cases, naive, plan_of


class Notes:
    """What a level says of its nodes."""

    def __init__(self) -> None:
        self.ended: dict[str, str] = {}

    def remark(self, key: str, status: str, output: Any = None, error: Any = None) -> None:
        assert key not in self.ended, "a node ends once"
        how = output if status == "skipped" else status
        if error is not None and error["type"] == "step_timed_out":
            how = "timed_out"
        self.ended[key] = how


class Nodes:
    """Executes nodes: each begins when it is asked to, and ends when it is drawn."""

    def __init__(self, plan: Plan, outcomes: dict[str, str], rng: random.Random) -> None:
        self.context: Any = Notes()
        self._plan = plan
        self._outcomes = outcomes
        self._rng = rng
        self._running: dict[str, asyncio.Future[None]] = {}

    async def execute(self, node: PlanNode, key: str, scope: Scope) -> Any:
        sources = {edge.source for edge in node.incoming}
        assert sources <= self.context.ended.keys(), "a node runs after its sources have ended"
        end = self._running[key] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0, self._end_one)
        await end
        if self._outcomes[key] == "completed":
            return key
        if self._outcomes[key] == "timed_out":
            raise StepTimedOut("late", step=key)
        raise StepFailed("no", error=ErrorInfo("ValueError", "no", key), step=key)

    async def each(self, node: PlanNode, key: str, scope: Scope) -> tuple[list[Any], Any]:
        raise AssertionError("no node of these plans has items")

    def _end_one(self) -> None:
        ready = [key for key, end in self._running.items() if not end.done()]
        if ready:
            self._running.pop(self._rng.choice(ready)).set_result(None)


def with_conditions(plan: Plan, taken: dict[int, bool]) -> tuple[Plan, dict[int, bool], Any]:
    """The plan with conditions on its edges that hold as is said; also what they look at."""
    edges, holds, input = [], {}, {}
    for number, edge in enumerate(edge for node in plan.nodes.values() for edge in node.incoming):
        ref = Ref("input", (f"e{number}",), f"@input.e{number}")
        input[f"e{number}"] = taken[id(edge)]
        made = PlanEdge(
            edge.source, edge.target, None, Comparison(ref, "eq", True), edge.on_failure,
            edge.on_skip,
        )  # fmt: skip
        holds[id(made)] = taken[id(edge)]
        edges.append(made)
    any_joins = frozenset(node.id for node in plan.nodes.values() if node.any_join)
    made_plan = plan_of(list(plan.nodes), edges, any_joins)
    return made_plan, holds, input


@settings(max_examples=300, deadline=None)
@given(cases(), st.integers())
def test_a_level_ends_its_nodes_as_the_table_says_whatever_the_order(
    case: tuple[Plan, dict[str, str], dict[int, bool]], seed: int
) -> None:
    plan, holds, input = with_conditions(case[0], case[2])
    outcomes = case[1]
    expected = naive(plan, outcomes, holds)
    nodes = Nodes(plan, outcomes, random.Random(seed))
    failed: str | None = None
    output = None
    try:
        output = asyncio.run(Level(nodes, plan, Scope({"input": input}), "").run())
    except RunFails:
        failed = "at once"
    except StepFailed:
        failed = "in the end"
    ended = nodes.context.ended
    assert {node: expected[node] for node in ended} == ended
    bad = [node for node, how in expected.items() if how in ("failed", "timed_out")]
    if any(fails_run(plan, node) for node in bad):
        assert failed == "at once"
        return
    assert ended == expected
    untolerated = [
        node
        for node in bad
        if not any(edge.source == node and edge.on_failure == "continue"
                   for each in plan.nodes.values() for edge in each.incoming)
    ]  # fmt: skip
    assert failed == ("in the end" if untolerated else None)
    if failed is None:
        shown = {node: node if ended[node] == "completed" else None for node in plan.terminal}
        assert output == (shown if len(shown) > 1 else next(iter(shown.values())))

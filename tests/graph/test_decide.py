"""Readiness, failure and joining: random graphs against a model that knows nothing of the code."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.graph.decide import Run, State, decide, fails_run, failures
from stepwell.graph.plan import Plan, PlanEdge, PlanNode
from stepwell.graph.refs import Constant

OUTCOMES = ("completed", "failed", "timed_out")


def plan_of(nodes: list[str], edges: list[PlanEdge], any_joins: frozenset[str]) -> Plan:
    """A plan of nodes in an order in which edges lead forward."""
    return Plan(
        {
            node: PlanNode(
                node, "shell", Constant({}),
                tuple(edge for edge in edges if edge.target == node),
                tuple(dict.fromkeys(edge.target for edge in edges if edge.source == node)),
                any_join=node in any_joins,
                tolerated=any(e.source == node and e.on_failure == "continue" for e in edges),
                sources=len({edge.source for edge in edges if edge.target == node}),
            )
            for node in nodes
        },
        tuple(nodes),
        tuple(node for node in nodes if all(edge.source != node for edge in edges)),
    )  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> tuple[Plan, dict[str, str], dict[int, bool]]:
    """A plan, how each node would end if it ran, and which edges' conditions hold."""
    nodes = [f"n{number}" for number in range(draw(st.integers(1, 9)))]
    pairs = [(a, b) for i, a in enumerate(nodes) for b in nodes[i + 1 :]]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    edges = [
        PlanEdge(
            source, target,
            on_failure=draw(st.sampled_from(["skip", "continue", "fail_run"])),
            on_skip=draw(st.sampled_from(["skip", "continue"])),
        )
        for source, target in chosen
    ]  # fmt: skip
    outcomes = {node: draw(st.sampled_from(OUTCOMES)) for node in nodes}
    taken = {id(edge): draw(st.booleans()) for edge in edges}
    any_joins = frozenset(draw(st.lists(st.sampled_from(nodes))))
    plan = plan_of(nodes, edges, any_joins)
    return plan, outcomes, taken


def naive(plan: Plan, outcomes: dict[str, str], taken: dict[int, bool]) -> dict[str, str]:
    """How every node ends, read off the table of the language, one node after the other."""
    ended: dict[str, str] = {}
    for name, node in plan.nodes.items():
        live = broken = 0
        for edge in node.incoming:
            how = ended[edge.source]
            if how == "completed":
                live += taken[id(edge)]
            elif how == "branch_not_taken":
                live += edge.on_skip == "continue"
            elif edge.on_failure == "continue":
                live += 1
            else:
                broken += 1
        if node.any_join and live:
            broken = 0
        if broken:
            ended[name] = "upstream_failed"
        elif live or not node.incoming:
            ended[name] = outcomes[name]
        else:
            ended[name] = "branch_not_taken"
    return ended


def play(
    plan: Plan, outcomes: dict[str, str], taken: dict[int, bool], order: random.Random
) -> tuple[dict[str, str], bool]:
    """Execute the plan by `decide`, ending what runs in a random order; also: did the run fail."""
    states: dict[str, State] = {}
    running: list[str] = []

    def holds(edge: PlanEdge) -> bool:
        return taken[id(edge)]

    while True:
        for node, verdict in decide(plan, states, holds).verdicts.items():
            if node in running:
                assert isinstance(verdict, Run)
                continue
            assert node not in states, "a node is decided about once"
            assert {edge.source for edge in plan.nodes[node].incoming} <= states.keys()
            if isinstance(verdict, Run):
                running.append(node)
            else:
                states[node] = State("skipped", verdict.reason)  # type: ignore[union-attr]
        if not running:
            break
        node = running.pop(order.randrange(len(running)))
        states[node] = State(outcomes[node])  # type: ignore[arg-type]
        if outcomes[node] != "completed" and fails_run(plan, node):
            return _shown(states), True
    assert states.keys() == plan.nodes.keys(), "every node ends"
    return _shown(states), bool(failures(plan, states))


def _shown(states: dict[str, State]) -> dict[str, str]:
    return {node: state.reason or state.status for node, state in states.items()}


@settings(max_examples=500)
@given(cases(), st.integers())
def test_every_node_ends_as_the_table_says_whatever_the_order(
    case: tuple[Plan, dict[str, str], dict[int, bool]], seed: int
) -> None:
    plan, outcomes, taken = case
    expected = naive(plan, outcomes, taken)
    ended, failed = play(plan, outcomes, taken, random.Random(seed))
    assert {node: expected[node] for node in ended} == ended
    bad = {node for node, how in expected.items() if how in ("failed", "timed_out")}
    at_once = {
        edge.source
        for node in plan.nodes.values()
        for edge in node.incoming
        if edge.source in bad and edge.on_failure == "fail_run"
    }
    if at_once:
        assert failed
    else:
        assert ended == expected
        tolerated = {
            edge.source
            for node in plan.nodes.values()
            for edge in node.incoming
            if edge.on_failure == "continue"
        }
        assert failed == bool(bad - tolerated)


@pytest.mark.parametrize(
    ("on_failure", "ends"),
    [("skip", "upstream_failed"), ("continue", "completed"), ("fail_run", None)],
)
def test_the_diamond(on_failure: Any, ends: str | None) -> None:
    edges = [
        PlanEdge("a", "b"),
        PlanEdge("a", "c"),
        PlanEdge("b", "d"),
        PlanEdge("c", "d", on_failure=on_failure),
    ]
    plan = plan_of(["a", "b", "c", "d"], edges, frozenset())
    outcomes = {"a": "completed", "b": "completed", "c": "failed", "d": "completed"}
    taken = {id(edge): True for edge in edges}
    for seed in range(10):
        ended, failed = play(plan, outcomes, taken, random.Random(seed))
        assert ended.get("d") == ends
        assert failed == (on_failure != "continue")


def test_a_reference_waits_but_does_not_lead_where_edges_were_drawn() -> None:
    drawn, implied = PlanEdge("b", "c"), PlanEdge("a", "c", on_skip="continue", drawn=False)
    plan = plan_of(["a", "b", "c"], [drawn, implied], frozenset())
    states = {"a": State("completed"), "b": State("skipped", "branch_not_taken")}
    verdicts = decide(plan, states, lambda edge: True).verdicts
    assert verdicts["c"].reason == "branch_not_taken"  # type: ignore[union-attr]
    only = plan_of(["a", "c"], [implied], frozenset())
    skipped = {"a": State("skipped", "branch_not_taken")}
    assert decide(only, skipped, lambda edge: True).ready == ["c"]

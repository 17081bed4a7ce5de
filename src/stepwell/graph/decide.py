"""What happens next in a graph: from the plan and the states of its nodes, and nothing else.

A node waits until all its sources have ended. Then each edge is live, not taken, or broken, and
the edges together say whether it runs. Who was faster makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from stepwell.errors import StepwellError
from stepwell.graph.plan import Plan, PlanEdge, PlanNode

Status = Literal["completed", "failed", "timed_out", "skipped"]
# Why a node was skipped: nothing led to it, something before it failed, or its run was over.
Reason = Literal["branch_not_taken", "upstream_failed"]
EdgeState = Literal["live", "not_taken", "broken"]
# Whether the condition of an edge holds, now that its source has completed.
Holds = Callable[[PlanEdge], bool]


class State(msgspec.Struct, frozen=True):
    """How a node ended."""

    status: Status
    reason: Reason | None = None


class Run(msgspec.Struct, frozen=True):
    """The node is to be executed."""


class Skip(msgspec.Struct, frozen=True):
    """The node is not to be executed."""

    reason: Reason


class Fail(msgspec.Struct, frozen=True):
    """Nobody can tell whether the node is to be executed."""

    error: StepwellError


Verdict = Run | Skip | Fail

States = Mapping[str, State]


class Decision(msgspec.Struct):
    """What can be said of nodes that have no state yet."""

    verdicts: dict[str, Verdict]

    @property
    def ready(self) -> list[str]:
        return [node_id for node_id, verdict in self.verdicts.items() if verdict == Run()]


# What follows where only one edge leads to a node.
_ALONE: dict[EdgeState, Verdict] = {
    "live": Run(),
    "not_taken": Skip("branch_not_taken"),
    "broken": Skip("upstream_failed"),
}


def decide(plan: Plan, states: States, holds: Holds) -> Decision:
    """All that can be decided by now; skipping a node may decide about others in turn."""
    known = dict(states)
    verdicts: dict[str, Verdict] = {}
    for node_id in plan.order:
        if node_id in known:
            continue
        verdict = judge(plan.nodes[node_id], known, holds)
        if verdict is None:
            continue
        verdicts[node_id] = verdict
        if isinstance(verdict, Skip):
            known[node_id] = State("skipped", verdict.reason)
        elif isinstance(verdict, Fail):
            known[node_id] = State("failed")
    return Decision(verdicts)


def judge(node: PlanNode, states: States, holds: Holds) -> Verdict | None:
    """Whether a node runs; None while something before it has not ended."""
    if any(edge.source not in states for edge in node.incoming):
        return None
    try:
        found = [(edge, edge_state(edge, states[edge.source], holds)) for edge in node.incoming]
    except StepwellError as error:
        return Fail(error)
    if len(found) == 1:
        return _ALONE[found[0][1]]
    # Where edges were drawn, it is they that lead to the node; a reference only waits.
    drawn = [state for edge, state in found if edge.drawn]
    live = not found or "live" in (drawn or [state for _, state in found])
    if any(state == "broken" for _, state in found) and not (node.any_join and live):
        return Skip("upstream_failed")
    return Run() if live else Skip("branch_not_taken")


def edge_state(edge: PlanEdge, source: State, holds: Holds) -> EdgeState:
    """What an edge says now that its source has ended."""
    if source.status == "completed":
        return "live" if holds(edge) else "not_taken"
    if source.status == "skipped" and source.reason == "branch_not_taken":
        return "live" if edge.on_skip == "continue" else "not_taken"
    return "live" if edge.on_failure == "continue" else "broken"


def fails_run(plan: Plan, node_id: str) -> bool:
    """Whether the run fails at once because this node failed or timed out."""
    return any(
        edge.source == node_id and edge.on_failure == "fail_run"
        for target in plan.nodes[node_id].targets
        for edge in plan.nodes[target].incoming
    )


def failures(plan: Plan, states: States) -> list[str]:
    """The failed nodes that nothing makes good, in the order of the plan."""
    return [
        node_id
        for node_id in plan.order
        if (state := states.get(node_id)) is not None
        and state.status in ("failed", "timed_out")
        and not plan.nodes[node_id].tolerated
    ]

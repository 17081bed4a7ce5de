"""The program that executes runs of graphs, whichever graph it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from stepwell.engine.asking import answer_of
from stepwell.engine.context import Context
from stepwell.engine.graph_program import ONCE, Budget, Interpreter
from stepwell.engine.node_call import NodeHost
from stepwell.engine.revisions import Revision, Revisions
from stepwell.graph.scope import Scope
from stepwell.kernel.changes import ClaimedRun
from stepwell.kernel.clock import moment
from stepwell.kernel.plans import NO_PLAN
from stepwell.kernel.plans import Plan as WorkspacePlan
from stepwell.kernel.programs import GRAPH_PROGRAM, graph_program, needs_of
from stepwell.kernel.retry import Retry


class GraphProgram:
    """Interprets the document that a run is pinned to."""

    program = GRAPH_PROGRAM
    retry: Retry | None = None

    def __init__(self, revisions: Revisions, host: NodeHost, plan: WorkspacePlan = NO_PLAN) -> None:
        self._revisions = revisions
        self._host = host
        self._plan = plan

    @property
    def function(self) -> Callable[..., Any]:
        return self._execute

    async def _execute(self, ctx: Context, input: Any) -> Any:
        claimed = ctx.claimed
        revision = await answer_of(self._host.clock, partial(self._revision, claimed))
        if revision.unknown_types:
            await ctx.elsewhere(_program_of(revision, needs_of(claimed.program)))
        policy = revision.definition.policy
        scope = Scope(
            {
                "input": input,
                "trigger": _trigger(claimed),
                "run": _facts(claimed),
                "secrets": {},  # steps see them
            },
            lenient=revision.definition.lenient,
        )
        retry = ONCE if policy.retry is None else policy.retry.policy()
        plan = revision.plan
        interpreter = Interpreter(
            ctx,
            revision.kinds,
            self._host,
            budget=self._budget(policy.max_steps),
            retry=retry,
            plugged_in=revision.plugged_in,
        )
        return await interpreter.run(plan, scope)

    def _budget(self, most: int) -> Budget:
        """How many nodes a run may execute."""
        allowed = self._plan.steps_per_run
        if allowed is not None and allowed < most:
            plan = f"the plan {self._plan.name!r}"
            return Budget(allowed, plan, self._plan.facts("steps_per_run"))
        return Budget(most, "its policy", {"limit": "max_steps", "value": most})

    async def _revision(self, claimed: ClaimedRun) -> Revision:
        assert claimed.revision is not None
        return await self._revisions.get(claimed.revision)


def _program_of(revision: Revision, needs: list[tuple[str, str]]) -> str:
    """What finds a worker that has all node types of a graph which this one has not.

    Two of those that are missing are enough to begin with, whatever else a worker has. Where such
    types have led here in vain, it takes them all.
    """
    function = next((name for kind, name in needs if kind == "function"), None)
    misled = any(kind == "node_type" for kind, _ in needs)
    types = revision.plugged_in if misled else sorted(revision.unknown_types)[:2]
    return graph_program(types, function)


def _trigger(claimed: ClaimedRun) -> Any:
    return {} if claimed.trigger is None else msgspec.json.decode(claimed.trigger)


def _facts(claimed: ClaimedRun) -> dict[str, Any]:
    """What references see as `run`: only what stays the same however often it is begun again."""
    return {
        "id": claimed.id,
        "definition": claimed.definition,
        "version": claimed.version,
        "revision": claimed.revision,
        "created_at": moment(claimed.created_at).isoformat(),
    }

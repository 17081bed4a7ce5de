"""The program that executes runs of graphs, whichever graph it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from stepwell.engine.asking import answer_of
from stepwell.engine.context import Context
from stepwell.engine.graph_program import ONCE, Interpreter
from stepwell.engine.node_call import NodeHost
from stepwell.engine.revisions import Revision, Revisions
from stepwell.graph.scope import Scope
from stepwell.kernel.changes import ClaimedRun
from stepwell.kernel.clock import moment
from stepwell.kernel.programs import GRAPH_PROGRAM, graph_program, needs_of
from stepwell.kernel.retry import Retry


class GraphProgram:
    """Interprets the document that a run is pinned to."""

    program = GRAPH_PROGRAM
    retry: Retry | None = None

    def __init__(self, revisions: Revisions, host: NodeHost) -> None:
        self._revisions = revisions
        self._host = host

    @property
    def function(self) -> Callable[..., Any]:
        return self._execute

    async def _execute(self, ctx: Context, input: Any) -> Any:
        claimed = ctx.claimed
        revision = await answer_of(self._host.clock, partial(self._revision, claimed))
        if revision.unknown_types:
            functions = [name for kind, name in needs_of(claimed.program) if kind == "function"]
            await ctx.elsewhere(graph_program(revision.plugged_in, *functions))
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
            max_steps=policy.max_steps,
            retry=retry,
            plugged_in=revision.plugged_in,
        )
        return await interpreter.run(plan, scope)

    async def _revision(self, claimed: ClaimedRun) -> Revision:
        assert claimed.revision is not None
        return await self._revisions.get(claimed.revision)


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

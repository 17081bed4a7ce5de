"""One level of a graph while it is executed: who is ready, what runs, how it ends."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import Any, Protocol

import msgspec

from stepwell.engine.branches import called_off
from stepwell.engine.context import Context
from stepwell.engine.failures import describe_failure
from stepwell.errors import (
    ContextMisuse,
    JournalMismatch,
    RunDenied,
    StepBudgetExceeded,
    StepFailed,
    StepTimedOut,
    StepwellError,
)
from stepwell.graph.conditions import holds, looks_at_item
from stepwell.graph.decide import Fail, Run, State, fails_run, failures, judge
from stepwell.graph.plan import Plan, PlanEdge, PlanNode
from stepwell.graph.refs import resolve
from stepwell.graph.scope import Scope, StepView
from stepwell.kernel.run import ErrorInfo

# After all that is in a journal.
_LAST = (sys.maxsize, 0, "")
# Errors that are not a node's own, but end its run.
OF_THE_RUN = (StepBudgetExceeded, JournalMismatch, ContextMisuse, RunDenied)


class Executor(Protocol):
    """Executes single nodes."""

    context: Context

    async def execute(self, node: PlanNode, key: str, scope: Scope) -> Any: ...

    async def each(self, node: PlanNode, key: str, scope: Scope) -> tuple[list[Any], Any]: ...


class RunFails(BaseException):
    """A node fails its run at once, from wherever it stands."""

    def __init__(self, failure: StepFailed) -> None:
        super().__init__()
        self.failure = failure


class Level:
    """One level of nesting while it is executed: the whole graph, or a body."""

    def __init__(self, interpreter: Executor, plan: Plan, scope: Scope, prefix: str) -> None:
        self._interpreter = interpreter
        self._plan = plan
        self._scope = scope
        self._prefix = prefix
        self._states: dict[str, State] = {}
        self._errors: dict[str, StepwellError] = {}
        self._unended = {node_id: node.sources for node_id, node in plan.nodes.items()}
        # Nodes whose sources have ended, before and after it is known whether they run.
        self._undecided: deque[str] = deque()
        self._ready: deque[str] = deque()
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._finished: deque[asyncio.Task[None]] = deque()
        self._woken: asyncio.Future[None] | None = None

    async def run(self) -> Any:
        self._ready.extend(node_id for node_id, count in self._unended.items() if count == 0)
        try:
            while self._ready or self._tasks:
                if len(self._ready) == 1 and not self._tasks:
                    await self._execute(self._ready.popleft())  # nobody to share the time with
                else:
                    while self._ready:
                        self._begin(self._ready.popleft())
                    await self._one_has_finished()
                while self._undecided:
                    self._decide(self._undecided.popleft())
        finally:
            await self._call_off()
        failed = failures(self._plan, self._states)
        if failed:
            raise self._failure(failed)
        return self._output()

    def _begin(self, node_id: str) -> None:
        task = asyncio.get_running_loop().create_task(self._execute(node_id))
        self._tasks[task] = node_id
        task.add_done_callback(self._on_finished)

    def _on_finished(self, task: asyncio.Task[None]) -> None:
        self._finished.append(task)
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def _one_has_finished(self) -> None:
        while not self._finished:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        while self._finished:
            task = self._finished.popleft()
            del self._tasks[task]
            task.result()  # raises what ends the run, or makes it leave memory

    async def _call_off(self) -> None:
        """The level has ended before some of its nodes: they are given up."""
        await called_off(self._tasks)
        self._tasks = {}

    # -- one node ------------------------------------------------------------------------

    async def _execute(self, node_id: str) -> None:
        node = self._plan.nodes[node_id]
        key = self._prefix + node_id
        errors: Any = None
        try:
            if self._is_left_out(node):
                self._skip(node_id, "branch_not_taken")
                return
            if node.for_each is not None:
                output, errors = await self._interpreter.each(node, key, self._scope)
            else:
                output = await self._interpreter.execute(node, key, self._scope)
        except StepwellError as error:
            if isinstance(error, RunDenied):  # as the run's, the error would not say of which node
                context = self._interpreter.context
                context.remark(key, "failed", None, described(error, key))
            if isinstance(error, OF_THE_RUN):
                raise
            self._fail(node_id, error)
            return
        self._interpreter.context.remark(key, "completed", output, errors)
        self._end(node_id, State("completed"), StepView("completed", output, errors))

    def _is_left_out(self, node: PlanNode) -> bool:
        """Whether `when` says no; one that looks at items is asked for each of them instead."""
        if node.when is None or (node.for_each is not None and looks_at_item(node.when)):
            return False
        return not holds(node.when, self._scope)

    def _skip(self, node_id: str, reason: Any) -> None:
        self._interpreter.context.remark(self._prefix + node_id, "skipped", reason)
        self._end(node_id, State("skipped", reason), StepView("skipped"))

    def _fail(self, node_id: str, error: StepwellError) -> None:
        key = self._prefix + node_id
        self._errors[node_id] = error
        info = described(error, key)
        status: Any = "timed_out" if info["type"] == StepTimedOut.code else "failed"
        self._interpreter.context.remark(key, "failed", None, info)
        self._end(node_id, State(status), StepView(status, None, info))
        if fails_run(self._plan, node_id):
            raise RunFails(self._failure([node_id]))

    def _end(self, node_id: str, state: State, view: StepView) -> None:
        """A node has ended; some that waited for it can be decided about now."""
        self._states[node_id] = state
        self._scope.steps[node_id] = view
        for target in self._plan.nodes[node_id].targets:
            self._unended[target] -= 1
            if self._unended[target] == 0:
                self._undecided.append(target)

    def _decide(self, node_id: str) -> None:
        verdict = judge(self._plan.nodes[node_id], self._states, self._holds)
        assert verdict is not None
        if isinstance(verdict, Run):
            self._ready.append(node_id)
        elif isinstance(verdict, Fail):
            self._fail(node_id, verdict.error)
        else:
            self._skip(node_id, verdict.reason)

    def _holds(self, edge: PlanEdge) -> bool:
        if edge.branch is not None:
            return bool(self._scope.steps[edge.source].output) is edge.branch
        return edge.condition is None or holds(edge.condition, self._scope)

    # -- the end -------------------------------------------------------------------------

    def _failure(self, failed: list[str]) -> StepFailed:
        """The error of the level: its first failure, and what else failed.

        The first is that of the journal: a retry goes back to it, and forgets all that came after.
        """
        failed = sorted(failed, key=lambda node_id: self._errors[node_id].journaled or _LAST)
        found = [self._scope.steps[node_id].error for node_id in failed]
        message = found[0]["message"]
        if len(found) > 1:
            others = (f"; {each['step']}: {each['message']}" for each in found[1:])
            message = message.removesuffix(".") + "".join(others)
        info = ErrorInfo(found[0]["type"], message, found[0]["step"])
        failure = StepFailed(message, error=info, step=info.step)
        failure.journaled = self._errors[failed[0]].journaled
        return failure

    def _output(self) -> Any:
        if self._plan.output is not None:
            return resolve(self._plan.output, self._scope)
        outputs = {node_id: self._scope.steps[node_id].output for node_id in self._plan.terminal}
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs


def described(error: StepwellError, key: str) -> dict[str, Any]:
    """An error as references see it: type, message and step."""
    found = msgspec.json.decode(describe_failure(error, None))
    return {"type": found["type"], "message": found["message"], "step": found["step"] or key}

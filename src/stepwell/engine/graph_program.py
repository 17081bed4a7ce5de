"""The interpreter of graphs: a program like any other, whose steps are the nodes of a plan.

Nodes that act become steps of the journal under their path: `fetch`, `fetch[3]` for an item,
`poll[2].body.check` inside a loop. What can be worked out again from the journal (conditions,
skips, loops as a whole) is only noted, along with whatever is recorded next, so that people can
see it; it costs no commit of its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from stepwell.engine.branches import all_of, called_off, race
from stepwell.engine.context import Context
from stepwell.engine.failures import describe_failure
from stepwell.engine.node_call import NodeCall, NodeHost
from stepwell.engine.surroundings import hide
from stepwell.errors import (
    ContextMisuse,
    ItemsInvalid,
    JournalMismatch,
    LoopExhausted,
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
from stepwell.kernel.durations import seconds
from stepwell.kernel.retry import Retry
from stepwell.kernel.run import ErrorInfo

# Nodes are tried once, unless they or the policy of their definition say otherwise.
ONCE = Retry(attempts=1)
DEFAULT_ITERATIONS = 100
# Turns of the loop until a result has passed through one level: an item, its list, a timeout,
# its branch and the level itself are tasks that wait for each other, three turns each.
TURNS = 16
# After all that is in a journal.
_LAST = (sys.maxsize, 0, "")
# Errors that are not a node's own, but end its run.
_OF_THE_RUN = (StepBudgetExceeded, JournalMismatch, ContextMisuse, RunDenied)


class Executable(Protocol):
    """A type of node, as the interpreter sees it."""

    @property
    def acts(self) -> bool:
        """Whether it is executed as one step; else it is handed the context."""
        ...

    @property
    def timeout(self) -> float | None:
        """How long it may take if the node itself does not say."""
        ...

    @property
    def act(self) -> Callable[[Any], Awaitable[Any]]: ...


class _Returned(BaseException):
    """A return node ends the run, from wherever it stands."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Interpreter:
    """Executes one run of a graph."""

    def __init__(
        self, context: Context, kinds: Mapping[str, Executable], host: NodeHost, *,
        max_steps: int, retry: Retry = ONCE,
    ) -> None:  # fmt: skip
        self.context = context
        self._kinds = kinds
        self._host = host
        self._max_steps = max_steps
        self._steps = 0
        self._retry = retry

    async def run(self, plan: Plan, scope: Scope) -> Any:
        """The output of the graph; raises StepFailed if it has failed."""
        hide(lambda: self._host.vault.masking)
        self.context.rest_in_branches(TURNS * plan.depth)
        try:
            return await _Level(self, plan, scope, "").run()
        except _Returned as returned:
            return returned.value

    # -- nodes ---------------------------------------------------------------------------

    async def execute(self, node: PlanNode, key: str, scope: Scope) -> Any:
        """Execute a node once; its output."""
        self._steps += 1
        if self._steps > self._max_steps:
            raise StepBudgetExceeded(
                f"The run has executed {self._max_steps:,} nodes, as many as its policy allows."
            )
        if node.type == "condition":
            return holds(node.conditions["expression"], scope)
        if node.type == "return":
            value = resolve(node.config, scope).get("value")
            self.context.remark(key, "completed", value)
            raise _Returned(value)
        kind = self._kinds.get(node.type)
        if kind is not None and kind.acts:
            call = NodeCall(self.context, node, key, scope, self._host)
            limit = kind.timeout if node.timeout is None else node.timeout
            return await self.context.step(
                key, self._act, kind, call, retry=self._retry_of(node), timeout=limit
            )
        work = self._durably(node, kind, key, scope)
        if node.timeout is None:
            return await work
        in_time, output = await race(work, self.context.sleep(f"{key}.timeout", node.timeout))
        if in_time:
            return output
        raise StepTimedOut(f"{key!r} took longer than {node.timeout:g} s.", step=key)

    async def _act(self, kind: Executable, call: NodeCall) -> Any:
        """What a step of a graph does: secrets go in here, and do not come out."""
        vault = self._host.vault
        call.reveal(await vault.secrets())
        return vault.masked(await kind.act(call))

    async def _durably(
        self, node: PlanNode, kind: Executable | None, key: str, scope: Scope
    ) -> Any:
        """Execute a node that itself steps, sleeps and waits."""
        if node.type == "loop":
            return await self._loop(node, key, scope)
        if node.type == "parallel":
            return await self._parallel(node, key, scope)
        assert kind is not None
        retry, failures = self._retry_of(node), 0
        while True:
            try:
                return await kind.act(NodeCall(self.context, node, key, scope, self._host))
            except StepwellError as error:
                failures += 1
                if isinstance(error, _OF_THE_RUN) or not retry.allows(error, failures):
                    raise
            await self.context.sleep(f"{key}.retry", retry.delay(failures, 0.5))

    def _retry_of(self, node: PlanNode) -> Retry:
        return self._retry if node.retry is None else node.retry.policy()

    async def _loop(self, node: PlanNode, key: str, scope: Scope) -> Any:
        assert node.body is not None
        config = resolve(node.config, scope)
        most = config.get("max_iterations", DEFAULT_ITERATIONS)
        delay = seconds(config.get("delay", 0), "delay")
        previous: Any = None
        index = 0
        while True:
            inner = Scope({"index": index, "previous": previous}, scope)
            if "while" in node.conditions and not holds(node.conditions["while"], inner):
                return previous
            if index == most:
                raise LoopExhausted(
                    f"{key!r} was repeated {most} times, as often as it may be, and is not done."
                )
            if index > 0 and delay > 0:
                await self.context.sleep(f"{key}[{index}].delay", delay)
            level = _Level(self, node.body, inner, f"{key}[{index}].body.")
            previous = await level.run()
            if "until" in node.conditions and holds(node.conditions["until"], inner):
                return previous
            index += 1

    async def _parallel(self, node: PlanNode, key: str, scope: Scope) -> Any:
        branches = node.branches or {}
        levels = [
            _Level(self, plan, Scope({}, scope), f"{key}.{branch_id}.").run
            for branch_id, plan in branches.items()
        ]
        return dict(zip(branches, await all_of(levels, len(levels)), strict=True))

    async def each(self, node: PlanNode, key: str, scope: Scope) -> tuple[list[Any], Any]:
        """Execute a node for each item of its list; outputs where their items were, and errors."""
        each = node.for_each
        assert each is not None
        assert node.items is not None
        items = resolve(node.items, scope)
        if not isinstance(items, list):
            raise ItemsInvalid(f"for_each of {key!r} needs a list, not {items!r:.200}.")
        if len(items) > each.max_items:
            raise ItemsInvalid(
                f"for_each of {key!r} has {len(items):,} items; max_items allows "
                f"{each.max_items:,}."
            )
        errors: dict[int, Any] = {}
        asked = node.when if node.when is not None and looks_at_item(node.when) else None

        async def one(index: int, item: Any) -> Any:
            at = f"{key}[{index}]"
            inner = Scope({"item": item, each.name: item, "index": index}, scope)
            try:
                if asked is not None and not holds(asked, inner):
                    self.context.remark(at, "skipped", "branch_not_taken")
                    return None
                return await self.execute(node, at, inner)
            except StepwellError as error:
                if each.on_item_error == "fail" or isinstance(error, _OF_THE_RUN):
                    raise
                errors[index] = described(error, at)
                return None

        calls = [partial(one, index, item) for index, item in enumerate(items)]
        outputs = await all_of(calls, each.concurrency)
        if not errors:
            return outputs, None
        listed = [{"index": index, **errors[index]} for index in sorted(errors)]
        message = f"{len(errors)} of {len(items)} items failed."
        return outputs, {"type": "items_failed", "message": message, "step": key, "items": listed}


class _Level:
    """One level of nesting while it is executed: the whole graph, or a body."""

    def __init__(self, interpreter: Interpreter, plan: Plan, scope: Scope, prefix: str) -> None:
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
            if isinstance(error, _OF_THE_RUN):
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
            raise self._failure([node_id])

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

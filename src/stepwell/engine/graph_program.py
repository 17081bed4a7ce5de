"""The interpreter of graphs: a program like any other, whose steps are the nodes of a plan.

Nodes that act become steps of the journal under their path: `fetch`, `fetch[3]` for an item,
`poll[2].body.check` inside a loop. What can be worked out again from the journal (conditions,
skips, loops as a whole) is only noted, along with whatever is recorded next, so that people can
see it; it costs no commit of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from stepwell.engine.branches import all_of, race
from stepwell.engine.context import Context
from stepwell.engine.graph_level import OF_THE_RUN, Level, RunFails, described
from stepwell.engine.node_call import NodeCall, NodeHost
from stepwell.engine.surroundings import hide
from stepwell.errors import (
    Elsewhere,
    FunctionUnknown,
    ItemsInvalid,
    LoopExhausted,
    StepBudgetExceeded,
    StepTimedOut,
    StepwellError,
)
from stepwell.graph.conditions import holds, looks_at_item
from stepwell.graph.control import DEFAULT_ITERATIONS
from stepwell.graph.plan import Plan, PlanNode
from stepwell.graph.refs import resolve
from stepwell.graph.scope import Scope
from stepwell.kernel.durations import seconds
from stepwell.kernel.programs import graph_program
from stepwell.kernel.retry import Retry

# Nodes are tried once, unless they or the policy of their definition say otherwise.
ONCE = Retry(attempts=1)
# Turns of the loop until a result has passed through one level: an item, its list, a timeout,
# its branch and the level itself are tasks that wait for each other, three turns each.
TURNS = 16


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


class Budget(NamedTuple):
    """How many nodes a run may execute, who says so, and the details of a refusal."""

    most: int
    says_so: str
    facts: Mapping[str, Any]


class _Returned(BaseException):
    """A return node ends the run, from wherever it stands."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Interpreter:
    """Executes one run of a graph."""

    def __init__(
        self, context: Context, kinds: Mapping[str, Executable], host: NodeHost, *,
        budget: Budget, retry: Retry = ONCE, plugged_in: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.context = context
        self._kinds = kinds
        self._host = host
        # How many nodes it may execute, and who says so.
        self._budget = budget
        self._steps = 0
        self._retry = retry
        self._plugged_in = plugged_in

    async def run(self, plan: Plan, scope: Scope) -> Any:
        """The output of the graph; raises StepFailed if it has failed."""
        hide(lambda: self._host.vault.masking)
        self.context.rest_in_branches(TURNS * plan.depth)
        try:
            return await Level(self, plan, scope, "").run()
        except _Returned as returned:
            return returned.value
        except RunFails as fails:
            raise fails.failure from None

    # -- nodes ---------------------------------------------------------------------------

    async def execute(self, node: PlanNode, key: str, scope: Scope) -> Any:
        """Execute a node once; its output."""
        self._steps += 1
        if self._steps > self._budget.most:
            raise StepBudgetExceeded(
                f"The run has executed {self._budget.most:,} nodes, as many as "
                f"{self._budget.says_so} allows.",
                **self._budget.facts,
            )
        if node.type == "condition":
            return holds(node.conditions["expression"], scope)
        if node.type == "return":
            value = resolve(node.config, scope).get("value")
            self.context.remark(key, "completed", value)
            self.context.abandon()
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
        in_time, output = await race(
            work, self.context.sleep(f"{key}.timeout", node.timeout),
            late=lambda: self.context.abandon(key),
        )  # fmt: skip
        if in_time:
            return output
        raise StepTimedOut(f"{key!r} took longer than {node.timeout:g} s.", step=key)

    async def _act(self, kind: Executable, call: NodeCall) -> Any:
        """What a step of a graph does: secrets go in here, and do not come out."""
        vault = self._host.vault
        call.reveal(await vault.secrets())
        try:
            return vault.masked(await kind.act(call))
        except FunctionUnknown as unknown:
            if "function" not in unknown.details:  # somebody else's
                raise
            program = graph_program(sorted(self._plugged_in)[:2], unknown.details["function"])
            raise Elsewhere(program) from None

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
                if isinstance(error, OF_THE_RUN) or not retry.allows(error, failures):
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
            level = Level(self, node.body, inner, f"{key}[{index}].body.")
            previous = await level.run()
            if "until" in node.conditions and holds(node.conditions["until"], inner):
                return previous
            index += 1

    async def _parallel(self, node: PlanNode, key: str, scope: Scope) -> Any:
        branches = node.branches or {}
        levels = [
            Level(self, plan, Scope({}, scope), f"{key}.{branch_id}.").run
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
                if each.on_item_error == "fail" or isinstance(error, OF_THE_RUN):
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

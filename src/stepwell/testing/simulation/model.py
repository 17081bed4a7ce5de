"""How a random graph must end: played by the pure rules, one node after the other, without time."""

from __future__ import annotations

from typing import Any

from stepwell.errors import StepwellError
from stepwell.graph.conditions import holds, looks_at_item
from stepwell.graph.decide import Fail, Run, State, decide, fails_run, failures
from stepwell.graph.definition import RetryPolicy
from stepwell.graph.plan import Plan, PlanEdge, PlanNode
from stepwell.graph.refs import resolve
from stepwell.graph.scope import Scope, StepView
from stepwell.testing.simulation.graphs import SIGNAL, SIGNALLED

# Types that have an entry in the journal for each item.
LEAVES = frozenset({"python", "transform", "delay", "wait_event", "emit", "run"})


class Failed(Exception):
    """A node fails; `shown` is what its entry says."""

    def __init__(self, shown: str = "failed") -> None:
        super().__init__(shown)
        self.shown = shown


class FailedAtOnce(Exception):
    """A node fails its run, from wherever it stands."""


class Model:
    """Plays one run of a plan."""

    def __init__(self, plan: Plan, input: dict[str, Any]) -> None:
        # What the entry of each node must say: its status, or why it was skipped.
        self.shown: dict[str, str] = {}
        # Those of them that may have been given up, or may never have been begun.
        self.loose: set[str] = set()
        # Whether it depends on what fails first: something that fails its run, or something beside
        # it that keeps it from coming to that.
        self.undecided = False
        self.output: Any = None
        self._plan = plan
        self._returned = False
        scope = Scope({"input": input, "trigger": {}, "run": {"id": ""}})
        try:
            self.output = self._level(plan, scope, "")
            self.status = "completed"
        except Failed:
            self.status = "failed"
        except FailedAtOnce:
            self.status = "failed"
            self.loose = set(self.shown)
        if self._returned:
            self.status, self.output = "completed", "returned"
            self.loose = set(self.shown)

    def _level(self, plan: Plan, scope: Scope, prefix: str) -> Any:
        states: dict[str, State] = {}

        def taken(edge: PlanEdge) -> bool:
            if edge.branch is not None:
                return bool(scope.steps[edge.source].output) is edge.branch
            return edge.condition is None or holds(edge.condition, scope)

        while verdicts := decide(plan, states, taken).verdicts:
            for node_id, verdict in verdicts.items():
                key, node = prefix + node_id, plan.nodes[node_id]
                output, shown = None, "failed"
                if isinstance(verdict, Run):
                    state, output, shown = self._ended(node, key, scope)
                elif isinstance(verdict, Fail):
                    state = State("failed")
                else:
                    state, shown = State("skipped", verdict.reason), verdict.reason
                self.shown[key] = shown
                states[node_id] = state
                scope.steps[node_id] = StepView(state.status, output)
        at_once = [
            node_id
            for node_id, state in states.items()
            if state.status == "failed" and fails_run(plan, node_id)
        ]
        if at_once:
            raise FailedAtOnce
        if failures(plan, states):
            raise Failed
        assert plan.output is not None
        return resolve(plan.output, scope)

    def _loosen(self, prefix: str) -> None:
        self.loose.update(key for key in self.shown if key.startswith(prefix))

    def _ended(self, node: PlanNode, key: str, scope: Scope) -> tuple[State, Any, str]:
        """How a node ends that is executed: its state, its output, and what its entry says."""
        asks_items = node.for_each is not None and node.when and looks_at_item(node.when)
        if node.when is not None and not asks_items and not holds(node.when, scope):
            return State("skipped", "branch_not_taken"), None, "branch_not_taken"
        try:
            if node.for_each is None:
                output, shown = self._execute(node, key, scope)
            else:
                output, shown = self._each(node, key, scope), "completed"
        except Failed as failed:
            return State("failed"), None, failed.shown
        return State("completed"), output, shown

    def _each(self, node: PlanNode, key: str, scope: Scope) -> list[Any]:
        each = node.for_each
        assert each is not None
        outputs: list[Any] = []
        failed = at_once = False
        for index, item in enumerate(each.items):
            at, output, shown = f"{key}[{index}]", None, "branch_not_taken"
            inner = Scope({"item": item, "index": index}, scope)
            left_out = node.when and looks_at_item(node.when) and not holds(node.when, inner)
            if not left_out:
                try:
                    output, shown = self._execute(node, at, inner)
                except Failed as failure:
                    failed, shown = True, failure.shown
                except FailedAtOnce:
                    at_once = True
            if left_out or node.type in LEAVES:
                self.shown[at] = shown
            outputs.append(output)
        failed = failed and each.on_item_error == "fail"
        if at_once:
            self._fail_at_once(failed)
        if failed:
            self._loosen(f"{key}[")
            raise Failed
        return outputs

    def _execute(self, node: PlanNode, key: str, scope: Scope) -> tuple[Any, str]:
        """The output, and what the entry of the node says."""
        if node.type == "condition":
            return holds(node.conditions["expression"], scope), "completed"
        if node.type == "return":
            self._returned = True
            return None, "completed"
        if node.type == "loop":
            return self._loop(node, key, scope), "completed"
        if node.type == "parallel":
            return self._parallel(node, key, scope), "completed"
        try:
            config = resolve(node.config, scope)
        except StepwellError:
            raise Failed from None
        if node.type == "run":
            return self._child(config), "completed"
        if node.type == "wait_event":
            return _waited(node, config)
        if node.type == "approval" and (
            config.get("on_timeout") == "fail"
            or (config.get("on_timeout"), config.get("on_deny")) == ("deny", "fail")
        ):
            raise Failed
        if node.type == "python":
            return _acted(config["args"], node.retry), "completed"
        return config.get("value"), "completed"

    def _loop(self, node: PlanNode, key: str, scope: Scope) -> Any:
        assert node.body is not None
        most = resolve(node.config, scope).get("max_iterations", 100)
        previous, index = None, 0
        while True:
            inner = Scope({"index": index, "previous": previous}, scope)
            if "while" in node.conditions and not holds(node.conditions["while"], inner):
                return previous
            if index == most:
                raise Failed
            previous = self._level(node.body, inner, f"{key}[{index}].body.")
            if "until" in node.conditions and holds(node.conditions["until"], inner):
                return previous
            index += 1

    def _parallel(self, node: PlanNode, key: str, scope: Scope) -> Any:
        outputs: dict[str, Any] = {}
        failed = at_once = False
        for branch_id, plan in (node.branches or {}).items():
            try:
                outputs[branch_id] = self._level(plan, Scope({}, scope), f"{key}.{branch_id}.")
            except Failed:
                failed = True
            except FailedAtOnce:
                at_once = True
        if at_once:
            self._fail_at_once(failed)
        if failed:
            self._loosen(f"{key}.")
            raise Failed
        return outputs

    def _fail_at_once(self, failed_beside: bool) -> None:
        self.undecided = self.undecided or failed_beside
        raise FailedAtOnce

    def _child(self, config: dict[str, Any]) -> Any:
        input = config["input"]
        if config["definition"] == "leaf":
            if input["n"] < 0:
                raise Failed
            return input["n"]
        child = Model(self._plan, input)
        self.undecided = self.undecided or child.undecided
        if child.status == "failed":
            raise Failed
        return child.output


def _waited(node: PlanNode, config: dict[str, Any]) -> tuple[Any, str]:
    if config["event"] == SIGNAL:
        return SIGNALLED, "completed"
    if "timeout" not in config:
        raise Failed("skipped")  # the wait was given up when the node had no more time
    if config.get("on_timeout") == "fail":
        raise Failed("timed_out")
    return None, "timed_out"


def _acted(args: dict[str, Any], retry: RetryPolicy | None) -> Any:
    if args.get("hangs") or args.get("fails", 0) >= (1 if retry is None else retry.attempts):
        raise Failed
    return args["value"]

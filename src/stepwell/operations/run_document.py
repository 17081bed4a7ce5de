"""A run as one document: how it ended, and how each of its nodes did."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from stepwell.errors import WaitTimedOut
from stepwell.graph.plan import Plan, PlanNode
from stepwell.kernel.run import ErrorInfo, Run, Step
from stepwell.kernel.states import ENDED, OPEN

# A node's id, the iterations that it stands in, and what is inside of it or belongs to it.
_KEY = re.compile(r"([A-Za-z0-9_-]+)((?:\[\d+\])*)(?:#(\d+))?(?:\.(.*))?", re.DOTALL)
# Why a node was never reached, by how its run ended.
_UNREACHED = {
    "completed": "run_returned",
    "failed": "run_failed",
    "cancelled": "run_cancelled",
    "timed_out": "run_timed_out",
}
# The same for nodes inside of another one that has ended without them, by how that did.
_NOT_ENTERED = {
    "completed": "branch_not_taken",
    "failed": "upstream_failed",
    "timed_out": "given_up",
}


def run_document(run: Run, plan: Plan, journal: list[Step]) -> dict[str, Any]:
    """What `stepwell run` prints."""
    return {
        "run_id": run.id,
        "status": run.status,
        "output": run.output,
        "error": run.error,
        "steps": list(node_steps(run, plan, journal)),
    }


def node_steps(run: Run, plan: Plan, journal: list[Step]) -> Iterator[dict[str, Any]]:
    """All nodes as far as the run came, and those that it did not come to."""
    shown: dict[str, dict[str, Any]] = {}
    nodes: dict[str, PlanNode] = {}
    # Parts of nodes that have several: when the first began, and what is under way of them.
    began: dict[str, Any] = {}
    under_way: dict[str, Step] = {}
    late: list[str] = []
    retried: Counter[str] = Counter()
    for step in journal:
        key, node, part = _place(step.key, plan)
        if node is None:
            continue
        nodes[key] = node
        if part is None:
            shown[key] = _step(key, step, node)
        else:
            began.setdefault(key, step.started_at)
            if step.status in OPEN or step.status == "waiting":
                under_way[key] = step
            elif part == "timeout" and step.status == "completed":
                late.append(key)
            elif part.partition("#")[0] == "retry" and step.status == "completed":
                retried[key] += 1
    for key, step in under_way.items():
        if key not in shown:
            shown[key] = _step(key, step, nodes[key])
    for key in late:  # given up by its own timer, which is a reason of its own
        if key in shown and shown[key]["status"] == "skipped":
            error = ErrorInfo("step_timed_out", f"{key!r} took longer than its timeout.", key)
            shown[key] |= {"status": "timed_out", "reason": None, "error": error}
    for key in retried.keys() & shown.keys():  # nodes that wait have entries for each attempt
        shown[key]["attempts"] = 1 + retried[key]
    for key, each in shown.items():
        began.setdefault(key, each["started_at"])
        for outer in _around(key):  # has begun when the first thing inside of it did
            began[outer] = min(began.get(outer, began[key]), began[key])
    for key, started_at in began.items():
        if key in shown:
            shown[key]["started_at"] = started_at
    yield from shown.values()
    entered = _entered([key for key in began if key not in shown], plan)
    ended = run.status in ENDED
    reasons = {
        nodes[key].id: each["reason"] or _NOT_ENTERED.get(each["status"])
        for key, each in shown.items()
    }
    listed = {nodes[key].id for key in shown}
    for node, around in plan.all_nodes():
        if node.id in listed:
            continue
        reason = next(filter(None, map(reasons.get, reversed(around))), None)
        status = "skipped" if ended else "running" if node.id in entered else "pending"
        yield {
            "id": node.id,
            "status": status,
            "reason": reason or _UNREACHED[run.status] if ended else None,
            "attempts": 0, "output": None, "error": None,
            "started_at": began.get(entered.get(node.id, "")), "ended_at": None,
        }  # fmt: skip


def _around(key: str) -> list[str]:
    """The keys that something is inside of: `poll`, `poll[2]`, … for `poll[2].body.check`."""
    return [key[:end] for end, sign in enumerate(key) if sign in "[."]


def _entered(keys: list[str], plan: Plan) -> dict[str, str]:
    """Nodes, with their keys, of which nothing is known but what is inside of them."""
    found: dict[str, str] = {}
    for key in keys:
        _, node, part = _place(key, plan)
        if node is not None and part is None:
            found.setdefault(node.id, key)
    return found


def _step(key: str, step: Step, node: PlanNode) -> dict[str, Any]:
    noted = step.kind == "node" and step.status == "skipped"
    status, error = step.status, step.error
    if status == "failed" and error is not None and error.type == "step_timed_out":
        status = "timed_out"
    elif status == "timed_out" and node.written("on_timeout") == "fail":
        error = ErrorInfo(WaitTimedOut.code, f"No event came for {key!r} in time.", key)
    elif status == "timed_out":  # only its wait did: nobody came, and the node goes on with null
        status = "completed"
    reason = step.output if noted else ("given_up" if status == "skipped" else None)
    output = step.output if status == "completed" else None  # a child that is not has its run's id
    return {
        "id": key,
        "status": status,
        "reason": reason,
        "attempts": 0 if noted else step.attempts,
        "output": {"run_id": output} if step.kind == "start" and output is not None else output,
        "error": error,
        "started_at": step.started_at,
        "ended_at": step.completed_at,
    }


def _place(key: str, plan: Plan) -> tuple[str, PlanNode | None, str | None]:
    """The node that an entry is of, its key, and which part of it; no node if it is of none."""
    match = _KEY.fullmatch(key)
    node = None if match is None else plan.nodes.get(match[1])
    if match is None or node is None:
        return key, None, None
    own, rest = match[1] + match[2], match[4]
    if rest is None:
        return own, node, None
    inside: Plan | None = None
    if node.body is not None and rest.startswith("body."):
        inside, prefix, rest = node.body, f"{own}.body.", rest.removeprefix("body.")
    elif node.branches is not None:
        branch, _, rest_of = rest.partition(".")
        inside, prefix, rest = node.branches.get(branch), f"{own}.{branch}.", rest_of
    if inside is None:
        return own, node, rest
    found, inner_node, part = _place(rest, inside)
    return prefix + found, inner_node, part

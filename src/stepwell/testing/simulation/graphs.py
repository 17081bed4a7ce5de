"""Random graphs: every construct of the language, made so that a model can tell how they end.

Nothing in them depends on who is faster, except what is given up: where a failure or a return
ends more than its own node, whatever else is under way there may or may not have come to its end.
"""

from __future__ import annotations

import random
from typing import Any

# The signal that a `wait_event` waits for, and what comes with it.
SIGNAL, SIGNALLED = "go", {"word": "gone"}
# Gates that nobody decides about say so in their prompt.
LEFT_ALONE = "nobody"
# Types whose output is not known beforehand: it names a gate, or is what somebody says.
OPAQUE = frozenset({"approval", "task", "return"})
QUICK = {"attempts": 3, "backoff": "fixed", "base": "0.3s", "jitter": 0}
MAX_DEPTH = 2

Fields = dict[str, Any]


def random_document(rng: random.Random, name: str) -> Fields:
    """A definition; its input is an object with `n` and `depth`."""
    return _Maker(rng, name).document()


class _Maker:
    def __init__(self, rng: random.Random, name: str) -> None:
        self._rng = rng
        self._name = name
        self._count = 0
        # One that returns early must not fail beside that: either could be first.
        self._returns = rng.random() < 0.15
        self._recurs = rng.random() < 0.15
        self._failures = not self._returns and rng.random() < 0.7

    def document(self) -> Fields:
        return {"name": self._name, "policy": {"max_steps": 10_000}, **self._level(0)}

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _level(self, depth: int) -> Fields:
        nodes: list[Fields] = []
        for _ in range(self._rng.randint(1, 6 if depth == 0 else 3)):
            nodes.append(self._node(depth, nodes))
        if depth == 0 and self._returns and all(each["type"] != "return" for each in nodes):
            self._count += 1
            value = {"value": "returned"}
            nodes.append({"id": f"n{self._count}", "type": "return", "config": value})
        edges = [
            self._edge(source, target)
            for position, target in enumerate(nodes)
            for source in nodes[:position]
            if source["type"] != "return" and self._chance(0.35)
        ]
        output = {each["id"]: f"@{each['id']}" for each in nodes if each["type"] not in OPAQUE}
        return {"nodes": nodes, "edges": edges, "output": output}

    def _edge(self, source: Fields, target: Fields) -> Fields:
        edge: Fields = {"source": source["id"], "target": target["id"]}
        if source["type"] == "condition":
            edge["condition"] = self._rng.choice(["true", "false"])
        elif self._chance(0.2):
            edge["condition"] = self._rng.choice(
                ["input.n > 1", "input.n > 3", {"ref": "@input.n", "lt": 3}]
            )
        policies = ["skip", "skip", "continue", "continue", "fail_run"]
        edge["on_failure"] = self._rng.choice(policies if self._failures else ["skip", "continue"])
        edge["on_skip"] = self._rng.choice(["skip", "continue"])
        return edge

    # -- nodes ---------------------------------------------------------------------------

    def _node(self, depth: int, before: list[Fields]) -> Fields:
        makers = [
            self._act, self._act, self._act, self._act, self._transform, self._condition,
            self._delay, self._wait, self._emit, self._child, self._approval, self._task,
        ]  # fmt: skip
        if depth < MAX_DEPTH:
            makers += [self._loop, self._parallel]
        if self._returns and self._chance(0.1):
            makers = [self._return]
        self._count += 1
        node: Fields = {"id": f"n{self._count}"}
        node |= self._rng.choice(makers)(depth, before)
        recurs = "when" in node
        if self._chance(0.2):
            node.setdefault("when", self._rng.choice(["input.n > 1", {"ref": "@input.n", "gt": 2}]))
        if self._chance(0.2):
            node["join"] = "any"
        if node["type"] not in ("condition", "return") and not recurs and self._chance(0.25):
            self._repeat(node)
        if node["type"] not in ("condition", "return") and self._chance(0.1):
            node.setdefault("timeout", "1h")
        return node

    def _repeat(self, node: Fields) -> None:
        items = [self._rng.randint(1, 4) for _ in range(self._rng.randint(0, 4))]
        node["for_each"] = {
            "items": items,
            "concurrency": self._rng.randint(1, 3),
            "on_item_error": self._rng.choice(["fail", "collect", "collect"]),
        }
        if node["type"] == "python":
            node["config"]["args"]["value"] = "@item"
            if self._failures and self._chance(0.4):  # some items fail for good, some at first
                node["config"]["args"]["fails"] = "@item"
                node["retry"] = QUICK
        if self._chance(0.2):
            node["when"] = "item > 2"

    def _act(self, depth: int, before: list[Fields]) -> Fields:
        known = [each["id"] for each in before if each["type"] not in OPAQUE]
        value: Any = self._rng.randint(0, 9)
        if known and self._chance(0.5):
            value = f"@{self._rng.choice(known)}"
        args: Fields = {"value": value}
        node: Fields = {"type": "python", "config": {"function": "act", "args": args}}
        if self._failures and self._chance(0.3):
            args["fails"] = self._rng.choice([1, 2, 9])
            if self._chance(0.7):
                node["retry"] = QUICK
        elif self._failures and self._chance(0.07):
            args["hangs"] = True
            node["timeout"] = "0.7s"
        return node

    def _transform(self, depth: int, before: list[Fields]) -> Fields:
        value: Any = {"n": "{{input.n}}"}
        if self._failures and self._chance(0.2):
            value = "@input.nowhere"
        return {"type": "transform", "config": {"value": value}}

    def _condition(self, depth: int, before: list[Fields]) -> Fields:
        expression = self._rng.choice(["input.n > 2", "input.n < 0", {"ref": "@input.n", "eq": 3}])
        return {"type": "condition", "config": {"expression": expression}}

    def _delay(self, depth: int, before: list[Fields]) -> Fields:
        return {"type": "delay", "config": {"duration": self._rng.choice(["0s", "0.3s", "3s"])}}

    def _wait(self, depth: int, before: list[Fields]) -> Fields:
        if self._chance(0.5):
            return {"type": "wait_event", "config": {"event": SIGNAL}}
        node: Fields = {"type": "wait_event", "config": {"event": "never"}}
        if self._failures and self._chance(0.4):
            return node | {"timeout": "2s"}
        node["config"] |= {"timeout": "2s"}
        if self._failures and self._chance(0.4):
            node["config"]["on_timeout"] = "fail"
        return node

    def _emit(self, depth: int, before: list[Fields]) -> Fields:
        config = {"event": "said", "payload": {"n": "@input.n"}, "key": "{{run.id}}", "once": True}
        return {"type": "emit", "config": config}

    def _child(self, depth: int, before: list[Fields]) -> Fields:
        if self._recurs:
            return {
                "type": "run",
                "when": "input.depth > 0",
                "config": {"definition": self._name, "input": {"n": "@input.n", "depth": 0}},
            }
        n = -1 if self._failures and self._chance(0.3) else 2
        node: Fields = {"type": "run", "config": {"definition": "leaf", "input": {"n": n}}}
        if n < 0 and self._chance(0.5):
            node["retry"] = QUICK | {"attempts": 2}
        return node

    def _approval(self, depth: int, before: list[Fields]) -> Fields:
        config: Fields = {"prompt": "Now?"}
        if self._chance(0.4):
            ways = [("approve", "fail"), ("deny", "continue")]
            if self._failures:
                ways += [("deny", "fail"), ("fail", "fail")]
            on_timeout, on_deny = self._rng.choice(ways)
            config = {"prompt": LEFT_ALONE, "timeout": "2s", "on_timeout": on_timeout}
            config["on_deny"] = on_deny
        return {"type": "approval", "config": config}

    def _task(self, depth: int, before: list[Fields]) -> Fields:
        return {"type": "task", "config": {"title": "Do it"}}

    def _return(self, depth: int, before: list[Fields]) -> Fields:
        return {"type": "return", "config": {"value": "returned"}}

    def _loop(self, depth: int, before: list[Fields]) -> Fields:
        times = self._rng.randint(0, 2)
        condition = {"until": f"index >= {times}"}
        if self._chance(0.4):
            condition = {"while": f"index < {times}"}
        config: Fields = {**condition, "delay": self._rng.choice(["0s", "0s", "1s"])}
        if self._failures and self._chance(0.2):
            config["max_iterations"] = 1
        return {"type": "loop", "config": config, "body": self._level(depth + 1)}

    def _parallel(self, depth: int, before: list[Fields]) -> Fields:
        branches = []
        for _ in range(self._rng.randint(1, 3)):
            self._count += 1
            branches.append({"id": f"b{self._count}", **self._level(depth + 1)})
        return {"type": "parallel", "config": {}, "branches": branches}

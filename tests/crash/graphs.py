"""Graphs that are crashed after every commit: each construct of the language, as small as it is."""

from __future__ import annotations

from typing import Any

QUICK = {"attempts": 3, "backoff": "fixed", "base": "0.1s", "jitter": 0}


def act(node_id: str, value: Any = None, fails: int | str = 0, **fields: Any) -> dict[str, Any]:
    args = {"value": value, "fails": fails}
    return node(node_id, "python", {"function": "act", "args": args}, **fields)


def node(node_id: str, kind: str, config: Any = None, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "type": kind, "config": config or {}, **fields}


def edge(source: str, target: str, **fields: Any) -> dict[str, Any]:
    return {"source": source, "target": target, **fields}


def never(node_id: str, **fields: Any) -> dict[str, Any]:
    return node(node_id, "wait_event", {"event": "never"}, **fields)


def diamond(on_failure: str) -> dict[str, Any]:
    return {
        "nodes": [act("a"), act("b", "b"), act("c", fails=9), act("d", {"b": "@b", "c": "@c"})],
        "edges": [
            edge("a", "b"), edge("a", "c"), edge("b", "d"), edge("c", "d", on_failure=on_failure),
        ],
    }  # fmt: skip


def gate(**config: Any) -> dict[str, Any]:
    return {
        "nodes": [
            act("before", 1),
            node("gate", "approval", {"prompt": "{{before}}?", **config}),
            act("after", {"approved": "@gate.approved"}),
        ],
        "edges": [edge("before", "gate"), edge("gate", "after")],
    }


GRAPHS: dict[str, dict[str, Any]] = {
    "diamond-skip": diamond("skip"),
    "diamond-continue": diamond("continue"),
    "diamond-fail-run": diamond("fail_run"),
    "for-each": {
        "nodes": [
            act("list", [1, 2, 3, 4]),
            act("each", "@item", "@item", retry=QUICK,
                for_each={"items": "@list", "concurrency": 2, "on_item_error": "collect"}),
            act("end", {"found": "@each", "errors": "@step.each.error.message"}),
        ],
    },
    "loop": {
        "nodes": [
            node("loop", "loop", {"until": "index == 2", "delay": "0.3s"},
                 body=[act("count", {"n": "@index", "before": "@previous"})]),
            act("end", "@loop"),
        ],
    },
    "parallel": {
        "nodes": [
            node("both", "parallel", branches=[
                {"id": "left", "nodes": [act("l1", 1), act("l2", "@l1", 1, retry=QUICK)]},
                {"id": "right", "nodes": [node("nap", "delay", {"duration": "0.2s"}),
                                          act("r", 2)], "edges": [edge("nap", "r")]},
            ]),
            node("end", "transform", {"value": "@both"}),
        ],
    },
    "return": {
        "nodes": [
            act("a"), never("beside"),
            node("both", "parallel", branches=[
                {"id": "left", "nodes": [act("l"), node("early", "return", {"value": "enough"})],
                 "edges": [edge("l", "early")]},
                {"id": "right", "nodes": [never("r")]},
            ]),
        ],
        "edges": [edge("a", "both")],
    },
    "timeout": {
        "nodes": [
            never("late", timeout="0.4s"), act("beside"),
            act("end", {"status": "@step.late.status", "type": "@step.late.error.type"}),
        ],
        "edges": [edge("late", "end", on_failure="continue"), edge("beside", "end")],
    },
    "recursion": {
        "nodes": [
            act("own", "@input.depth"),
            node("below", "run", {"definition": "recursion", "input": {"depth": 0}},
                 when="input.depth > 0"),
            node("failing", "run", {"definition": "nowhere"}),
            act("end", {"own": "@own", "below": "@below"}),
        ],
        "edges": [edge("own", "below"), edge("below", "end", on_skip="continue"),
                  edge("failing", "end", on_failure="continue")],
        "output": "@end",
    },
    "gate-approved": gate(),
    "gate-approved-later": gate(),
    "gate-expires": gate(timeout="0.5s", on_deny="continue"),
    "gate-denies": gate(timeout="0.5s"),
    "people-and-events": {
        "nodes": [
            node("do", "task", {"title": "Do it"}),
            node("mail", "wait_event", {"event": "mail"}),
            node("silence", "wait_event", {"event": "silence", "timeout": "0.3s"}),
            node("said", "emit", {"event": "said", "key": "k", "once": True}),
            act("end", {"did": "@do.summary", "mail": "@mail", "silence": "@silence"}),
        ],
        "edges": [edge("do", "said"), edge("said", "end")],
    },
}  # fmt: skip

# How they end: status and output.
EXPECTED: dict[str, tuple[str, Any]] = {
    "diamond-skip": ("failed", None),
    "diamond-continue": ("completed", {"b": "b", "c": None}),
    "diamond-fail-run": ("failed", None),
    "for-each": (
        "completed", {"found": [1, 2, None, None], "errors": "2 of 4 items failed."},
    ),
    "loop": (
        "completed", {"n": 2, "before": {"n": 1, "before": {"n": 0, "before": None}}},
    ),
    "parallel": ("completed", {"left": 1, "right": 2}),
    "return": ("completed", "enough"),
    "timeout": ("completed", {"status": "timed_out", "type": "step_timed_out"}),
    "recursion": ("completed", {"own": 1, "below": {"own": 0, "below": None}}),
    "gate-approved": ("completed", {"approved": True}),
    "gate-approved-later": ("completed", {"approved": True}),
    "gate-expires": ("completed", {"approved": False}),
    "gate-denies": ("cancelled", None),
    "people-and-events": (
        "completed", {"did": "done", "mail": {"n": 1}, "silence": None},
    ),
}  # fmt: skip

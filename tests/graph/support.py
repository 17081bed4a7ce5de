"""Small things that the tests of the language share."""

from __future__ import annotations

import json
from typing import Any

from stepwell.graph.check import check
from stepwell.graph.importing import Imported, import_text
from stepwell.graph.parse import parse
from stepwell.graph.plan import Plan
from stepwell.graph.problems import Problems


class Kind:
    """A type of node that has nothing to say about its config."""

    verbatim = frozenset({"code"})
    acts = True
    max_timeout = None

    def check(self, config: dict[str, Any], path: str, problems: Problems) -> None:
        pass


KINDS: Any = dict.fromkeys(
    (
        "shell", "http", "code", "approval", "task", "delay", "wait_event", "run", "tool", "agent",
        "agent_message", "transform",
    ),
    Kind(),
)  # fmt: skip


def checked_plan(document: Any) -> Plan:
    """The plan of a definition in which nothing is wrong."""
    problems = Problems()
    definition = parse(document, {}, problems)
    assert definition is not None
    plan = check(definition, KINDS, problems)
    assert problems.found == []
    assert plan is not None
    return plan


def imported(source: Any, siblings: dict[str, str] | None = None) -> Imported:
    """What an importer makes of a document; it must have the form of a definition."""
    text = source if isinstance(source, str) else json.dumps(source)
    problems = Problems()
    found = import_text(text, (siblings or {}).get, problems)
    assert problems.found == []
    assert found is not None
    assert parse(found.document, {}, problems) is not None
    assert problems.found == []
    return found


def plan_of(source: Any, siblings: dict[str, str] | None = None) -> Any:
    found = imported(source, siblings)
    return checked_plan(found.document), found


def lost(found: Imported) -> set[str]:
    return {loss.path for loss in found.losses}


def ways(plan: Any, node_id: str) -> set[str]:
    return {edge.source for edge in plan.nodes[node_id].incoming}

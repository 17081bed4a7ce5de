"""The hash of a definition: the same for the same meaning, another for any other."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.graph.hash import hash_of
from stepwell.graph.parse import parse
from stepwell.graph.problems import Problems

NODES = [{"id": "a", "type": "shell", "config": {"x": 1, "y": 2}}, {"id": "b", "type": "shell"}]
DOCUMENT = {"name": "x", "nodes": NODES, "edges": [{"source": "a", "target": "b"}]}


def hashed(**fields: Any) -> str:
    definition = parse({**DOCUMENT, **fields}, {"bash": "shell"}, Problems())
    assert definition is not None
    return hash_of(definition)


@pytest.mark.parametrize(
    "fields",
    [
        {"title": "Shown", "description": "To people", "tags": ["ops"]},
        {"timezone": "UTC", "policy": {"max_steps": 1000}, "refs": "strict"},
        {"edges": [{"target": "b", "source": "a", "on_failure": "skip", "on_skip": "skip"}]},
        {
            "nodes": [
                {"type": "bash", "title": "A", "id": "a", "config": {"y": 2, "x": 1}},
                NODES[1],
            ]
        },
    ],
)
def test_what_runs_do_not_depend_on_does_not_matter(fields: Any) -> None:
    assert hashed(**fields) == hashed()


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "y"},
        {"nodes": NODES[::-1]},
        {"nodes": [{**NODES[0], "config": {"x": 1, "y": 3}}, NODES[1]]},
        {"edges": [{"source": "a", "target": "b", "on_failure": "continue"}]},
        {"policy": {"max_steps": 10}},
        {"output": None},
        {"timezone": "Europe/Berlin"},
    ],
)
def test_what_they_depend_on_does(fields: Any) -> None:
    assert hashed(**fields) != hashed()

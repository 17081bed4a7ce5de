"""Semantic operations on documents."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from stepwell.errors import InvalidInput
from stepwell.graph.diff import diff
from stepwell.graph.edits import MAX_OPERATIONS, edited

DOCUMENT: dict[str, Any] = {
    "name": "checks",
    "title": "Checks",
    "policy": {"timeout": "1h"},
    "nodes": [
        {"id": "a", "type": "http", "config": {"url": "x"}, "timeout": "5s"},
        {"id": "b", "type": "http"},
        {"id": "again", "type": "loop", "body": [{"id": "inner", "type": "http"}]},
        {"id": "par", "type": "parallel", "branches": [
            {"id": "left", "nodes": [{"id": "l", "type": "http"}]},
        ]},
    ],
    "edges": [{"source": "a", "target": "b"}, {"source": "b", "target": "again"}],
}  # fmt: skip


def after(*operations: dict[str, Any]) -> dict[str, Any]:
    """What the operations change."""
    return diff(DOCUMENT, edited(DOCUMENT, list(operations)))


def test_the_document_itself_stays_as_it_was() -> None:
    before = copy.deepcopy(DOCUMENT)
    edited(DOCUMENT, [{"op": "remove_node", "id": "inner"}, {"op": "remove_node", "id": "a"}])
    assert before == DOCUMENT


def test_a_node_is_added_at_the_top_in_a_body_or_in_a_branch() -> None:
    new = {"type": "http"}
    found = after(
        {"op": "add_node", "node": {"id": "top", **new}},
        {"op": "add_node", "node": {"id": "in_body", **new}, "into": "again"},
        {"op": "add_node", "node": {"id": "in_branch", **new}, "into": "par.left"},
        {"op": "add_edge", "edge": {"source": "inner", "target": "in_body"}},
    )
    assert {name: node.get("in") for name, node in found["nodes"]["added"].items()} == {
        "top": None, "in_body": "again", "in_branch": "par.left",
    }  # fmt: skip
    assert found["edges"]["added"]["inner → in_body"]["in"] == "again"


def test_a_loop_is_added_before_what_it_repeats() -> None:
    found = edited(
        DOCUMENT,
        [
            {"op": "add_node", "node": {"id": "more", "type": "loop"}},
            {"op": "add_node", "node": {"id": "step", "type": "http"}, "into": "more"},
            {"op": "update_node", "id": "step", "set": {"timeout": "1s"}},
        ],
    )
    step = {"id": "step", "type": "http", "timeout": "1s"}
    assert found["nodes"][-1]["body"] == {"nodes": [step]}


def test_fields_of_a_node_are_set_and_unset() -> None:
    found = after(
        {"op": "update_node", "id": "a", "set": {"config.url": "y", "config.headers.x": 1}},
        {"op": "update_node", "id": "a", "unset": ["timeout"]},
        {"op": "update_node", "id": "inner", "set": {"title": "Inner"}},
    )
    assert found["nodes"]["changed"] == {
        "a": {
            "config.url": {"from": "x", "to": "y"},
            "config.headers": {"to": {"x": 1}},
            "timeout": {"from": "5s"},
        },
        "inner": {"title": {"to": "Inner"}},
    }


def test_a_removed_node_takes_its_edges_and_its_body_along() -> None:
    found = after({"op": "remove_node", "id": "again"})
    assert list(found["nodes"]["removed"]) == ["again", "inner"]
    assert list(found["edges"]["removed"]) == ["b → again"]
    assert not found["edges"]["changed"]


def test_an_id_is_free_once_its_node_is_removed() -> None:
    found = after(
        {"op": "remove_node", "id": "again"},
        {"op": "add_node", "node": {"id": "inner", "type": "delay"}},
    )
    assert found["nodes"]["changed"]["inner"]["type"] == {"from": "http", "to": "delay"}


def test_edges_are_changed_and_removed_by_their_ends() -> None:
    found = after(
        {"op": "update_edge", "source": "a", "target": "b", "set": {"on_failure": "continue"}},
        {"op": "remove_edge", "source": "b", "target": "again"},
    )
    assert found["edges"]["changed"] == {"a → b": {"on_failure": {"to": "continue"}}}
    assert list(found["edges"]["removed"]) == ["b → again"]


def test_meta_fields_are_set_and_unset() -> None:
    found = after({"op": "set_meta", "set": {"policy.retention": "1d"}, "unset": ["title"]})
    assert found["meta"] == {"title": {"from": "Checks"}, "policy.retention": {"to": "1d"}}
    assert not found["nodes"]["changed"]


NODE = {"id": "new", "type": "http"}


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (5, "mapping"),
        ({"op": "add_nod", "node": NODE}, "Did you mean 'add_node'"),
        ({"op": ["add_node"]}, "no op"),
        ({"op": "add_node"}, "needs node"),
        ({"op": "add_node", "node": NODE, "at": 1}, "no field 'at'"),
        ({"op": "add_node", "node": {**NODE, "id": "inner"}}, "'inner' already"),
        ({"op": "add_node", "node": {**NODE, "id": "a b"}}, "'a b'"),
        ({"op": "add_node", "node": {**NODE, "body": [NODE]}}, "'new' already"),
        ({"op": "add_node", "node": {**NODE, "retries": 3}}, "no field 'retries'"),
        ({"op": "add_node", "node": {"id": "new"}}, "type"),
        ({"op": "add_node", "node": NODE, "into": "par.right"}, "no branch 'right'"),
        ({"op": "add_node", "node": NODE, "into": "agian"}, "Did you mean 'again'"),
        ({"op": "update_node", "id": "z", "set": {"title": "x"}}, "no node 'z'"),
        ({"op": "update_node", "id": ["a"], "set": {"title": "x"}}, "no node"),
        ({"op": "update_node", "id": "a"}, "to set or to unset"),
        ({"op": "update_node", "id": "a", "set": {"id": "c"}}, "cannot be changed"),
        ({"op": "update_node", "id": "a", "set": {"confg.url": 1}}, "Did you mean 'config'"),
        ({"op": "update_node", "id": "a", "set": {"timeout.x": 1}}, "not a mapping"),
        ({"op": "update_node", "id": "a", "unset": ["config.x"]}, "to unset"),
        ({"op": "update_node", "id": "a", "unset": "timeout"}, "a list"),
        ({"op": "update_node", "id": "again", "set": {"body": [NODE, NODE]}}, "'new' already"),
        ({"op": "remove_node", "id": "z"}, "no node 'z'"),
        ({"op": "add_edge", "edge": {"source": "a", "target": "z"}}, "no node 'z'"),
        ({"op": "add_edge", "edge": {"source": "a", "target": "inner"}}, "neither into"),
        ({"op": "add_edge", "edge": {"source": "a", "target": "b", "if": 1}}, "no field 'if'"),
        ({"op": "update_edge", "source": "a", "target": "again", "set": {"id": "e"}}, "no edge"),
        ({"op": "remove_edge", "source": "b", "target": "a"}, "no edge"),
        ({"op": "set_meta", "set": {"nodes": []}}, "no field 'nodes'"),
        ({"op": "set_meta", "set": [1]}, "mapping"),
    ],
)
def test_what_is_wrong_names_the_operation(operation: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=r"^operations\[1\]: ") as caught:
        edited(DOCUMENT, [{"op": "set_meta", "set": {"title": "x"}}, operation])
    assert said in caught.value.message
    assert caught.value.details == {"index": 1}


def test_operations_are_bounded_in_number() -> None:
    operation = {"op": "set_meta", "set": {"title": "x"}}
    with pytest.raises(InvalidInput, match="501 operations"):
        edited(DOCUMENT, [operation] * (MAX_OPERATIONS + 1))
    with pytest.raises(InvalidInput, match="at least one"):
        edited(DOCUMENT, [])

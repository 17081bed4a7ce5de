"""Differences of documents: every change shown, none that is not one."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.graph.diff import MAX_LINES, MAX_NAMES, describe, diff, differs

BASE: dict[str, Any] = {
    "name": "checks",
    "title": "Checks",
    "policy": {"timeout": "1h"},
    "triggers": [{"id": "nightly", "type": "schedule", "cron": "0 2 * * *"}],
    "nodes": [
        {"id": "a", "type": "http", "config": {"url": "x", "headers": {"h": 1}}},
        {
            "id": "again", "type": "loop", "config": {"until": "true"},
            "body": {"nodes": [{"id": "inner", "type": "http"}], "output": "@inner"},
        },
        {"id": "par", "type": "parallel", "branches": [
            {"id": "left", "nodes": [{"id": "l", "type": "http"}]},
        ]},
    ],
    "edges": [{"source": "a", "target": "again"}, {"source": "again", "target": "par"}],
}  # fmt: skip


def changed(change: Any) -> dict[str, Any]:
    new = copy.deepcopy(BASE)
    change(new)
    return diff(BASE, new)


def test_a_document_does_not_differ_from_itself() -> None:
    found = diff(BASE, copy.deepcopy(BASE))
    assert not differs(found)
    assert describe(found) == []


def test_a_field_of_a_node_is_shown_with_both_values() -> None:
    found = changed(lambda new: new["nodes"][0]["config"].update(url="y", headers={"h": 2}))
    assert found["nodes"]["changed"] == {
        "a": {"config.url": {"from": "x", "to": "y"}, "config.headers.h": {"from": 1, "to": 2}}
    }
    assert describe(found) == [
        'node a: config.url: "x" → "y"',
        "node a: config.headers.h: 1 → 2",
    ]


def test_nodes_inside_bodies_and_branches_are_compared_by_themselves() -> None:
    def change(new: Any) -> None:
        new["nodes"][1]["body"]["nodes"][0]["timeout"] = "5s"
        new["nodes"][1]["body"]["output"] = None
        new["nodes"][2]["branches"][0]["nodes"].append({"id": "l2", "type": "delay"})

    found = changed(change)
    assert found["nodes"]["changed"] == {
        "inner": {"timeout": {"to": "5s"}},
        "again": {"body.output": {"from": "@inner", "to": None}},
    }
    assert found["nodes"]["added"] == {"l2": {"id": "l2", "type": "delay", "in": "par.left"}}
    assert "node l2 added in par.left (delay)" in describe(found)


def test_where_a_node_is_counts_as_a_field_of_it() -> None:
    def change(new: Any) -> None:
        new["nodes"].append(new["nodes"][1]["body"]["nodes"].pop())

    found = changed(change)
    assert found["nodes"]["changed"] == {"inner": {"in": {"from": "again"}}}
    assert not found["nodes"]["added"]
    assert not found["nodes"]["removed"]


def test_edges_are_known_by_their_ends() -> None:
    def change(new: Any) -> None:
        new["edges"][0]["condition"] = "true"
        new["edges"][1] = {"source": "a", "target": "par"}

    found = changed(change)["edges"]
    assert found["changed"] == {"a → again": {"condition": {"to": "true"}}}
    assert list(found["added"]) == ["a → par"]
    assert list(found["removed"]) == ["again → par"]


def test_equal_edges_between_the_same_nodes_are_counted() -> None:
    edge = {"source": "a", "target": "b"}
    conditional = {**edge, "condition": "1 == 1"}
    found = diff({"edges": [conditional, edge, edge]}, {"edges": [edge]})
    assert list(found["edges"]["removed"]) == ["a → b", "a → b #2"]
    assert not found["edges"]["changed"]


def test_fields_of_the_definition_are_compared_one_by_one() -> None:
    def change(new: Any) -> None:
        new["title"] = "All checks"
        new["policy"] = {"timeout": "2h", "proposals": True}
        new["triggers"][0]["cron"] = "0 3 * * *"
        new["triggers"].append({"id": "hook", "type": "webhook"})
        new["output"] = "@a"

    assert changed(change)["meta"] == {
        "title": {"from": "Checks", "to": "All checks"},
        "policy.timeout": {"from": "1h", "to": "2h"},
        "policy.proposals": {"to": True},
        "triggers.nightly.cron": {"from": "0 2 * * *", "to": "0 3 * * *"},
        "triggers.hook": {"to": {"id": "hook", "type": "webhook"}},
        "output": {"to": "@a"},
    }


def test_another_order_is_a_difference() -> None:
    found = changed(lambda new: new["nodes"].reverse())
    assert describe(found) == ["the order of nodes changed"]
    assert describe(changed(lambda new: new["edges"].reverse())) == ["the order of edges changed"]
    twins = [{"source": "a", "target": "b"}, {"source": "a", "target": "b", "condition": "true"}]
    assert differs(diff({"edges": twins}, {"edges": twins[::-1]}))


@pytest.mark.parametrize(("old", "new"), [(1, True), (1, 1.0), (0, False), ("1", 1), ([], None)])
def test_values_that_only_look_equal_are_not(old: Any, new: Any) -> None:
    assert differs(diff({"inputs": {"default": old}}, {"inputs": {"default": new}}))


def test_keys_with_dots_hide_no_change() -> None:
    found = diff({"inputs": {"a.b": 1, "a": {"b": 1}}}, {"inputs": {"a.b": 2, "a": {"b": 2}}})
    assert list(found["meta"]) == ['inputs["a.b"]', "inputs.a.b"]


def test_a_document_that_was_not_there_is_all_new() -> None:
    found = diff(None, BASE)
    assert list(found["nodes"]["added"]) == ["a", "again", "par", "inner", "l"]
    assert found["meta"]["name"] == {"to": "checks"}
    assert list(diff(BASE, None)["edges"]["removed"]) == ["a → again", "again → par"]


@pytest.mark.parametrize(
    "odd",
    [
        [], "text", {"nodes": 5}, {"nodes": [5, {"id": 7}, {}]}, {"edges": [{"source": []}, None]},
        {"nodes": [{"id": "a"}, {"id": "a"}, {"id": "a #2"}]},
        {"nodes": [{"id": "a", "body": 5, "branches": [5, {"nodes": [{}]}]}]},
    ],
)  # fmt: skip
def test_documents_that_are_wrong_in_any_way_can_be_compared(odd: Any) -> None:
    assert differs(diff(BASE, odd))
    assert differs(diff(odd, BASE))
    assert not differs(diff(odd, copy.deepcopy(odd)))
    assert describe(diff(None, odd))


def test_what_people_are_shown_is_bounded() -> None:
    nodes = [{"id": f"n{number}", "type": "http"} for number in range(1000)]
    lines = describe(diff(None, {"title": "x" * 10_000, "nodes": nodes}))
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == "and 801 more changes"
    assert max(map(len, lines)) < 200


VALUES = st.sampled_from([0, False, 1.0, 1, "x", None, [], {}, {"k": 1}, [1]])
IDS = st.sampled_from(["a", "b", "c", "a #2", "a.b"])
EDGES = st.lists(
    st.fixed_dictionaries({"source": IDS, "target": IDS}, optional={"condition": VALUES}),
    max_size=3,
)


def graphs(nodes: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"nodes": st.lists(nodes, max_size=3), "edges": EDGES}, optional={"output": VALUES}
    )


PLAIN = st.fixed_dictionaries({"id": IDS, "config": st.dictionaries(IDS, VALUES, max_size=2)})
LOOP = st.fixed_dictionaries({"id": IDS, "body": graphs(PLAIN)})
DOCUMENTS = graphs(PLAIN | LOOP)


@given(DOCUMENTS, DOCUMENTS)
def test_no_difference_goes_unseen(old: Any, new: Any) -> None:
    same = msgspec.json.encode(old, order="sorted") == msgspec.json.encode(new, order="sorted")
    assert differs(diff(old, new)) == (not same)
    assert bool(describe(diff(old, new))) == (not same)


@pytest.mark.parametrize(("length", "fields"), [(20_000, 5000), (900, 20_000)])
def test_a_difference_is_not_much_larger_than_what_differs(length: int, fields: int) -> None:
    def document(value: int) -> dict[str, Any]:
        wide = {f"f{i}": value for i in range(fields)}
        config = {"k" * length: wide, "other": value}
        return {"name": "x", "nodes": [{"id": "a", "type": "transform", "config": config}]}

    old, new = document(1), document(2)
    found = diff(old, new)
    size = len(msgspec.json.encode([old, new]))
    assert len(msgspec.json.encode(found)) < 2 * size + 2 * MAX_NAMES
    changed = found["nodes"]["changed"]["a"]
    assert all(change["from"] != change["to"] for change in changed.values())
    assert len(describe(found)) <= MAX_LINES + 1

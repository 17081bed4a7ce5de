"""Checking a definition: every problem at once, and the plan that comes of a good one."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.graph.check import check
from stepwell.graph.parse import parse
from stepwell.graph.plan import Plan
from stepwell.graph.problems import Problems
from tests.graph.support import Kind


class Waiting(Kind):
    acts = False


KINDS: Any = {"shell": Kind(), "http": Kind(), "code": Kind(), "approval": Waiting()}


def node(node_id: str, kind: str = "shell", /, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "type": kind, **fields}


def edge(source: str, target: str, **fields: Any) -> dict[str, Any]:
    return {"source": source, "target": target, **fields}


def checked(document: Any) -> tuple[Plan | None, Problems]:
    problems = Problems()
    definition = parse(document, {"bash": "shell"}, problems)
    return definition and check(definition, KINDS, problems), problems


def plan_of(nodes: list[Any], edges: list[Any] | None = None, **fields: Any) -> Plan:
    plan, problems = checked({"name": "x", "nodes": nodes, "edges": edges or [], **fields})
    assert problems.found == []
    assert plan is not None
    return plan


def found_in(nodes: Any, edges: Any = (), **fields: Any) -> list[tuple[str, str]]:
    document = {"name": "x", "nodes": nodes, "edges": list(edges), **fields}
    plan, problems = checked(document)
    assert (plan is None) == any(each.severity == "error" for each in problems.found)
    return [(each.path, each.code) for each in problems.found]


def ways(plan: Plan, node_id: str) -> set[tuple[str, bool]]:
    return {(each.source, each.drawn) for each in plan.nodes[node_id].incoming}


# -- plans ---------------------------------------------------------------------------------


def test_references_make_edges_where_none_was_drawn() -> None:
    plan = plan_of(
        [
            node("a"), node("b", config={"x": "@a.y"}), node("c", when={"ref": "@b.ok"}),
            node("d", when="steps.c.output.n > 1"),
            node("e", for_each={"items": "@d"}, config={"x": "{{item}} @a"}),
        ],
        [edge("a", "b")],
    )  # fmt: skip
    assert ways(plan, "b") == {("a", True)}
    assert ways(plan, "c") == {("b", False)}
    assert ways(plan, "d") == {("c", False)}
    assert ways(plan, "e") == {("d", False), ("a", False)}
    assert (plan.order, plan.terminal) == (("a", "b", "c", "d", "e"), ("e",))


def test_the_condition_of_an_edge_waits_for_what_it_looks_at() -> None:
    plan = plan_of(
        [node("a"), node("b"), node("c")],
        [edge("a", "c", condition="steps.b.output.ok == true")],
    )
    assert ways(plan, "c") == {("a", True), ("b", False)}


def test_what_a_body_refers_to_is_waited_for_by_the_node_around_it() -> None:
    body = {"nodes": [node("inner", config={"x": "@a @index @previous"}), node("last")],
            "edges": [edge("inner", "last")], "output": "@b"}  # fmt: skip
    loop = node("loop", "loop", body=body,
                config={"until": "steps.inner.output.done && steps.c.output.x"})  # fmt: skip
    plan = plan_of([node("a"), node("b"), node("c"), loop])
    assert ways(plan, "loop") == {("a", False), ("b", False), ("c", False)}
    inner = plan.nodes["loop"].body
    assert inner is not None
    assert ways(inner, "last") == {("inner", True)}
    assert ways(inner, "inner") == set()


def test_a_tolerated_failure_is_null_for_whoever_refers_to_it() -> None:
    plan = plan_of(
        [node("a"), node("b"), node("c", config={"x": "@a"})],
        [edge("a", "b", on_failure="continue"), edge("b", "c")],
    )
    assert plan.nodes["a"].tolerated
    implied = next(each for each in plan.nodes["c"].incoming if each.source == "a")
    assert implied.on_failure == "continue"


def test_code_is_left_alone() -> None:
    plan = plan_of([node("a", "code", config={"code": "@decorated {{x", "input": {"x": "@input"}})])
    assert plan.nodes["a"].incoming == ()


def test_types_may_have_other_names() -> None:
    assert plan_of([node("a", "bash")]).nodes["a"].type == "shell"


# -- problems ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "edges", "problem"),
    [
        ([node("a"), node("a")], [], ("nodes[1].id", "duplicate_id")),
        ([node("a b")], [], ("nodes[0].id", "bad_id")),
        ([node("ünïcode")], [], ("nodes[0].id", "bad_id")),
        ([node("")], [], ("nodes[0].id", "bad_id")),
        ([node("steps")], [], ("nodes[0].id", "reserved_id")),
        ([{"type": "shell"}], [], ("nodes[0].id", "bad_id")),
        ([node("a", "shel")], [], ("nodes[0].type", "unknown_type")),
        ([{"id": "a"}], [], ("nodes[0].type", "missing_field")),
        (["a"], [], ("nodes[0]", "bad_field")),
        ([node("a", comand="x")], [], ("nodes[0].comand", "unknown_field")),
        ([node("a", timeout="soon")], [], ("nodes[0].timeout", "bad_duration")),
        ([node("a", retry={"attempts": 0})], [], ("nodes[0].retry.attempts", "bad_field")),
        ([node("a", retry={"backoff": "often"})], [], ("nodes[0].retry.backoff", "bad_field")),
        ([node("a", retry={"jitter": 2})], [], ("nodes[0].retry.jitter", "bad_field")),
        ([node("a", join="some")], [], ("nodes[0].join", "bad_field")),
        ([node("a", when="1 +")], [], ("nodes[0].when", "bad_condition")),
        ([node("a", config={"x": "@nobody.x"})], [], ("nodes[0].config.x", "unknown_reference")),
        ([node("a", config=[])], [], ("nodes[0].config", "bad_field")),
        ([node("a", for_each={})], [], ("nodes[0].for_each.items", "missing_field")),
        ([node("a", for_each={"items": [], "as": "run"})], [],
         ("nodes[0].for_each.as", "reserved_name")),
        ([node("a", for_each={"items": [], "as": "a"})], [],
         ("nodes[0].for_each.as", "reserved_name")),
        ([node("a", for_each={"items": [], "concurrency": 0})], [],
         ("nodes[0].for_each.concurrency", "bad_field")),
        ([node("a", "approval", config={"x": "@secrets.s"})], [],
         ("nodes[0].config.x", "secret_not_allowed")),
        ([node("a", body={"nodes": [node("b")]})], [], ("nodes[0].body", "unknown_field")),
        ([node("a", "loop", config={"until": "true"})], [], ("nodes[0].body", "missing_field")),
        ([node("a", "loop", config={}, body=[node("b")])], [],
         ("nodes[0].config", "missing_field")),
        ([node("a", "loop", config={"until": "true", "max_iterations": 0}, body=[node("b")])], [],
         ("nodes[0].config.max_iterations", "bad_field")),
        ([node("a", "loop", config={"until": "true", "delay": "x"}, body=[node("b")])], [],
         ("nodes[0].config.delay", "bad_duration")),
        ([node("a", "parallel")], [], ("nodes[0].branches", "missing_field")),
        ([node("a", "condition")], [], ("nodes[0].config.expression", "missing_field")),
        ([node("a")], [edge("a", "b")], ("edges[0].target", "dangling_edge")),
        ([node("a")], [edge("a", "a")], ("edges[0]", "self_loop")),
        ([node("a")], [{"source": "a"}], ("edges[0].target", "missing_field")),
        ([node("a"), node("b")], [edge("a", "b", condition="true")],
         ("edges[0].condition", "bad_condition")),
        ([node("a", "condition", config={"expression": "true"}), node("b")], [edge("a", "b")],
         ("edges[0]", "missing_branch")),
        ([node("a"), node("l", "loop", config={"until": "true"}, body=[node("b")])],
         [edge("a", "b")], ("edges[0].target", "edge_across_levels")),
        ([node("a"), node("b"), node("c")],
         [edge("a", "b"), edge("b", "c"), edge("c", "a")], ("edges", "cycle")),
        ([node("a", config={"x": "@b"}), node("b", config={"x": "@a"})], [], ("edges", "cycle")),
    ],
)  # fmt: skip
def test_a_problem_is_found_where_it_is(nodes: Any, edges: Any, problem: tuple[str, str]) -> None:
    assert found_in(nodes, edges) == [problem]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "Not A Slug"}, ("name", "bad_name")),
        ({"timezone": "Europe/Berln"}, ("timezone", "unknown_timezone")),
        ({"inputs": {"type": "objct"}}, ("inputs.type", "bad_schema")),
        ({"policy": {"max_steps": 0}}, ("policy.max_steps", "bad_field")),
        ({"policy": {"max_step": 1}}, ("policy.max_step", "unknown_field")),
        ({"triggers": [{"id": "t"}, {"id": "t"}]}, ("triggers[1].id", "duplicate_id")),
        ({"refs": "loose"}, ("refs", "bad_field")),
        ({"apiVersion": "stepwell.dev/v9"}, ("apiVersion", "unknown_version")),
        ({"output": "@nobody"}, ("output", "unknown_reference")),
        ({"tags": "ops"}, ("tags", "bad_field")),
    ],
)
def test_a_problem_around_the_nodes_is_found(fields: Any, problem: tuple[str, str]) -> None:
    assert found_in([node("a")], **fields) == [problem]


def test_all_problems_are_found_at_once() -> None:
    nodes = [node("a", timeout="soon"), node("b", "shel"), node("c", config={"x": "@nobody"})]
    codes = [code for _, code in found_in(nodes, [edge("c", "d")], timezone="Nowhere")]
    assert sorted(codes) == [
        "bad_duration", "dangling_edge", "unknown_reference", "unknown_timezone", "unknown_type",
    ]  # fmt: skip


def test_very_many_warnings_neither_refuse_a_definition_nor_hide_its_errors() -> None:
    inputs = {"type": "object", "properties": {}}
    nodes = [node(f"n{each}", config={"x": "@input.field"}) for each in range(250)]
    plan, problems = checked({"name": "x", "nodes": nodes, "inputs": inputs})
    assert plan is not None
    assert (len(problems.found), problems.unlisted) == (200, 50)
    plan, problems = checked({"name": "x", "nodes": [*nodes, node("last")], "edges": [
        edge("last", "last")], "inputs": inputs})  # fmt: skip
    assert plan is None
    assert "self_loop" in [each.code for each in problems.found]


def test_a_cycle_is_named() -> None:
    _, problems = checked(
        {"name": "x", "nodes": [node("a"), node("b"), node("c", config={"x": "@b"})],
         "edges": [edge("c", "b"), edge("a", "b")]}
    )  # fmt: skip
    assert "b → c → b" in problems.found[0].message


def test_what_follows_a_return_is_warned_of() -> None:
    nodes = [node("a", "return", config={"value": 1}), node("b"), node("c")]
    found = found_in(nodes, [edge("a", "b"), edge("b", "c")])
    assert found == [("nodes[1]", "unreachable"), ("nodes[2]", "unreachable")]
    nodes[0]["when"] = "input.x == 1"
    assert found_in(nodes, [edge("a", "b")]) == [("nodes[1]", "unreachable")]
    assert found_in(nodes, [edge("a", "b", on_skip="continue")]) == []


def test_a_step_that_is_misspelled_in_braces_is_warned_of() -> None:
    nodes = [
        node("check"),
        node("b", config={"command": "{{chekc.stdout}} {{tag}} {{input.chek}}"}),
    ]
    assert found_in(nodes) == [("nodes[1]", "unknown_step")]


def test_inputs_that_are_fields_and_no_schema_are_refused() -> None:
    inputs = {"suite": {"type": "string", "default": "all"}}
    assert found_in([node("a")], inputs=inputs) == [("inputs", "bad_schema")]
    assert found_in([node("a")], inputs={"properties": inputs}) == []


def test_fields_that_no_input_can_have_are_warned_of() -> None:
    inputs = {"type": "object", "properties": {"n": {"type": "integer"}}}
    nodes = [
        node("a", config={"command": "{{input.n}} {{input.m ? 0}} {{typo}}"}, when="input.k > 1"),
        node("b", "loop", config={"until": {"ref": "@input.j"}},
             body={"nodes": [node("c", for_each="@input.i")]}),
    ]  # fmt: skip
    found = found_in(nodes, [edge("a", "b", condition="input.h == 1")], inputs=inputs)
    assert found == [
        *[("nodes[0]", "unknown_input")] * 3,
        *[("nodes[1]", "unknown_input")] * 2,
        ("nodes[1].body.nodes[0]", "unknown_input"),
    ]
    for open_to_others in ({"type": "object"}, {**inputs, "additionalProperties": True}):
        assert found_in(nodes, [], inputs=open_to_others) == []


@pytest.mark.parametrize("document", [None, [], "text", 3])
def test_what_is_no_mapping_is_no_definition(document: Any) -> None:
    _, problems = checked(document)
    assert [each.code for each in problems.found] == ["not_a_definition"]


def test_very_many_nodes_are_refused_soon() -> None:
    nodes = [node(f"n{n}", config={"x": f"@n{n - 1} and @m{n}"}) for n in range(1, 10_000)]
    _, problems = checked({"name": "x", "nodes": nodes})
    assert "too_many_nodes" in {each.code for each in problems.found}


def test_bodies_are_not_nested_without_end() -> None:
    body: Any = [node("innermost")]
    for depth in range(30):
        body = [node(f"l{depth}", "loop", config={"until": "true"}, body=body)]
    _, problems = checked({"name": "x", "nodes": body})
    assert [each.code for each in problems.found] == ["too_deep"]


# -- hints -----------------------------------------------------------------------------------


def said_of(nodes: Any, edges: Any = (), **fields: Any) -> list[tuple[str, str, str]]:
    """Where, what and what to do."""
    _, problems = checked({"name": "x", "nodes": nodes, "edges": list(edges), **fields})
    return [(each.path, each.message, each.hint) for each in problems.found]


def test_a_type_that_is_like_none_is_answered_with_those_there_are() -> None:
    hint = said_of([node("a", "blubber")])[0][2]
    assert hint.startswith("There are approval, code, condition, http, ")


def test_what_stands_beside_config_and_in_it_is_told_apart() -> None:
    found = said_of([node("a", command="ls")])
    assert [each[0] for each in found] == ["nodes[0].command"]
    assert found[0][2].startswith("What configures its type stands in config: {command: …}.")
    found = said_of([node("a", "condition", config={"expression": "true", "when": "true"})])
    assert found == [
        ("nodes[0].config.when", "A condition has no 'when'.",
         "when stands beside config, not in it."),
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["depends_on", "needs", "dependsOn"])
def test_words_of_other_languages_for_edges_are_known(word: str) -> None:
    found = said_of([node("a"), node("b", **{word: ["a"]})])
    assert len(found) == 1
    assert "said by edges" in found[0][2]


def test_an_edge_from_and_to_is_one_problem() -> None:
    assert said_of([node("a"), node("b")], [{"from": "a", "to": "b"}]) == [
        ("edges[0]", "An edge has a source and a target, not from and to.",
         "Write {source: a, target: b}."),
    ]  # fmt: skip


def test_nodes_in_a_mapping_are_one_problem() -> None:
    found = said_of({"a": {"type": "shell"}})
    assert found == [
        ("nodes", "nodes is a list, not a mapping.", "Write - before each: - {id: a}.")
    ]


def test_a_longest_pause_that_looks_like_a_count_is_doubted() -> None:
    found = found_in([node("a", retry={"max": 3}), node("b", retry={"attempts": 2, "max": 60})])
    assert found == [("nodes[0].retry.max", "doubtful_retry")]


@pytest.mark.parametrize("items", [3, "a,b", {"a": 1}])
def test_items_that_can_be_no_list_are_refused(items: Any) -> None:
    found = found_in([node("a", for_each={"items": items})])
    assert found == [("nodes[0].for_each.items", "bad_field")]


def test_a_schema_that_is_none_says_where() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "strin"}}}
    assert found_in([node("a")], inputs=schema) == [("inputs.properties.a.type", "bad_schema")]


@pytest.mark.parametrize(
    ("inputs", "hint"),
    [
        ({"database": "string"}, "properties: {database: {type: string}}}."),
        (
            {"description": "Which one", "database": {"type": "string"}},
            "properties: {database: …}}",
        ),
        ({"a": {"type": "string"}, "b": {}}, "properties: {a: …}}."),
    ],
)
def test_fields_in_the_place_of_keywords_are_doubted(inputs: Any, hint: str) -> None:
    found = said_of([node("a")], inputs=inputs)
    assert [each[0] for each in found] == ["inputs"]
    assert hint in found[0][2]


@pytest.mark.parametrize(
    "inputs",
    [{}, {"type": "string"}, {"$ref": "#"}, {"x-own": 1, "type": "object"}, {"title": "T"}],
)
def test_a_schema_that_says_something_is_not_doubted(inputs: Any) -> None:
    assert found_in([node("a")], inputs=inputs) == []

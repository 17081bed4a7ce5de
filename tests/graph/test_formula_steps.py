"""What the steps of formulas wait for: gates, loops, bonds, groups, conditions."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.graph.conditions import Expression, holds, read_condition
from stepwell.graph.importing import import_text
from stepwell.graph.problems import Problems
from stepwell.graph.refs import Names
from stepwell.graph.scope import Scope, StepView
from tests.graph.support import imported, lost, plan_of, ways


def nodes_of(found: Any) -> dict[str, Any]:
    return {node["id"]: node for node in found.document["nodes"]}


def refused(text: str, siblings: dict[str, str] | None = None) -> set[str]:
    """Where an importer says that what is left means something else."""
    problems = Problems()
    found = import_text(text, (siblings or {}).get, problems)
    assert problems.found == []
    assert found is not None
    return {loss.path for loss in found.losses if loss.severity == "error"}


def loop(fields: str, body: str = 'id = "move"\ntitle = "Move"') -> str:
    return (
        'formula = "f"\n[vars.disks]\ndefault = "3"\n[vars.open]\n[[steps]]\nid = "all"\n'
        f'title = "All"\n[steps.loop]\n{fields}\n[[steps.loop.body]]\n{body}\n'
    )


# -- loops -------------------------------------------------------------------------------


def test_turns_of_a_loop_come_one_after_the_other_and_know_their_number() -> None:
    text = loop('range = "2..4"\nvar = "disk"', 'id = "m"\ntitle = "Move {disk} of {{disks}}, {x}"')
    plan, found = plan_of(text)
    node = nodes_of(found)["all"]
    assert node["for_each"] == {"items": [2, 3, 4], "max_items": 3, "as": "disk"}
    assert plan.nodes["all"].for_each.concurrency == 1
    (body,) = node["branches"][0]["nodes"]
    assert body["config"]["title"] == "Move {{disk}} of {{input.disks}}, {x}"
    assert found.losses == []


@pytest.mark.parametrize(
    ("fields", "items"),
    [
        ("count = 3", [1, 2, 3]),
        ('count = "{disks}"', [1, 2, 3]),
        ('range = "1..2^{disks}-1"', [1, 2, 3, 4, 5, 6, 7]),
        ('range = "{{disks}} - 1 .. (1+1) * 2"', [2, 3, 4]),
        ('range = "-1..6/3"', [-1, 0, 1, 2]),
        ('range = "5..5"', [5]),
    ],
)
def test_how_often_a_loop_repeats_is_computed(fields: str, items: list[int]) -> None:
    _, found = plan_of(loop(fields))
    assert nodes_of(found)["all"]["for_each"]["items"] == items
    # A number that depends on a variable is that of its default, and the report says so.
    assert lost(found) == ({f"steps[0].loop.{fields.split()[0]}"} if "{" in fields else set())


@pytest.mark.parametrize(
    "fields",
    [
        "count = 0", "count = -1", "count = 1.5", "count = true", 'count = "many"', "max = 3",
        'range = "1..2^60"', 'range = "1..9^9^9^9"', 'range = "1..{open}"', 'range = "1..{no}"',
        'range = "3..1"', 'range = "1..7/2"', 'range = "1..7/0"', 'range = "1..2^(0-1)"',
        'range = "1..2++3"', 'range = "1 10"', 'range = "..3"', 'range = "1..(2"',
        'range = "1..9999999999999999999999"', f'range = "1..{"(" * 3000}1"',
        'count = 2\nrange = "1..2"', 'until = "move.output.ok == true"', 'until = "x"\nmax = 3',
        'until = "file.exists(\'go.mod\')"\nmax = 3',
        'until = "move.status == \'failed\'"\nmax = 3',
        'until = "elsewhere.output.ok == true"\nmax = 3', "count = 100001",
        'until = "move.output.ok == true"\nmax = 9999999',
    ],
)  # fmt: skip
def test_a_loop_that_repeats_nobody_knows_how_often_is_refused(fields: str) -> None:
    (path,) = refused(loop(fields))
    assert path.startswith("steps[0].loop")


def test_loops_in_loops_have_a_limit() -> None:
    inner = (
        'id = "in"\n[steps.loop.body.loop]\ncount = 1000\n[[steps.loop.body.loop.body]]\nid = "x"'
    )
    assert refused(loop("count = 1000", inner)) == {"steps"}
    text = loop("count = 1000")
    assert nodes_of(imported(text))["all"]["for_each"]["max_items"] == 1000
    assert imported(text).document["policy"] == {"max_steps": 3000}


@pytest.mark.parametrize(
    ("until", "output", "ends"),
    [
        ("move.output.ok == true", {"ok": True}, True),
        ("output.ok == 'true'", {"ok": "true"}, True),
        ("step.output.ok == true", {"ok": False}, False),
        ("move.output.ok == true", None, False),
        ("move.output.a.b >= 2", {"a": {"b": 2}}, True),
        ("move.output.a.b >= 2", {"a": 2}, False),
        ("move.output.ok != done", {}, True),
        ("move.status == 'complete'", None, True),
    ],
)
def test_a_loop_ends_by_what_a_step_of_it_came_to(until: str, output: Any, ends: bool) -> None:
    _, found = plan_of(loop(f'until = "{until}"\nmax = 4'))
    config = nodes_of(found)["all"]["config"]
    assert config["max_iterations"] == 4
    problems = Problems()
    condition = read_condition(
        config["until"], Names(["move"], frozenset({"index", "previous"})), "", problems
    )
    assert isinstance(condition, Expression)
    for index, expected in ((0, ends), (3, True)):  # after the last turn it goes on in any case
        scope = Scope({"index": index, "previous": None})
        scope.steps["move"] = StepView("completed", {"summary": "", "output": output})
        assert holds(condition, scope) is expected


# -- gates, bonds, groups ----------------------------------------------------------------

PATROL = """
formula = "patrol"
[vars.hours]
default = "1h"
[[steps]]
id = "survey"
title = "Survey"
[steps.on_complete]
for_each = "output.carts"
bond = "Look at"
vars = { name = "{item.name}", note = "{{hours}} for {item}" }
[[steps]]
id = "write"
title = "Write"
needs = ["survey"]
[[steps]]
id = "sum"
title = "Sum up"
needs = ["survey"]
waits_for = "all-children"
[[steps]]
id = "later"
title = "Later"
[steps.gate]
type = "timer"
timeout = "1h"
[[steps]]
id = "merged"
title = "Merged"
[steps.gate]
type = "gh:pr"
id = "17"
timeout = "2h"
[[steps]]
id = "agreed"
title = "Agreed"
[steps.gate]
type = "committee"
id = "board"
"""


def test_only_who_waits_for_children_waits_for_what_was_bonded_on() -> None:
    plan, found = plan_of(PATROL)
    bond = nodes_of(found)["survey_bond"]
    assert bond["config"] == {
        "definition": "look-at",
        "input": {"name": "{{item.name}}", "note": "{{input.hours}} for {{item}}"},
    }
    # A task's report has what it came up with below its output.
    assert bond["for_each"] == {"items": "@step.survey.output.output.carts", "concurrency": 10}
    assert ways(plan, "write") == {"survey"}
    assert ways(plan, "sum") == {"survey", "survey_bond"}
    one_by_one = PATROL.replace('bond = "Look at"', 'bond = "Look at"\nsequential = true')
    assert "concurrency" not in nodes_of(imported(one_by_one))["survey_bond"]["for_each"]


def test_gates_wait_for_time_events_and_people() -> None:
    nodes = nodes_of(imported(PATROL))
    assert nodes["later_gate"]["type"] == "delay"
    assert nodes["later_gate"]["config"] == {"duration": "1h"}
    assert nodes["merged_gate"]["config"] == {
        "event": "gh:pr", "match": {"id": "17"}, "timeout": "2h", "on_timeout": "fail",
    }  # fmt: skip
    assert nodes["agreed_gate"]["config"] == {"prompt": "Go on with Agreed? (board)"}


@pytest.mark.parametrize(
    "step",
    [
        'waits_for = "any-children"\nneeds = ["a"]', 'waits_for = "all-children"',
        'waits_for = "children"\nneeds = ["a"]', '[steps.gate]\ntype = "timer"',
        '[steps.gate]\ncondition = "calm"', '[steps.on_complete]\nbond = "x"',
        '[steps.on_complete]\nfor_each = "output.x"',
        '[steps.on_complete]\nfor_each = "x"\nbond = "y"',
        '[steps.on_complete]\nfor_each = "output.x"\nbond = "y"\nparallel = 1\nsequential = 1',
        'condition = "env.CI"', 'condition = "{{a}} && {{b}}"', 'needs = ["nowhere"]',
        'needs = ["b"]', '[steps.decision]\nprompt = "Which?"', '[steps.retry]\nmax_attempts = 2',
        'expand = "nowhere"',
        'loop = { count = 1, body = [{ id = "x" }] }\nchildren = [{ id = "y" }]',
    ],
)  # fmt: skip
def test_what_would_mean_something_else_is_refused(step: str) -> None:
    text = (
        f'formula = "f"\n[[steps]]\nid = "a"\ntitle = "A"\n[[steps]]\nid = "b"\ntitle = "B"\n{step}'
    )
    assert len(refused(text)) == 1


def test_steps_need_others_across_groups() -> None:
    plan, found = plan_of("""
formula = "town"
[[steps]]
id = "ready"
title = "Ready"
[[steps]]
id = "guards"
title = "Guards"
type = "epic"
[[steps.children]]
id = "north"
title = "North"
needs = ["ready"]
[[steps.children]]
id = "south"
title = "South"
needs = ["north"]
[[steps]]
id = "rounds"
title = "Rounds"
[steps.loop]
count = 2
[[steps.loop.body]]
id = "walk"
title = "Walk"
needs = ["south"]
[[steps]]
id = "open"
title = "Open"
needs = ["rounds.iter2.walk"]
""")
    assert ways(plan, "guards") == {"ready"}
    assert ways(plan, "rounds") == {"guards"}
    assert ways(plan, "open") == {"rounds"}
    assert nodes_of(found)["guards"]["title"] == "Guards"
    assert {loss.severity for loss in found.losses} == {"warning"}
    assert lost(found) == {"steps[1]", "steps[2]", "steps[3]"}


# -- variables ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "given", "expected"),
    [
        ("{{v}}", {"v": "yes"}, True), ("{{v}}", {"v": "No"}, False), ("{{v}}", {"v": ""}, False),
        ("{{v}}", {"v": "false"}, False), ("{{v}}", {"v": False}, False), ("{{v}}", {}, False),
        ("{{v}}", {"v": 0}, False), ("!{{v}}", {}, True), ("!{{v}}", {"v": "on"}, False),
        ("{{v}} == prod", {"v": "prod"}, True), ("{{v}} == 'prod'", {"v": "dev"}, False),
        ("{{v}} == 3", {"v": 3}, True), ("{{v}} != true", {"v": True}, False),
        ("{{v}} != x", {}, True),
    ],
)  # fmt: skip
def test_conditions_compare_texts_as_they_do_there(
    condition: str, given: dict[str, Any], expected: bool
) -> None:
    text = f'formula = "f"\n[vars.v]\n[[steps]]\nid = "a"\ntitle = "A"\ncondition = "{condition}"'
    _, found = plan_of(text)
    problems = Problems()
    read = read_condition(nodes_of(found)["a"]["when"], Names([]), "", problems)
    assert read is not None
    assert holds(read, Scope({"input": given})) is expected


def test_only_declared_variables_are_references() -> None:
    text = """
formula = "f"
[vars.feature]
[vars.unused]
[vars.size]
type = "int"
default = "3"
enum = ["3", "5"]
[vars.mode]
default = ""
enum = ["fast", "slow"]
pattern = "^[a-z]+$"
[[steps]]
id = "a"
title = "{{feature}} and {{found}}"
notes = "{{#if x}} {{.y}} {{{z}}} a@b {single}"
assignee = "{{ mode }}"
"""
    _, found = plan_of(text)
    assert nodes_of(found)["a"]["config"] == {
        "title": "{{input.feature}} and {{{{found}}",
        "instructions": "{{{{#if x}} {{{{.y}} {{{{{z}}} a@@b {single}",
        "assignee": "{{input.mode}}",
    }
    inputs = found.document["inputs"]
    # What is used and has no default has to be given.
    assert inputs["required"] == ["feature"]
    assert inputs["properties"]["size"] == {"type": "integer", "default": 3, "enum": [3, 5]}
    assert inputs["properties"]["mode"]["enum"] == ["fast", "slow", ""]
    undeclared = 'formula = "f"\n[[steps]]\nid = "a"\ntitle = "{{x}}{{else}}"'
    assert imported(undeclared).document["inputs"]["required"] == ["x"]


def test_values_of_the_wrong_form_are_named_by_their_path() -> None:
    assert refused("""
formula = ["f"]
description = 3
extends = 1
vars = { a = { type = "int", default = "x", enum = 3 } }
prompts = "x"
[compose]
expand = "x"
aspects = [1]
branch = [1]
[[steps]]
id = "a"
title = ["A"]
needs = [1]
children = "x"
gate = "human"
loop = 3
on_complete = []
expand_vars = 1
""") == {
        "formula", "extends", "vars.a.default", "vars.a.enum", "compose.expand",
        "compose.aspects", "compose.branch", "steps[0].title", "steps[0].needs",
        "steps[0].children", "steps[0].gate", "steps[0].loop", "steps[0].on_complete",
        "steps[0].expand_vars",
    }  # fmt: skip
    assert refused('formula = "f"\nsteps = "x"') == {"steps"}
    assert refused('formula = "f"\nlegs = ["x"]') == {"legs"}
    assert refused('formula = "f"\n[[steps]]\ntitle = "A"') == {"steps[0].id"}
    twice = '[[steps]]\nid = "a"\ntitle = "A"\n'
    assert refused(f'formula = "f"\n{twice}{twice}') == {"steps[1].id"}

"""Formulas: steps, parents, expansions, aspects, convoys, gates and loops."""

from __future__ import annotations

from tests.graph.support import imported, lost, plan_of, ways

WORKFLOW = """
formula = "shiny"
description = "Build it well"
type = "workflow"
version = 1

[vars.feature]
description = "What to build"
required = true

[vars.polish]
default = true

[[steps]]
id = "design"
title = "Design {{feature}}"
description = "Think, and ask @someone."
acceptance = "It is written down"

[[steps]]
id = "polish"
title = "Polish"
needs = ["design"]
condition = "{{polish}}"

[[steps]]
id = "ship"
title = "Ship"
needs = ["polish"]
[steps.gate]
type = "human"
timeout = "1d"
"""


def test_a_formula_becomes_tasks_that_need_each_other() -> None:
    plan, found = plan_of(WORKFLOW)
    assert found.dialect == "formula"
    assert {node_id: node.type for node_id, node in plan.nodes.items()} == {
        "design": "task", "polish": "task", "ship_gate": "approval", "ship": "task",
    }  # fmt: skip
    assert ways(plan, "ship_gate") == {"polish"}
    assert ways(plan, "ship") == {"ship_gate"}
    (edge,) = plan.nodes["ship_gate"].incoming
    assert edge.on_skip == "continue"
    nodes = {node["id"]: node for node in found.document["nodes"]}
    assert nodes["design"]["config"] == {
        "title": "Design {{input.feature}}",
        "instructions": "Think, and ask @@someone.",
        "acceptance": "It is written down",
    }
    assert nodes["polish"]["when"] == {"ref": "@input.polish"}
    assert nodes["ship_gate"]["config"]["timeout"] == "1d"
    assert found.document["inputs"]["required"] == ["feature"]
    assert found.losses == []


def test_a_formula_extends_its_parents() -> None:
    child = """
formula = "shinier"
extends = ["shiny"]
[vars.colour]
default = "red"
[[steps]]
id = "design"
title = "Design again"
[[steps]]
id = "paint"
title = "Paint it {{colour}}"
needs = ["ship"]
"""
    plan, found = plan_of(child, {"shiny.formula.toml": WORKFLOW})
    assert found.document["name"] == "shinier"
    assert list(plan.nodes) == ["design", "polish", "ship_gate", "ship", "paint"]
    assert found.document["nodes"][0]["config"]["title"] == "Design again"
    assert {"feature", "polish", "colour"} == set(found.document["inputs"]["properties"])
    assert lost(imported(child)) == {"extends", "steps"}


def test_a_step_is_expanded_and_woven() -> None:
    expansion = """
formula = "twice"
type = "expansion"
[vars.count]
default = "two"
[[template]]
id = "{target}.draft"
title = "Draft {target.title} ({count})"
[[template]]
id = "{target}.final"
title = "Finish {target.title}"
needs = ["{target}.draft"]
"""
    aspect = """
formula = "audit"
type = "aspect"
[[advice]]
target = "sh*"
[advice.before]
title = "Audit {step.id}"
[[advice.after]]
id = "cheer"
title = "Cheer"
"""
    composed = WORKFLOW.replace(
        "[vars.feature]",
        '[compose]\naspects = ["audit"]\n[[compose.expand]]\ntarget = "design"\nwith = "twice"\n'
        'vars = { count = "3" }\n[vars.feature]',
    )
    siblings = {"twice.formula.toml": expansion, "audit.formula.toml": aspect}
    plan, found = plan_of(composed, siblings)
    assert list(plan.order) == [
        "design_draft", "design_final", "polish", "ship-before", "ship_gate", "ship", "cheer",
    ]  # fmt: skip
    assert ways(plan, "polish") == {"design_final"}
    assert ways(plan, "cheer") == {"ship"}
    titles = {node["id"]: node["config"].get("title") for node in found.document["nodes"]}
    assert titles["design_draft"] == "Draft Design {{input.feature}} (3)"
    assert titles["ship-before"] == "Audit ship"


def test_a_convoy_has_legs_and_a_synthesis() -> None:
    convoy = """
formula = "review"
type = "convoy"
[[legs]]
id = "speed"
title = "Speed"
focus = "Is it fast?"
[[legs]]
id = "safety"
title = "Safety"
[synthesis]
title = "Put it together"
depends_on = ["speed", "safety"]
"""
    plan, _ = plan_of(convoy)
    assert ways(plan, "synthesis") == {"speed", "safety"}
    assert ways(plan, "speed") == set()


def test_loops_gates_and_bonds_of_a_formula() -> None:
    formula = """
formula = "patrol"
[[steps]]
id = "survey"
title = "Survey"
[steps.on_complete]
for_each = "output.polecats"
bond = "arm"
parallel = true
vars = { name = "{item.name}" }
[[steps]]
id = "rounds"
title = "Rounds"
needs = ["survey"]
[steps.loop]
count = 3
[[steps.loop.body]]
id = "round"
title = "Round"
[[steps]]
id = "moves"
title = "Moves"
[steps.loop]
range = "2..4"
var = "disk"
[[steps.loop.body]]
id = "move"
title = "Move {{disk}}"
[[steps]]
id = "later"
title = "Later"
[steps.gate]
type = "timer"
duration = "1h"
[[steps]]
id = "merged"
title = "Merged"
[steps.gate]
type = "gh:pr"
id = "17"
"""
    plan, found = plan_of(formula)
    assert plan.nodes["survey_bond"].type == "run"
    assert ways(plan, "rounds") == {"survey_bond"}
    nodes = {node["id"]: node for node in found.document["nodes"]}
    assert nodes["survey_bond"]["for_each"]["items"] == "@step.survey.output.polecats"
    assert nodes["survey_bond"]["config"] == {
        "definition": "arm",
        "input": {"name": "{{item.name}}"},
    }
    assert nodes["rounds"]["for_each"]["items"] == [1, 2, 3]
    assert nodes["moves"]["for_each"] == {"items": [2, 3, 4], "max_items": 3, "as": "disk"}
    assert nodes["later_gate"] == {
        "id": "later_gate",
        "type": "delay",
        "config": {"duration": "1h"},
    }
    assert nodes["merged_gate"]["config"] == {"event": "gh:pr", "match": {"id": "17"}}

"""Formulas: steps, parents, expansions, aspects, convoys, gates and loops."""

from __future__ import annotations

from stepwell.graph.importing import import_text
from stepwell.graph.problems import Problems
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
    assert found.document["inputs"]["properties"]["polish"] == {"default": True, "type": "boolean"}
    # Nobody who was asked has agreed by not answering.
    assert nodes["ship_gate"]["config"] == {
        "prompt": "Go on with Ship?", "timeout": "1d", "on_timeout": "fail",
    }  # fmt: skip
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


def test_parents_give_rules_too_and_the_first_decides_about_variables() -> None:
    one = """
formula = "one"
[vars.v]
default = "1"
[compose]
[[compose.branch]]
from = "a"
steps = ["b", "c"]
join = "d"
[[steps]]
id = "a"
title = "A {{v}}"
[[steps]]
id = "b"
title = "B"
[[steps]]
id = "c"
title = "C"
[[steps]]
id = "d"
title = "D"
"""
    two = 'formula = "two"\n[vars.v]\ndefault = "2"\n[[steps]]\nid = "e"\ntitle = "E"\n'
    child = """
formula = "child"
extends = ["one", "two"]
[compose]
[[compose.gate]]
before = "e"
condition = "d.status == 'complete'"
"""
    siblings = {"one.formula.toml": one, "two.formula.toml": two}
    plan, found = plan_of(child, siblings)
    assert ways(plan, "d") == {"b", "c"}
    assert ways(plan, "b") == ways(plan, "c") == {"a"}
    assert ways(plan, "e") == {"d"}
    assert found.document["inputs"]["properties"]["v"] == {"default": "1"}
    assert found.losses == []
    clash = {**siblings, "two.formula.toml": two.replace('"e"', '"a"')}
    assert errors(child, clash) == {"extends", "compose.gate[0]"}
    itself = {**siblings, "two.formula.toml": 'formula = "two"\nextends = ["child"]'}
    assert errors(child, itself) == {"two: extends", "compose.gate[0]"}


def test_steps_ask_for_expansions_and_patterns_find_them_everywhere() -> None:
    expansion = """
formula = "twice"
type = "expansion"
[vars.how]
required = true
[[template]]
id = "{target}.one"
title = "{target.title}, {how}"
[[template]]
id = "{target}.two"
title = "{{how}} again"
needs = ["{target}.one"]
"""
    text = """
formula = "f"
[vars.who]
[[steps]]
id = "a"
title = "A"
[[steps]]
id = "b"
title = "B of {{who}}"
expand = "twice"
expand_vars = { how = "slowly" }
depends_on = ["a"]
condition = "{{who}}"
[[steps]]
id = "group"
title = "Group"
[[steps.children]]
id = "c-1"
title = "C"
needs = ["b"]
[compose]
[[compose.map]]
select = "c-*"
with = "twice"
vars = { how = "fast" }
"""
    siblings = {"twice.formula.toml": expansion}
    plan, found = plan_of(text, siblings)
    assert ways(plan, "b_one") == {"a"}
    assert ways(plan, "group") == {"b_two"}
    nodes = {node["id"]: node for node in found.document["nodes"]}
    assert nodes["b_one"]["config"]["title"] == "B of {{input.who}}, slowly"
    assert nodes["b_one"]["when"] == nodes["b_two"]["when"]
    inner = nodes["group"]["branches"][0]
    assert [node["config"]["title"] for node in inner["nodes"]] == ["C, fast", "fast again"]
    assert errors(text.replace('vars = { how = "fast" }', ""), siblings) == {"compose.map[0]"}
    assert errors(text, {"twice.formula.toml": WORKFLOW}) == {"steps[1]", "compose.map[0]"}


def test_an_aspect_goes_around_steps_but_not_around_what_it_put_there() -> None:
    aspect = """
formula = "care"
type = "aspect"
[[advice]]
target = "*"
[advice.before]
id = "check-{step.id}"
title = "Check {step.title}"
[[advice]]
target = "b"
[[advice.around.before]]
id = "look"
title = "Look"
[[advice.around.after]]
id = "tidy"
title = "Tidy"
"""
    text = """
formula = "f"
[compose]
aspects = ["care"]
[[steps]]
id = "a"
title = "A"
[[steps]]
id = "b"
title = "B"
needs = ["a"]
[[steps]]
id = "c"
title = "C"
needs = ["b"]
"""
    plan, found = plan_of(text, {"care.formula.toml": aspect})
    assert list(plan.order) == ["check-a", "a", "check-b", "look", "b", "tidy", "check-c", "c"]
    assert ways(plan, "check-b") == {"a"}
    assert ways(plan, "b") == {"look"}
    assert ways(plan, "check-c") == {"tidy"}
    assert found.losses == []
    assert errors(aspect) == {"steps"}


def test_a_convoy_tells_its_legs_what_all_of_them_are_told() -> None:
    _, found = plan_of('''
formula = "review"
type = "convoy"
[inputs.topic]
required_unless = ["file"]
[inputs.file]
type = "number"
[prompts]
base = """
{{.formula_name}} of {{.topic}}: {{.leg.focus}} {{.leg.description}} To {{.output_path}}; {{.x}}"""
[output]
directory = "out/{{.review_id}}"
leg_pattern = "{{.leg.id}}.md"
synthesis = "all.md"
[[legs]]
id = "speed"
title = "Speed"
focus = "Is it fast?"
description = "Measure @it."
[synthesis]
title = "All"
description = "Write {{.output.directory}}/{{.output.synthesis}}"
''')
    speed, synthesis = found.document["nodes"]
    assert speed["config"]["instructions"] == (
        'review of {{input.topic ? ""}}: Is it fast? Measure @@it. To out/{{run.id}}/speed.md; '
        "{{{{.x}}"
    )
    assert synthesis["config"]["instructions"] == "Write out/{{run.id}}/all.md"
    assert found.document["inputs"]["allOf"] == [
        {"anyOf": [{"required": ["file"]}, {"required": ["topic"]}]}
    ]
    assert lost(found) == {"prompts"}


def test_an_expansion_alone_is_expanded_for_itself() -> None:
    text = """
formula = "five"
type = "expansion"
[[template]]
id = "{target}-draft"
title = "{target.title}"
"""
    _, found = plan_of(text)
    assert found.document["nodes"][0]["config"] == {"title": "five"}
    assert found.document["nodes"][0]["id"] == "main-draft"


def test_formulas_that_multiply_are_refused_before_they_are_made() -> None:
    many = "".join(f'[[template]]\nid = "{{target}}-{n}"\ntitle = "T"\n' for n in range(500))
    siblings = {"many.formula.toml": f'formula = "many"\ntype = "expansion"\n{many}'}
    steps = "".join(f'[[steps]]\nid = "s{n}"\ntitle = "S"\n' for n in range(500))
    rule = '[[compose.map]]\nselect = "*"\nwith = "many"\n'
    assert errors(f'formula = "f"\n{rule}{steps}', siblings) == {""}
    siblings["itself.formula.toml"] = (
        'formula = "itself"\ntype = "expansion"\n'
        '[[template]]\nid = "{target}x"\ntitle = "X"\nexpand = "itself"'
    )
    once = 'formula = "f"\n[[steps]]\nid = "a"\ntitle = "A"\nexpand = "itself"'
    assert len(errors(once, siblings)) == 1
    long = "x " * 50_000
    told = "{{.leg.description}}" * 1000
    legs = f'[[legs]]\nid = "a"\ndescription = "{long}"\n[prompts]\nbase = "{told}"'
    assert errors(f'formula = "f"\n{legs}') == {""}


def errors(text: str, siblings: dict[str, str] | None = None) -> set[str]:
    """Where an importer says that what is left means something else."""
    problems = Problems()
    found = import_text(text, (siblings or {}).get, problems)
    assert problems.found == []
    assert found is not None
    return {loss.path for loss in found.losses if loss.severity == "error"}

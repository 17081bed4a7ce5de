"""Other languages: what becomes of each of their constructs, and what is reported as lost."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.graph.importing import import_text
from stepwell.graph.problems import Problems
from tests.graph.support import imported, lost, plan_of, ways

# -- step lists ------------------------------------------------------------------------------

STEPS = {
    "name": "Release",
    "slug": "release",
    "version": "1.2.0",
    "variables": {"tag": {"type": "string", "required": True}, "hosts": ["a", "b"]},
    "constraints": {"allowSelfModification": True},
    "steps": [
        {"type": "bash", "command": "make {{variables.tag}}", "outputVariable": "build",
         "timeout_ms": 60000},
        {"type": "conditional", "condition": "outputs.build.exit_code == 0",
         "then": [{"type": "bash", "command": "deploy {{outputs.build.stdout}}"},
                  {"type": "approval", "prompt": "Go on?", "timeout": "1h"}],
         "else": [{"type": "agent", "goal": "Find out why"}]},
        {"type": "parallel", "steps": [
            {"type": "bash", "command": "one"}, {"type": "tool", "tool": "search",
                                                 "arguments": {"q": "{{variables.tag}}"}}]},
        {"type": "loop", "over": "hosts", "steps": [
            {"type": "bash", "command": "ping {{item}} {{index}}"},
            {"type": "tool", "tool": "bash", "arguments": {"command": "true"}}]},
        {"type": "subworkflow", "workflow": "Tidy Up", "variables": {"tag": "{{variables.tag}}"}},
        {"type": "agent_message", "content": "Done", "await_response": True,
         "await_timeout_ms": 5000, "mood": "glad"},
    ],
}  # fmt: skip


def test_a_step_list_keeps_the_order_of_its_author() -> None:
    plan, found = plan_of(STEPS)
    assert found.dialect == "step list"
    assert ways(plan, "step_1") == {"step_0"}
    assert ways(plan, "step_1_then_0") == {"step_1", "step_0"}
    assert ways(plan, "step_1_else_0") == {"step_1"}
    assert ways(plan, "step_2") == {"step_1_then_1", "step_1_else_0"}
    assert ways(plan, "step_3") == {"step_2"}
    assert plan.nodes["step_3"].for_each is not None
    assert list(plan.nodes["step_3"].branches["body"].nodes) == ["step_3_steps_0", "step_3_steps_1"]
    types = {node_id: node.type for node_id, node in plan.nodes.items()}
    assert types == {
        "step_0": "shell", "step_1": "condition", "step_1_then_0": "shell",
        "step_1_then_1": "approval", "step_1_else_0": "agent", "step_2": "parallel",
        "step_3": "parallel", "step_4": "run", "step_5": "agent_message",
    }  # fmt: skip


def test_a_step_list_says_what_was_lost() -> None:
    found = imported(STEPS)
    assert lost(found) == {"version", "step_5.mood"}
    document = found.document
    assert document["policy"] == {"max_steps": 50, "proposals": True}
    assert document["inputs"]["required"] == ["tag"]
    assert document["inputs"]["properties"]["hosts"] == {"default": ["a", "b"]}
    nodes = {node["id"]: node for node in document["nodes"]}
    assert nodes["step_0"]["config"] == {"command": "make {{input.tag}}"}
    assert nodes["step_0"]["timeout"] == "60s"
    assert nodes["step_1"]["config"] == {"expression": "steps.step_0.output.exit_code == 0"}
    assert nodes["step_1_then_0"]["config"]["command"] == "deploy {{step.step_0.output.stdout}}"
    assert nodes["step_4"]["config"] == {
        "definition": "tidy-up", "input": {"tag": "{{input.tag}}"},
    }  # fmt: skip
    assert document["output"] == {"build": "@step_0"}


@pytest.mark.parametrize(
    ("condition", "expression"),
    [
        (True, "true"),
        ("ready", {"ref": "@input.ready"}),
        ("{{variables.ready}}", {"ref": "@input.ready"}),
        ("variables.n > 3", "input.n > 3"),
        ({"variable": "n", "equals": 3}, {"ref": "@input.n", "eq": 3}),
        ({"variable": "n", "operator": "less_than", "value": 3}, {"ref": "@input.n", "lt": 3}),
        ({"strange": 1}, "false"),
    ],
)
def test_conditions_of_a_step_list(condition: Any, expression: Any) -> None:
    steps = [{"type": "conditional", "condition": condition, "then": []}]
    found = imported({"name": "x", "steps": steps})
    assert found.document["nodes"][0]["config"] == {"expression": expression}
    assert bool(found.losses) == (condition == {"strange": 1})


@pytest.mark.parametrize(
    ("step", "path"),
    [
        ({"type": "bash"}, "step_0"),
        ({"type": "bash", "command": "x", "skip_if": "{{variables.x}}"}, "step_0.skip_if"),
        ({"type": "bash", "command": "x", "depends_on": ["y"]}, "step_0.depends_on"),
        ({"type": "tool", "tool": "bash", "args": {"command": "x", "stdin": "y"}},
         "step_0.arguments.stdin"),
        ({"type": "conditional", "condition": {"strange": 1}}, "step_0.condition"),
        ({"type": "conditional", "condition": "true", "then": {"type": "bash"}}, "step_0_then"),
        ({"type": "loop", "steps": [{"type": "bash", "command": "x"}]}, "step_0"),
    ],
)  # fmt: skip
def test_what_would_mean_something_else_without_a_field_is_refused(step: Any, path: str) -> None:
    losses = imported({"name": "x", "steps": [step]}).losses
    assert [(loss.path, loss.severity) for loss in losses] == [(path, "error")]


def test_variables_may_call_their_types_as_programmers_do() -> None:
    variables = {"n": {"type": "int"}, "who": {"type": ["string", "null"]}}
    steps = [{"type": "bash", "command": "x"}]
    found = imported({"name": "x", "variables": variables, "steps": steps}).document["inputs"]
    assert found["properties"] == {"n": {"type": "integer"}, "who": {"type": ["string", "null"]}}


# -- reference steps -------------------------------------------------------------------------

MESH = {
    "id": "sign-up",
    "title": "Sign up",
    "steps": [
        {"name": "validate", "action": {"code": "export default function(input) { return 1 }"},
         "input": {"email": "@input.email"}},
        {"name": "leave", "when": {"ref": "@validate.ok", "eq": False}, "action": {"return": True},
         "input": {"error": "@validate.error"}},
        {"name": "Create User", "when": {"ref": "@validate.ok"},
         "action": {"toolName": "CREATE_USER", "transformCode": "export default (x) => x.id"},
         "input": {"email": "@input.email"}, "config": {"maxAttempts": 3, "backoffMs": 500,
                                                        "timeoutMs": 30000}},
        {"name": "greet", "forEach": {"ref": "@validate.friends", "concurrency": 4},
         "action": {"toolName": "GREET"}, "input": {"friend": "@item", "n": "@index"}},
    ],
}  # fmt: skip


def test_reference_steps_wait_for_what_they_refer_to() -> None:
    plan, found = plan_of(MESH)
    assert found.dialect == "reference steps"
    assert {node_id: node.type for node_id, node in plan.nodes.items()} == {
        "validate": "code", "leave": "return", "Create_User_call": "tool", "Create_User": "code",
        "greet": "tool",
    }  # fmt: skip
    assert ways(plan, "validate") == set()
    assert ways(plan, "leave") == {"validate"}
    assert ways(plan, "Create_User") == {"Create_User_call", "validate"}
    assert ways(plan, "greet") == {"validate"}
    assert found.document["refs"] == "lenient"
    nodes = {node["id"]: node for node in found.document["nodes"]}
    assert nodes["Create_User_call"]["retry"] == {"attempts": 3, "base": "500ms"}
    assert nodes["Create_User_call"]["timeout"] == "30s"
    assert nodes["greet"]["for_each"] == {"items": "@validate.friends", "concurrency": 4}
    assert nodes["Create_User"]["when"] == nodes["Create_User_call"]["when"]
    assert lost(found) == {"steps[2].name"}


# -- recipes ---------------------------------------------------------------------------------


def test_a_recipe_is_a_chain() -> None:
    recipe = {
        "name": "morning", "schedule": "0 7 * * *",
        "steps": [
            {"type": "run_command", "command": "check {{pr.number}}"},
            {"type": "dispatch_task", "instruction": "Look into {{pr.title}}\nthoroughly"},
            {"type": "sleep", "seconds": 20},
            {"type": "human_gate", "prompt": "Go on?", "emoji": "👍"},
        ],
    }  # fmt: skip
    plan, found = plan_of(recipe)
    assert found.dialect == "recipe"
    assert plan.order == ("run_command_0", "dispatch_task_1", "sleep_2", "human_gate_3")
    assert [node.type for node in plan.nodes.values()] == ["shell", "task", "delay", "approval"]
    assert found.document["nodes"][1]["config"] == {
        "title": "Look into {{pr.title}}", "instructions": "Look into {{pr.title}}\nthoroughly",
    }  # fmt: skip
    assert found.document["triggers"] == [
        {"id": "schedule", "type": "schedule", "cron": "0 7 * * *"}
    ]
    assert lost(found) == {"steps[3].emoji"}


# -- detection -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "just text", "[]", "{}", '{"steps": []}', "a = ["])
def test_what_is_nothing_known_is_refused(text: str) -> None:
    problems = Problems()
    assert import_text(text, lambda name: None, problems) is None
    assert problems.found[0].code in ("not_a_definition", "unreadable")


@pytest.mark.parametrize(
    ("known", "dialect"),
    [({"type": "bash", "command": "make"}, "step list"),
     ({"type": "sleep", "seconds": 1}, "recipe")],
)  # fmt: skip
@pytest.mark.parametrize("strange", [{"type": "frobnicate"}, {"type": None}, "text", None])
def test_one_step_that_nobody_knows_is_named_and_refused(
    known: Any, dialect: str, strange: Any
) -> None:
    found = imported({"name": "x", "steps": [known, strange]})
    assert found.dialect == dialect
    assert [(loss.path[-2:].strip("[]_"), loss.severity) for loss in found.losses] == [
        ("1", "error")
    ]
    assert len(found.document["nodes"]) == 1


def test_what_is_nothing_known_is_told_what_it_is_instead() -> None:
    problems = Problems()
    import_text('{"steps": [{"type": "frobnicate"}]}', lambda name: None, problems)
    assert "frobnicate" in problems.found[0].message


def test_a_definition_of_our_own_is_left_as_it_is() -> None:
    found = imported("name: x\nnodes:\n  - {id: a, type: shell}\n")
    assert (found.dialect, found.losses) == ("stepwell", [])
    assert found.lines["nodes[0].id"] == 3

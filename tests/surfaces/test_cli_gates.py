"""Runs that stop for people: `stepwell resume` at a gate, and `stepwell steps` for tasks."""

from __future__ import annotations

import pytest

from tests.surfaces.graphs import document, log, refused, statuses, step, written
from tests.surfaces.support import Cli

GATE = """
    name: release
    nodes:
      - {{id: build, type: shell, config: {{command: "echo build >> log"}}}}
      - {{id: gate, type: approval, config: {{prompt: "Ship it?", on_deny: {on_deny}}}}}
      - {{id: ship, type: shell, config: {{command: "echo ship >> log"}}}}
    edges:
      - {{source: build, target: gate}}
      - {{source: gate, target: ship}}
    output: {{approved: "@gate.approved", by: "@gate.by", note: "@gate.note"}}
"""
TASKS = """
    name: chores
    nodes:
      - id: build
        type: task
        config: {title: Build it, instructions: With care., acceptance: It runs.}
      - {id: weigh, type: transform, config: {value: "@build.output.size"}}
      - {id: ship, type: task, config: {title: "Ship all {{weigh}} kg", assignee: ada}}
    edges: [{source: weigh, target: ship}]
    output: {size: "@weigh", said: "@ship.summary"}
"""


def at_gate(cli: Cli, on_deny: str = "cancel") -> dict[str, str]:
    """The options that name a gate at which a new run waits."""
    found = document(cli, "run", written(cli, GATE.format(on_deny=on_deny)))
    assert found["status"] == "waiting"
    assert log(cli) == ["build"]
    return {"run": found["run_id"], "token": found["gate"]["token"], "gate": found["gate"]["id"]}


def test_a_run_at_a_gate_prints_it_with_its_token(cli: Cli) -> None:
    done = cli.process("run", written(cli, GATE.format(on_deny="cancel")))
    assert done.exit_code == 0
    found = done.document
    assert (found["status"], found["output"], found["error"]) == ("waiting", None, None)
    gate = found["gate"]
    assert (gate["step"], gate["prompt"]) == ("gate", "Ship it?")
    assert gate["token"]
    assert found["gates"] == [gate]
    assert statuses(found) == {"build": "completed", "gate": "waiting", "ship": "pending"}
    assert f"stepwell resume {found['run_id']} --decision approve" in done.stderr
    assert gate["token"] not in done.stderr
    assert cli.ok("runs", "explain", found["run_id"])["code"] == "gate"


def test_an_approved_run_goes_on_and_repeats_nothing(cli: Cli) -> None:
    at = at_gate(cli)
    words = ("resume", at["run"], "--decision", "approve", "--by", "ada", "--note", "fine")
    found = document(cli, *words)
    assert found["status"] == "completed"
    assert found["output"] == {"approved": True, "by": ["ada"], "note": "fine"}
    assert set(statuses(found).values()) == {"completed"}
    assert log(cli) == ["build", "ship"]


@pytest.mark.parametrize(
    ("on_deny", "exit_code", "status", "gate", "ship"),
    [
        ("cancel", 40, "cancelled", "failed", "skipped"),
        ("fail", 40, "failed", "failed", "skipped"),
        ("continue", 0, "completed", "completed", "completed"),
    ],
)
def test_a_denial_does_what_the_gate_says(
    lite: Cli, on_deny: str, exit_code: int, status: str, gate: str, ship: str
) -> None:
    at = at_gate(lite, on_deny)
    words = ("resume", at["run"], "--decision", "deny", "--by", "ada")
    found = document(lite, *words, exit_code=exit_code)
    assert found["status"] == status
    assert statuses(found) == {"build": "completed", "gate": gate, "ship": ship}
    assert log(lite) == (["build", "ship"] if ship == "completed" else ["build"])
    if status == "completed":
        assert found["output"] == {"approved": False, "by": ["ada"], "note": ""}
    else:
        assert "denied, by ada" in found["error"]["message"]


def test_a_wrong_token_is_refused_and_the_right_one_works_once(cli: Cli) -> None:
    at = at_gate(cli)
    decide = ("resume", at["run"], "--decision", "approve")
    assert "token_invalid" in refused(cli.process(*decide, "--token", "x" + at["token"][1:]))
    assert cli.status(at["run"]) == "waiting"
    assert document(cli, *decide, "--token", at["token"])["status"] == "completed"
    for more in ((), ("--token", at["token"]), ("--gate", at["gate"])):
        refused(cli.process(*decide, *more))
    assert log(cli) == ["build", "ship"]


def test_nobody_decides_twice(lite: Cli) -> None:
    text = """
        name: two
        nodes: [{id: gate, type: approval, config: {prompt: "Both?", required: 2}}]
    """
    waiting = document(lite, "run", written(lite, text))
    decide = ("resume", waiting["run_id"], "--decision", "approve", "--by")
    assert document(lite, *decide, "ada")["status"] == "waiting"
    assert "ada" in refused(lite.process(*decide, "ada"))
    found = document(lite, *decide, "bob")
    assert found["output"]["by"] == ["ada", "bob"]


def test_a_gate_says_who_may_decide_and_how_far_it_is(lite: Cli) -> None:
    text = """
        name: two
        nodes:
          - id: gate
            type: approval
            config: {prompt: "Both?", required: 2, approvers: [ann, bob, eve]}
    """
    asked = lite.process("run", written(lite, text))
    run_id = asked.document["run_id"]
    advice = f"stepwell resume {run_id} --decision approve --by NAME"
    assert advice in asked.stderr
    assert "ann, bob, eve may decide. 2 people have to approve." in asked.stderr
    decide = ("resume", run_id, "--decision", "approve", "--by")
    half = lite.process(*decide, "ann", "--note", "fine")
    for said in (half.stderr, lite("runs", "explain", run_id).stdout):
        assert "1 of 2, approved by ann." in said
        assert advice in said
    [gate] = lite.ok("runs", "explain", run_id)["details"]["gates"]
    for found in (gate, half.document["gate"]):
        assert [(each["by"], each["note"]) for each in found["decisions"]] == [("ann", "fine")]
    assert document(lite, *decide, "eve")["status"] == "completed"


def test_several_gates_are_decided_by_name(lite: Cli) -> None:
    text = """
        name: both
        nodes:
          - {id: one, type: approval, config: {prompt: "One?"}}
          - {id: two, type: approval, config: {prompt: "Two?"}}
    """
    waiting = document(lite, "run", written(lite, text))
    gates = {gate["step"]: gate["id"] for gate in waiting["gates"]}
    decide = ("resume", waiting["run_id"], "--decision", "approve")
    assert gates["two"] in refused(lite.process(*decide))
    half = document(lite, *decide, "--gate", gates["two"])
    assert half["status"] == "waiting"
    assert [gate["step"] for gate in half["gates"]] == ["one"]
    assert document(lite, *decide)["status"] == "completed"


def test_a_gate_inside_a_loop_is_named_by_where_it_stands(lite: Cli) -> None:
    text = """
        name: rounds
        nodes:
          - {id: again, type: loop, config: {until: "index == 1"},
             body: [{id: ask, type: approval, config: {prompt: "Round {{index}}?"}}]}
    """
    waiting = document(lite, "run", written(lite, text))
    assert waiting["gate"]["step"] == "again[0].body.ask"
    assert statuses(waiting) == {"again[0].body.ask": "waiting", "again": "running"}
    waiting = document(lite, "resume", waiting["run_id"], "--decision", "approve")
    assert (waiting["gate"]["step"], waiting["gate"]["prompt"]) == ("again[1].body.ask", "Round 1?")
    found = document(lite, "resume", waiting["run_id"], "--decision", "approve")
    assert found["status"] == "completed"
    assert set(statuses(found)) == {"again[0].body.ask", "again[1].body.ask", "again"}


def test_what_cannot_be_resumed_is_refused(lite: Cli) -> None:
    at = at_gate(lite)
    assert lite.process("resume", at["run"], "--token", "x").exit_code == 20
    assert lite.process("resume").exit_code == 20
    refused(lite.process("resume", at["run"], "--decision", "perhaps"))
    refused(lite.process("resume", "nosuchrun", "--decision", "approve"))
    refused(lite.process("resume", at["run"], "--decision", "approve", "--gate", "nosuchgate"))
    again = document(lite, "resume", at["run"])
    assert (again["status"], again["gate"]["id"]) == ("waiting", at["gate"])
    assert log(lite) == ["build"]


def test_a_decision_about_a_run_that_has_ended_is_told_so(lite: Cli) -> None:
    text = "name: x\nnodes: [{id: a, type: transform, config: {value: 1}}]\n"
    run_id = document(lite, "run", written(lite, text))["run_id"]
    refused = lite.process("resume", run_id, "--decision", "approve")
    assert refused.exit_code == 10
    assert "It has ended: completed." in refused.stderr


def test_resuming_an_ended_run_only_shows_it(lite: Cli) -> None:
    at = at_gate(lite)
    ended = document(lite, "resume", at["run"], "--decision", "approve")
    assert document(lite, "resume", at["run"]) == ended
    assert log(lite) == ["build", "ship"]


# -- tasks ---------------------------------------------------------------------------------


def test_tasks_are_shown_and_advanced_one_after_the_other(cli: Cli) -> None:
    found = document(cli, "run", written(cli, TASKS))
    run_id = found["run_id"]
    assert found["status"] == "waiting"
    [task] = found["tasks"]
    assert task == {
        "step": "build",
        "title": "Build it",
        "instructions": "With care.",
        "acceptance": "It runs.",
    }
    assert cli.ok("steps", "current", run_id) == {
        "run_id": run_id, "status": "waiting", "items": [task | {"assignee": None}],
    }  # fmt: skip
    said = cli.process("steps", "current", run_id).stdout
    assert "build: Build it" in said
    assert "acceptance: It runs." in said
    words = ("steps", "advance", run_id, "build", "--summary", "done", "--output", '{"size": 12}')
    assert cli.process(*words).stdout.startswith("Advanced. ")
    found = document(cli, "resume", run_id)
    assert step(found, "build")["output"] == {"summary": "done", "output": {"size": 12}}
    assert [each["title"] for each in found["tasks"]] == ["Ship all 12 kg"]
    assert found["tasks"][0]["assignee"] == "ada"
    assert cli.ok("steps", "advance", run_id, "ship", "--summary", "gone")["advanced"] is True
    found = document(cli, "resume", run_id)
    assert (found["status"], found["output"]) == ("completed", {"size": 12, "said": "gone"})
    assert cli.ok("steps", "current", run_id)["items"] == []


def test_a_task_that_could_not_be_done_fails(lite: Cli) -> None:
    run_id = document(lite, "run", written(lite, TASKS))["run_id"]
    words = ("steps", "advance", run_id, "build", "--summary", "no wood left", "--failed")
    assert lite.process(*words).exit_code == 0
    found = document(lite, "resume", run_id, exit_code=40)
    assert (found["status"], found["error"]["type"]) == ("failed", "task_failed")
    assert "no wood left" in found["error"]["message"]
    assert statuses(found) == {"build": "failed", "weigh": "skipped", "ship": "skipped"}


def test_only_tasks_that_are_waited_for_are_advanced(lite: Cli) -> None:
    run_id = document(lite, "run", written(lite, TASKS))["run_id"]
    for words in ((run_id, "ship"), (run_id, "weigh"), ("nosuchrun", "build")):
        refused(lite.process("steps", "advance", *words))
    refused(lite.process("steps", "advance", run_id, "build", "--output", "{oh"))
    assert lite.process("steps", "advance", run_id).exit_code == 20
    assert lite.process("steps", "advance", run_id, "build").exit_code == 0
    refused(lite.process("steps", "advance", run_id, "build"))


def test_tasks_count_as_done_if_asked_for_but_gates_do_not(lite: Cli) -> None:
    text = """
        name: quick
        nodes:
          - {id: one, type: task, config: {title: One}}
          - {id: gate, type: approval, config: {prompt: "Go on?"}}
          - {id: two, type: task, config: {title: Two}}
        edges:
          - {source: one, target: gate}
          - {source: gate, target: two}
    """
    found = document(lite, "run", written(lite, text), "--auto-advance")
    assert statuses(found) == {"one": "completed", "gate": "waiting", "two": "pending"}
    found = document(lite, "resume", found["run_id"], "--decision", "approve")
    assert found["status"] == "completed"
    assert found["output"] == {"summary": "", "output": None}

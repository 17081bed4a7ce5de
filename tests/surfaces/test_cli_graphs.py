"""`stepwell run`: its document, its progress, its exit codes."""

from __future__ import annotations

import json
import re

import pytest

from tests.surfaces.graphs import STEP_KEYS, document, log, refused, statuses, step, written
from tests.surfaces.support import Cli

ORDERS = """
    name: orders
    inputs:
      type: object
      properties:
        orders: {type: array, items: {type: integer}, default: [1, 2]}
        note: {type: string}
    nodes:
      - {id: fetch, type: shell, for_each: {items: "@input.orders"},
         config: {command: "echo {{item}}; echo fetched >> log"}}
      - {id: many, type: condition, config: {expression: "size(steps.fetch.output) > 2"}}
      - {id: bulk, type: transform, config: {value: bulk}}
      - {id: single, type: transform, config: {value: "{{input.note ? null}}"}}
    edges:
      - {source: many, target: bulk, condition: "true"}
      - {source: many, target: single, condition: "false"}
    output: {fetched: "@fetch", note: "@single"}
"""
FAILING = """
    name: failing
    nodes:
      - {id: first, type: shell, config: {command: "echo first >> log"}}
      - {id: breaks, type: shell, config: {command: "echo oh no >&2; exit 7"}}
      - {id: after, type: transform, config: {value: 1}}
    edges:
      - {source: first, target: breaks}
      - {source: breaks, target: after}
"""


def test_a_run_prints_one_document_and_tells_its_progress_apart(cli: Cli) -> None:
    done = cli.process("run", written(cli, ORDERS), "--input", '{"note": "soon"}')
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("\n") == 1
    found = done.document
    assert list(found) == ["run_id", "status", "output", "error", "steps"]
    assert (found["status"], found["error"]) == ("completed", None)
    assert found["output"]["note"] == "soon"
    assert [each["stdout"] for each in found["output"]["fetched"]] == ["1\n", "2\n"]
    assert all(list(each) == STEP_KEYS for each in found["steps"])
    assert statuses(found) == {
        "fetch[0]": "completed", "fetch[1]": "completed", "fetch": "completed",
        "many": "completed", "single": "completed", "bulk": "skipped",
    }  # fmt: skip
    bulk = step(found, "bulk")
    assert (bulk["reason"], bulk["attempts"], bulk["output"]) == ("branch_not_taken", 0, None)
    fetch, first = step(found, "fetch"), step(found, "fetch[0]")
    assert first["attempts"] == 1
    assert first["output"]["stdout"] == "1\n"
    assert fetch["started_at"] == first["started_at"] <= first["ended_at"] <= fetch["ended_at"]
    lines = done.stderr.splitlines()
    assert lines[0] == f"Run {found['run_id']} of orders started."
    assert [line.split()[:2] for line in lines[1:3]] == [["✓", "fetch[0]"], ["✓", "fetch[1]"]]
    assert lines[-1].startswith(f"Run {found['run_id']} completed: ")
    shown = cli.ok("runs", "show", found["run_id"])["run"]
    assert (shown["definition"], shown["status"]) == ("orders", "completed")


def test_the_input_can_come_from_standard_input(lite: Cli) -> None:
    found = document(lite, "run", written(lite, ORDERS), "--input", "-", stdin='{"orders": []}')
    assert found["output"] == {"fetched": [], "note": None}
    assert log(lite) == []


def test_the_definition_can_come_from_standard_input(lite: Cli) -> None:
    text = '{"name": "x", "nodes": [{"id": "a", "type": "transform", "config": {"value": 5}}]}'
    assert document(lite, "run", "-", stdin=text)["output"] == 5


def test_a_failed_run_exits_40_and_lists_what_it_never_came_to(lite: Cli) -> None:
    done = lite.process("run", written(lite, FAILING))
    assert done.exit_code == 40
    found = done.document
    assert (found["status"], found["output"]) == ("failed", None)
    assert found["error"]["type"] == "command_failed"
    assert found["error"]["step"] == "breaks"
    assert "oh no" in found["error"]["message"]
    assert statuses(found) == {"first": "completed", "breaks": "failed", "after": "skipped"}
    shown = lite("runs", "show", found["run_id"]).stdout
    assert re.search(r"^after +node +skipped +– .*upstream_failed", shown, re.MULTILINE)
    assert step(found, "after")["reason"] == "upstream_failed"
    assert step(found, "breaks")["error"] == found["error"]
    assert "✗ breaks" in done.stderr


def test_nodes_that_a_run_never_reaches_are_listed_with_a_reason(lite: Cli) -> None:
    text = """
        name: late
        policy: {max_steps: 2}
        nodes:
          - {id: a, type: transform, config: {value: 1}}
          - {id: b, type: transform, config: {value: "@a"}}
          - {id: c, type: transform, config: {value: "@b"}}
          - {id: d, type: loop, config: {until: "true"},
             body: [{id: e, type: transform, config: {value: "@c"}}]}
    """
    found = document(lite, "run", written(lite, text), exit_code=40)
    assert found["error"]["type"] == "step_budget_exceeded"
    assert [(each["id"], each["status"], each["reason"]) for each in found["steps"]] == [
        ("a", "completed", None), ("b", "completed", None), ("c", "skipped", "run_failed"),
        ("d", "skipped", "run_failed"), ("e", "skipped", "run_failed"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.yaml",), "none.yaml cannot be read: No such file"),
        ((".",), "cannot be read: Is a directory"),
        (("jobs.py",), "executed by `stepwell worker MODULE`, and started by"),
        (("flow.yaml", "--input", "{oh"), "The input is not JSON"),
        (("flow.yaml", "--input", '{"orders": "all"}'), "orders"),
        (("flow.yaml", "--input", '{"order": [1]}'), "did you mean 'orders'?"),
        (("flow.yaml", "--input", "7"), "7 is not of type"),
        (("flow.yaml", "--with", "no_such_module"), "no module 'no_such_module'"),
        (("flow.yaml", "--store", "mysql://x"), "mysql"),
    ],
)
def test_what_cannot_be_run_exits_10(lite: Cli, words: tuple[str, ...], said: str) -> None:
    written(lite, ORDERS)
    assert said in refused(lite.process("run", *words))
    assert log(lite) == []


def test_an_invalid_definition_exits_10_with_all_its_problems(lite: Cli) -> None:
    text = """
        name: Bad Name
        nodes:
          - {id: a, type: shel, config: {}}
          - {id: b, type: shell, config: {comand: ls}}
        edges: [{source: a, target: c}]
    """
    said = refused(lite.process("run", written(lite, text)))
    for part in (
        "line 2: name:", "'bad-name'", "line 4: nodes[0].type:", "Did you mean 'shell'?",
        "line 5: nodes[1].config", "Did you mean 'command'?", "line 6: edges[0].target:",
    ):  # fmt: skip
        assert part in said


@pytest.mark.parametrize(
    "words", [("run", "flow.yaml", "--fast"), ("run",), ("run", "flow.yaml", "more")]
)
def test_a_wrong_command_line_exits_20(lite: Cli, words: tuple[str, ...]) -> None:
    written(lite, ORDERS)
    assert "Usage: " in refused(lite.process(*words), 20)
    done = lite.process(*words, "--json")
    assert (done.exit_code, done.document["error"]["code"]) == (20, "usage_error")


def test_errors_are_documents_too_if_asked_for(lite: Cli) -> None:
    words = ("run", written(lite, ORDERS), "--input", '{"orders": "all"}', "--json")
    error = document(lite, *words, exit_code=10)["error"]
    assert error["code"] == "input_invalid"
    assert error["details"]["problems"][0]["path"] == "orders"


def test_a_run_says_why_it_has_not_begun(lite: Cli) -> None:
    text = """
        name: alone
        policy: {max_concurrent_runs: 1}
        nodes: [{id: ask, type: approval, config: {prompt: "Go on?"}}]
    """
    first = document(lite, "run", written(lite, text))
    assert first["status"] == "waiting"
    with lite.started("run", "flow.yaml") as second:
        try:
            assert second.stderr is not None
            assert " of alone started." in second.stderr.readline()
            assert "Queued: 1 of 1 runs of 'alone' are active" in second.stderr.readline()
            assert lite("runs", "cancel", first["run_id"]).exit_code == 0
            assert "ask (waiting)" in second.stderr.readline()
            stdout, _ = second.communicate(timeout=60)
        finally:
            second.kill()
    assert json.loads(stdout)["status"] == "waiting"


def test_the_same_file_can_be_run_again_and_after_it_was_changed(lite: Cli) -> None:
    one = document(lite, "run", written(lite, ORDERS))
    two = document(lite, "run", written(lite, ORDERS.replace("size(", "1 + size(")))
    assert one["run_id"] != two["run_id"]
    assert (step(one, "bulk")["status"], step(two, "bulk")["status"]) == ("skipped", "completed")


def test_a_wait_that_nobody_ends_is_completed_or_timed_out_as_its_node_says(lite: Cli) -> None:
    waits = """
        name: waits
        nodes:
          - {id: patient, type: wait_event, config: {event: x, timeout: 0.01}}
          - {id: strict, type: wait_event, config: {event: x, timeout: 0.01, on_timeout: fail}}
          - {id: after, type: transform, config: {value: 1}}
        edges:
          - {source: patient, target: strict}
          - {source: strict, target: after, on_failure: continue}
    """
    found = document(lite, "run", written(lite, waits))
    assert statuses(found) == {
        "patient": "completed", "strict": "timed_out", "after": "completed"
    }  # fmt: skip
    assert step(found, "patient")["output"] is None
    assert step(found, "patient")["error"] is None
    assert step(found, "strict")["error"]["type"] == "wait_timed_out"


def test_attempts_that_fail_are_part_of_the_progress(cli: Cli) -> None:
    flow = """
        name: flow
        nodes:
          - id: build
            type: shell
            config: {command: "test -e tried || { touch tried; exit 3; }"}
            retry: {attempts: 2, backoff: fixed, base: 0.5s}
    """
    done = cli.process("run", written(cli, flow))
    assert done.document["steps"][0]["attempts"] == 2
    assert "build (attempt 1): command_failed" in done.stderr


def test_a_definition_that_nobody_has_is_warned_of_before_its_node_is_reached(cli: Cli) -> None:
    flow = """
        name: flow
        nodes:
          - {id: again, type: run, when: "false", config: {definition: flow}}
          - {id: other, type: run, when: "false", config: {definition: tidy-upp}}
    """
    done = cli.process("run", written(cli, flow))
    assert done.exit_code == 0
    assert [line for line in done.stderr.splitlines() if line.startswith("warning:")] == [
        "warning: A node runs 'tidy-upp', which is neither in the store nor beside flow.yaml. "
        "[unknown_definition]"
    ]


def test_nodes_in_bodies_that_were_never_entered_say_why_not(lite: Cli) -> None:
    flow = """
        name: flow
        nodes:
          - {id: never, type: loop, config: {while: "false"},
             body: [{id: inside, type: transform, config: {value: 1}}]}
          - {id: outer, type: loop, config: {until: "true"},
             body: [{id: left_out, type: loop, when: "false", config: {until: "true"},
                     body: [{id: deeper, type: transform, config: {value: 1}}]}]}
          - {id: no_list, type: loop, for_each: {items: "@input"}, config: {until: "true"},
             body: [{id: each, type: transform, config: {value: 1}}]}
          - {id: after, type: transform, config: {value: 1}}
        edges: [{source: no_list, target: after, on_failure: continue}]
    """
    found = document(lite, "run", written(lite, flow), "--input", "{}")
    assert {key: step(found, key)["reason"] for key in ("inside", "deeper", "each")} == {
        "inside": "branch_not_taken", "deeper": "branch_not_taken", "each": "upstream_failed",
    }  # fmt: skip


def test_nodes_that_run_definitions_show_their_output_and_attempts(lite: Cli) -> None:
    written(lite, "name: bad\nnodes: [{id: a, type: shell, config: {command: exit 1}}]", "bad.yaml")
    flow = """
        name: flow
        nodes:
          - {id: aside, type: run, config: {definition: bad, wait: false}}
          - {id: again, type: run, config: {definition: bad}, retry: {attempts: 2, base: 0s}}
          - {id: id, type: transform, config: {value: "@aside.run_id"}}
        edges: [{source: again, target: id, on_failure: continue}]
    """
    found = document(lite, "run", written(lite, flow))
    assert step(found, "aside")["output"] == {"run_id": step(found, "id")["output"]}
    again = step(found, "again")
    assert (again["status"], again["attempts"], again["output"]) == ("failed", 2, None)

"""`stepwell validate` and `stepwell import`: what they print, and how they exit."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest
import yaml

from tests.surfaces.graphs import document, refused, written
from tests.surfaces.support import Cli

GOOD = "name: good\nnodes: [{id: a, type: shell, config: {command: ls}}]\n"
BAD = """\
name: bad
timezone: Europe/Berlinn
nodes:
  - {id: a, type: shell, config: {command: ls, shell: zsh}}
  - id: b
    type: http
    config: {url: "@aa.stdout"}
  - {id: b, type: transform, config: {value: 1}, when: "steps.a.output.exit_code =="}
  - {id: c, type: transform, config: {value: "@d"}}
  - {id: d, type: transform, config: {value: "@c"}}
edges:
  - {source: a, target: z}
"""
STEPS = {
    "name": "Release", "version": "1.0.0", "mood": "glad",
    "steps": [
        {"type": "bash", "command": "echo it's {{variables.tag}}\nand more", "color": "red"},
        {"type": "conditional", "condition": "variables.tag", "then": []},
    ],
}  # fmt: skip


def test_a_valid_definition_exits_0(lite: Cli) -> None:
    written(lite, GOOD)
    assert document(lite, "validate", "flow.yaml", "--json") == {"ok": True, "problems": []}
    done = lite.process("validate", "flow.yaml")
    assert (done.exit_code, done.stdout) == (0, "flow.yaml: ok, 0 errors, 0 warnings.\n")
    assert lite.process("validate", "-", stdin=GOOD).exit_code == 0


def test_all_problems_come_at_once_each_with_its_place_and_a_hint(lite: Cli) -> None:
    written(lite, BAD)
    found = document(lite, "validate", "flow.yaml", "--json", exit_code=10)
    assert list(found) == ["ok", "problems"]
    assert found["ok"] is False
    for problem in found["problems"]:
        assert set(problem) == {"path", "code", "message", "hint", "severity", "line"}
    places = {(each["line"], each["path"], each["code"]) for each in found["problems"]}
    assert places >= {
        (2, "timezone", "unknown_timezone"),
        (4, "nodes[0].config.shell", "unknown_field"),
        (7, "nodes[1].config.url", "unknown_reference"),
        (8, "nodes[2].id", "duplicate_id"),
        (8, "nodes[2].when", "bad_condition"),
        (12, "edges[0].target", "dangling_edge"),
    }
    lines = [each["line"] for each in found["problems"]]
    assert lines == sorted(lines)
    assert [each["code"] for each in found["problems"]].count("cycle") == 1
    hints = {each["path"]: each["hint"] for each in found["problems"]}
    assert hints["timezone"] == "Did you mean 'Europe/Berlin'?"
    assert hints["nodes[1].config.url"] == "Did you mean 'a'?"
    said = lite.process("validate", "flow.yaml")
    assert said.exit_code == 10
    assert "error: line 2: timezone: There is no time zone" in said.stdout
    assert "    Did you mean 'Europe/Berlin'?" in said.stdout
    assert said.stdout.splitlines()[-1].startswith("flow.yaml: not ok, ")


def test_warnings_are_no_errors(lite: Cli) -> None:
    text = """\
        name: doubtful
        nodes:
          - {id: notes, type: transform, config: {value: "ask @note about it"}}
    """
    found = document(lite, "validate", written(lite, text), "--json")
    assert found["ok"] is True
    assert [each["severity"] for each in found["problems"]] == ["warning"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", "line"),
        ("", "not_a_definition"),
        ("- 1\n", "not_a_definition"),
        ("name: x\nname: y\nnodes: []", "stands twice"),
        ('formula = "x"\nformula = "y"\n', "unreadable"),
    ],
)
def test_what_is_no_definition_exits_10(lite: Cli, text: str, said: str) -> None:
    (lite.folder / "flow.yaml").write_text(text, "utf-8")
    done = lite.process("validate", "flow.yaml")
    assert done.exit_code == 10
    assert said in done.stdout
    assert document(lite, "validate", "flow.yaml", "--json", exit_code=10)["ok"] is False


def test_a_file_that_cannot_be_read_exits_10(lite: Cli) -> None:
    for command in ("validate", "import"):
        assert "none.yaml cannot be read" in refused(lite.process(command, "none.yaml"))
        error = document(lite, command, "none.yaml", "--json", exit_code=10)["error"]
        assert "none.yaml" in error["message"]
        assert lite.process(command, "--deep", "none.yaml").exit_code == 20


def test_an_import_prints_yaml_and_says_what_was_lost_apart(lite: Cli) -> None:
    written(lite, json.dumps(STEPS), "flow.json")
    done = lite.process("import", "flow.json")
    assert done.exit_code == 0
    made = yaml.safe_load(done.stdout)
    assert made["name"] == "release"
    assert made["nodes"][0]["config"]["command"] == "echo it's {{input.tag}}\nand more"
    lost = [line for line in done.stderr.splitlines() if line.startswith("lost: ")]
    assert [line.split(": ")[1] for line in lost] == [
        "mood", "version", "step_0.color",
    ]  # fmt: skip
    assert "flow.json: step list, 3 losses." in done.stderr
    (lite.folder / "made.yaml").write_text(done.stdout, "utf-8")
    assert lite.process("validate", "made.yaml").exit_code == 0


def test_an_import_can_be_written_to_a_file_or_as_json(lite: Cli) -> None:
    written(lite, json.dumps(STEPS), "flow.json")
    done = lite.process("import", "flow.json", "-o", "made.yaml")
    assert (done.exit_code, done.stdout) == (0, "")
    made = yaml.safe_load((lite.folder / "made.yaml").read_text("utf-8"))
    found = document(lite, "import", "flow.json", "--json")
    assert list(found) == ["ok", "dialect", "document", "losses", "problems"]
    assert (found["ok"], found["dialect"], found["document"]) == (True, "step list", made)
    assert found["losses"][0] == {
        "path": "mood", "message": "'mood' has no counterpart and was left out.",
        "severity": "warning",
    }  # fmt: skip


def test_an_import_of_what_would_mean_something_else_exits_10(lite: Cli) -> None:
    strange = {"type": "conditional", "condition": {"strange": True}, "then": []}
    written(lite, json.dumps(STEPS | {"steps": [strange]}), "flow.json")
    done = lite.process("import", "flow.json")
    assert done.exit_code == 10
    assert "lost: step_0.condition: The condition {'strange': True} is not known." in done.stderr


def test_what_nobody_knows_cannot_be_imported(lite: Cli) -> None:
    assert "not_a_definition" in refused(lite.process("import", written(lite, "{}")))
    found = document(lite, "import", "flow.yaml", "--json", exit_code=10)
    assert found["problems"][0]["code"] == "not_a_definition"


def test_a_definition_of_our_own_stays_what_it_is(lite: Cli) -> None:
    done = lite.process("import", written(lite, GOOD))
    assert yaml.safe_load(done.stdout) == yaml.safe_load(GOOD)
    assert "own already" in done.stderr


def test_nodes_of_the_language_are_listed_with_the_others(lite: Cli) -> None:
    listed = {each["type"]: each for each in lite.ok("nodes", "list")["items"]}
    assert {"condition", "loop", "parallel", "return", "shell", "approval"} <= listed.keys()
    for name, found in listed.items():
        schema = lite.ok("nodes", "schema", name)
        assert schema == found["config"]
        jsonschema_rs.validator_for(schema)
    assert lite.ok("nodes", "schema", "control_loop") == listed["loop"]["config"]
    assert listed["loop"]["group"] == "control"


def test_a_formula_without_what_it_builds_on_is_refused(lite: Cli) -> None:
    formula = """
        formula = "shiny"
        extends = ["nowhere"]

        [[steps]]
        id = "a"
        title = "A"
        needs = ["nobody"]
    """
    path = written(lite, formula, "shiny.formula.toml")
    found = document(lite, "validate", path, "--json", exit_code=10)
    assert [(each["path"], each["severity"]) for each in found["problems"]] == [
        ("extends", "error"), ("steps", "error")
    ]  # fmt: skip
    assert "no nowhere.formula.toml" in refused(lite.process("run", path))
    done = lite.process("import", path)
    assert done.exit_code == 10
    assert "'a' needs 'nobody', which is not there." in done.stderr


def test_a_condition_that_would_be_lost_on_the_way_is_refused(lite: Cli) -> None:
    steps = {
        "name": "guarded",
        "steps": [
            {"name": "build", "type": "bash", "command": "echo built >> log"},
            {"name": "ship", "type": "bash", "command": "echo shipped >> log", "if": "never"},
        ],
    }
    path = written(lite, json.dumps(steps), "guarded.json")
    said = refused(lite.process("run", path))
    assert "'if' says when this happens" in said
    assert not (lite.folder / "log").exists()
    assert lite.process("import", path).exit_code == 10


def test_problems_that_are_too_many_to_be_listed_are_counted(lite: Cli) -> None:
    nodes = [{"id": f"n{each}", "type": "shel"} for each in range(1001)]
    text = json.dumps({"name": "many", "nodes": nodes})
    found = document(lite, "validate", "-", "--json", stdin=text, exit_code=10)["problems"]
    assert {each["code"] for each in found[:-1]} == {"unknown_type"}
    assert found[-1]["message"] == f"There are {1001 - len(found[:-1])} more problems."


def test_only_what_runs_a_file_tells_how_to_start_what_is_none(lite: Cli) -> None:
    for command in ("import", "validate"):
        assert "runs start" not in lite(command, "nofile").stderr
    assert "stepwell runs start nofile" in lite("run", "nofile").stderr

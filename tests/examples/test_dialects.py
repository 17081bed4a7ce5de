"""The examples in other languages run as they are, and as what they are imported to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.examples.support import COMMANDS, DEFINITIONS, Typist, outcomes

DIALECTS = [name for name in DEFINITIONS if name.startswith("dialects/")]


def run_both(typist: Typist, name: str, *more: str) -> list[Any]:
    """The documents of a run of the file, and of one of what it is imported to."""
    words = COMMANDS[name]
    imported = typist("import", words[1])
    assert imported.exit_code == 0, imported.stderr
    ours = typist.folder / "imported.yaml"
    ours.write_text(imported.stdout, "utf-8")
    return [
        typist.document(*words, *more),
        typist.document("run", str(ours), *words[2:], *more),
    ]


@pytest.mark.parametrize("name", DIALECTS)
def test_an_imported_example_loses_nothing_and_is_valid(typist: Typist, name: str) -> None:
    ours = typist.folder / "imported.yaml"
    done = typist("import", f"examples/{name}", "-o", str(ours))
    assert (done.exit_code, done.stdout) == (0, "")
    assert "nothing was lost" in done.stderr
    assert yaml.safe_load(ours.read_text("utf-8"))["nodes"]
    assert typist.document("validate", str(ours), "--json") == {"ok": True, "problems": []}


def test_a_step_list_deploys_and_asks(typist: Typist) -> None:
    for waiting in run_both(typist, "dialects/deploy.steps.json"):
        assert waiting["status"] == "waiting"
        assert waiting["gate"]["prompt"] == "Keep v2?"
        assert outcomes(waiting) == {
            "build": "completed", "step_1": "completed", "announce": "completed",
            "complain": "skipped: branch_not_taken", "checks.branch_0.lint": "completed",
            "checks.branch_1.scan": "completed", "checks": "completed",
            "rollout[0].body.copy": "completed", "rollout[1].body.copy": "completed",
            "rollout": "completed", "keep": "waiting",
        }  # fmt: skip
        document = typist.document("resume", waiting["run_id"], "--decision", "approve")
        assert document["output"]["build"]["stdout"] == "build of v2"
        copied = [step["output"]["stdout"] for step in document["steps"] if ".copy" in step["id"]]
        assert copied == ["v2 to alpha", "v2 to beta"]


def test_reference_steps_greet_whoever_signs_up(typist: Typist) -> None:
    for document in run_both(typist, "dialects/sign-up.refs.json"):
        assert document["output"] == {"user": "ada", "greetings": ["1: hi, ada", "2: hola, ada"]}
        assert outcomes(document) == {
            "validate": "completed", "refuse": "skipped: branch_not_taken",
            "greetings[0]": "completed", "greetings[1]": "completed", "greetings": "completed",
            "done": "completed",
        }  # fmt: skip
    given = '{"email": "nobody", "languages": []}'
    refused = typist.document("run", "examples/dialects/sign-up.refs.json", "--input", given)
    assert refused["output"] == {"error": "not an address", "email": "nobody"}
    assert outcomes(refused)["refuse"] == "completed"


def test_a_recipe_waits_at_its_gate(typist: Typist) -> None:
    for waiting in run_both(typist, "dialects/morning.recipe.yaml"):
        assert waiting["gate"]["prompt"] == "Start the day of ops?"
        document = typist.document("resume", waiting["run_id"], "--decision", "approve")
        assert document["output"]["stdout"] == "started\n"
        assert set(outcomes(document).values()) == {"completed"}


def test_a_formula_waits_for_each_of_its_tasks(typist: Typist) -> None:
    document = typist.run("dialects/feature.formula.toml")
    for task in ("design", "build", "ship"):
        assert document["status"] == "waiting"
        assert [each["step"] for each in document["tasks"]] == [task]
        words = ("steps", "advance", document["run_id"], task, "--summary", f"{task} is done")
        assert typist(*words).exit_code == 0
        document = typist.document("resume", document["run_id"])
    assert document["status"] == "completed"
    assert document["output"] == {"summary": "ship is done", "output": None}


@pytest.mark.parametrize("polish", [True, False])
def test_a_formula_extends_another(typist: Typist, tmp_path: Path, polish: bool) -> None:
    given = f'{{"feature": "search", "polish": {str(polish).lower()}}}'
    for document in run_both(typist, "dialects/shiny.formula.toml", "--input", given):
        assert document["status"] == "completed"
        assert outcomes(document) == {
            "design": "completed", "build": "completed", "ship": "completed",
            "polish": "completed" if polish else "skipped: branch_not_taken",
        }  # fmt: skip

"""Every definition in `examples/` is valid, and does what its comment says."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stepwell.cli import main
from tests.examples.support import COMMANDS, DEFINITIONS, EXAMPLES, README, Typist, outcomes
from tests.nodes.web import Asked, reply, serving


def test_every_example_is_in_the_readme() -> None:
    assert sorted(COMMANDS) == DEFINITIONS
    for name in DEFINITIONS:
        assert f"]({name})" in README


@pytest.mark.parametrize("name", DEFINITIONS)
def test_an_example_is_valid_without_warnings(name: str) -> None:
    done = CliRunner().invoke(main, ["validate", str(EXAMPLES / name), "--json"])
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"ok": True, "problems": []})


# -- failures ------------------------------------------------------------------------------


def test_what_needs_a_failed_step_is_skipped_and_the_rest_finishes(typist: Typist) -> None:
    document = typist.run("diamond-skip.yaml", exit_code=40)
    assert (document["status"], document["output"]) == ("failed", None)
    assert document["error"]["type"] == "command_failed"
    assert document["error"]["step"] == "right"
    assert outcomes(document) == {
        "begin": "completed", "left": "completed", "right": "failed", "apart": "completed",
        "both": "skipped: upstream_failed",
    }  # fmt: skip
    works = typist.document(*COMMANDS["diamond-skip.yaml"], "--input", '{"works": true}')
    assert works["output"] == {"left": "order 7 from the left", "right": 0}
    assert set(outcomes(works).values()) == {"completed"}


def test_a_run_goes_on_without_a_failed_step(typist: Typist) -> None:
    document = typist.run("diamond-continue.yaml")
    assert document["status"] == "completed"
    assert document["output"] == {"left": "order 7 from the left", "right": None}
    assert outcomes(document) == {
        "begin": "completed", "left": "completed", "right": "failed", "both": "completed",
    }  # fmt: skip


def test_a_failed_step_ends_its_run_at_once(typist: Typist) -> None:
    document = typist.run("diamond-fail-run.yaml", exit_code=40)
    assert document["status"] == "failed"
    assert "the right side is broken" in document["error"]["message"]
    assert outcomes(document) == {
        "begin": "completed", "left": "skipped: given_up", "right": "failed",
        "both": "skipped: run_failed",
    }  # fmt: skip


def test_a_command_is_tried_until_it_works(typist: Typist) -> None:
    document = typist.run("retry-backoff.yaml")
    assert document["output"] == "worked at attempt 3"
    assert {step["id"]: step["attempts"] for step in document["steps"]} == {
        "folder": 1, "flaky": 3, "clean": 1,
    }  # fmt: skip
    assert not list(typist.folder.glob("tmp.*"))


# -- structure -----------------------------------------------------------------------------


def test_items_that_fail_leave_null_in_their_place(typist: Typist) -> None:
    document = typist.run("fan-out.yaml")
    assert document["output"] == {"measured": 3, "failed": 1, "characters": 18}
    assert outcomes(document) == {
        "measure[0]": "completed", "measure[1]": "failed", "measure[2]": "completed",
        "measure[3]": "completed", "measure": "completed", "total": "completed",
    }  # fmt: skip
    steps = {step["id"]: step for step in document["steps"]}
    assert steps["measure"]["error"]["type"] == "items_failed"
    assert [each and each["stdout"] for each in steps["measure"]["output"]] == [
        "7\n", None, "8\n", "3\n",
    ]  # fmt: skip


def test_a_loop_ends_when_something_is_done(typist: Typist) -> None:
    document = typist.run("poll-until.yaml")
    assert document["output"] == {"percent": 120, "rounds": 3}
    assert outcomes(document) == {
        "poll[0].body.look": "completed", "poll[1].body.look": "completed",
        "poll[2].body.look": "completed", "poll": "completed",
    }  # fmt: skip
    words = (*COMMANDS["poll-until.yaml"], "--input", '{"per_round": 0}')
    never = typist.document(*words, exit_code=40)
    assert (never["status"], never["error"]["type"]) == ("failed", "loop_exhausted")


def test_a_return_ends_its_run(typist: Typist) -> None:
    document = typist.run("early-return.yaml")
    assert document["output"] == {"ordered": False, "left": 12}
    assert outcomes(document) == {
        "stock": "completed", "check": "completed", "sorry": "completed",
        "pack": "skipped: run_returned",
    }  # fmt: skip
    few = typist.document(*COMMANDS["early-return.yaml"], "--input", '{"count": 2}')
    assert few["output"] == {"ordered": True, "item": "lamp", "count": 2}
    assert outcomes(few)["sorry"] == "skipped: branch_not_taken"


def test_a_definition_runs_itself(typist: Typist) -> None:
    document = typist.run("countdown.yaml")
    assert document["output"] == [5, 4, 3, 2, 1, "liftoff"]
    runs = typist.document("runs", "list", "--json")["items"]
    assert [run["definition"] for run in runs] == ["countdown"] * 6
    assert {run["status"] for run in runs} == {"completed"}


def test_a_run_has_another_one_do_a_part_of_it(typist: Typist) -> None:
    document = typist.run("parent.yaml")
    assert document["output"] == {"files": 3}
    assert outcomes(document) == {"folder": "completed", "work": "completed", "tidy": "completed"}
    runs = typist.document("runs", "list", "--json")["items"]
    assert {run["definition"] for run in runs} == {"parent", "tidy-up"}
    assert not list(typist.folder.glob("tmp.*"))


def test_a_definition_says_what_starts_it(typist: Typist) -> None:
    assert typist.run("release-notes.yaml")["output"] == "Notes for next"
    typist.document("definitions", "publish", "examples/release-notes.yaml", "--json")
    found = typist.document("triggers", "list", "--json")["items"]
    assert {each["name"]: each["description"] for each in found} == {
        "daily": "At 09:00, Monday to Friday, in Europe/Berlin.",
        "released": 'For each event \'release\' that has {"env":"prod"}.',
        "asked": "For each POST to its path.",
    }
    fired = typist.document(
        "triggers",
        "fire",
        "release-notes/released",
        '{"version": "1.4.0", "env": "prod"}',
        "--json",
    )
    run = typist.document("runs", "show", fired["run_id"], "--json")
    assert (run["run"]["status"], run["run"]["input"]) == ("pending", {"version": "1.4.0"})


def test_the_other_run_also_works_by_itself(typist: Typist) -> None:
    folder = typist.folder / "it's mine; rm"
    folder.mkdir()
    (folder / "draft").touch()
    given = json.dumps({"folder": str(folder)})
    document = typist.document("run", "examples/tidy-up.yaml", "--input", given)
    assert document["output"] == {"removed": 1}
    assert not folder.exists()


# -- things outside ------------------------------------------------------------------------


async def test_entries_of_one_service_go_to_another(tmp_path: Path) -> None:
    people = [
        {"full_name": "Ada", "address": {"city": "London"}, "age": 36},
        {"full_name": "Bob", "address": {}},
    ]
    typist = Typist(tmp_path, STEPWELL_HTTP_ALLOW_PRIVATE="1")

    def answer(asked: Asked) -> bytes:
        said = {"people": people} if asked.method == "GET" else {"saved": 2}
        return reply(body=said, content_type="application/json")

    async with serving(answer) as web:
        here = f"http://127.0.0.1:{web.port}"
        given = json.dumps({"source": f"{here}/a", "target": f"{here}/b"})
        words = ("run", "examples/http-mapping.yaml", "--input", given)
        document = await asyncio.to_thread(typist.document, *words)
    sent = [
        {"name": "Ada", "city": "London", "place": 0}, {"name": "Bob", "city": None, "place": 1},
    ]  # fmt: skip
    assert document["output"] == {"sent": sent, "answer": {"saved": 2}}
    fetched, posted = web.asked
    assert (fetched.method, fetched.path) == ("GET", "/a?active=true")
    assert (posted.method, posted.path) == ("POST", "/b")
    assert json.loads(posted.body) == {"people": sent}
    assert posted.headers["idempotency-key"]


def test_private_addresses_are_refused_unless_they_are_allowed(typist: Typist) -> None:
    given = '{"source": "http://127.0.0.1:9/a", "target": "http://127.0.0.1:9/b"}'
    words = ("run", "examples/http-mapping.yaml", "--input", given)
    document = typist.document(*words, exit_code=40)
    assert document["error"]["type"] == "address_refused"
    assert "STEPWELL_HTTP_ALLOW_PRIVATE" in document["error"]["message"]


def test_nodes_call_python_functions(typist: Typist) -> None:
    document = typist.run("mixed-python.yaml")
    assert document["output"] == {"call": "call Ada today", "mail": None}
    assert outcomes(document) == {
        "score[0]": "completed", "score[1]": "completed", "score": "completed",
        "best": "completed", "warm": "completed", "call": "completed",
        "mail": "skipped: branch_not_taken",
    }  # fmt: skip
    without = typist.document("run", "examples/mixed-python.yaml", "--json", exit_code=10)
    assert without["error"]["code"] == "function_unknown"
    assert "--with" in without["error"]["message"]


def test_a_script_reports_from_behind_its_wall(typist: Typist) -> None:
    document = typist.run("script-report.yaml")
    assert document["output"]["title"] == "Files by kind"
    assert document["output"]["kinds"][".toml"] == 1
    assert not Path("/tmp/draft").exists()


# -- people --------------------------------------------------------------------------------


def decided(typist: Typist, waiting: Any, decision: str, *, exit_code: int = 0) -> Any:
    words = ("resume", waiting["run_id"], "--decision", decision, "--by", "grace")
    return typist.document(*words, "--token", waiting["gate"]["token"], exit_code=exit_code)


@pytest.mark.parametrize(("decision", "opened"), [("approve", True), ("deny", False)])
def test_nightly_checks_ask_about_what_failed(typist: Typist, decision: str, opened: bool) -> None:
    waiting = typist.run("nightly-checks.yaml")
    assert waiting["status"] == "waiting"
    assert waiting["gate"]["subject"] == ["test -e /no/such/backup"]
    assert outcomes(waiting)["gate"] == "waiting"
    document = decided(typist, waiting, decision)
    ticket = {"title": "Nightly checks failed", "checks": ["test -e /no/such/backup"],
              "asked_by": ["grace"]}  # fmt: skip
    assert document["output"] == {"ticket": ticket if opened else None, "said": None}
    assert outcomes(document)["ticket"] == ("completed" if opened else "skipped: branch_not_taken")
    assert outcomes(document)["good"] == "skipped: branch_not_taken"


def test_nightly_checks_ask_nobody_when_all_is_well(typist: Typist) -> None:
    words = (*COMMANDS["nightly-checks.yaml"], "--input", '{"checks": ["true", "test 1 = 1"]}')
    document = typist.document(*words)
    assert document["output"] == {"ticket": None, "said": "all checks passed"}
    assert outcomes(document)["gate"] == "skipped: branch_not_taken"


@pytest.mark.parametrize(
    ("decision", "gate", "shipped"),
    [("approve", "completed", "shipped v1.2.3\n"), ("deny", "failed", None)],
)
def test_a_release_ships_only_if_it_is_approved(
    typist: Typist, decision: str, gate: str, shipped: str | None
) -> None:
    waiting = typist.run("release-approval.yaml")
    assert waiting["gate"]["prompt"] == "Ship v1.2.3?"
    assert waiting["gate"]["subject"]["tag"] == "v1.2.3"
    assert waiting["gate"]["deadline_at"].endswith("Z")
    document = decided(typist, waiting, decision)
    assert document["output"] == {"tag": "v1.2.3", "gate": gate, "shipped": shipped}
    assert outcomes(document)["ship"] == ("completed" if shipped else "skipped: upstream_failed")


def test_a_release_needs_a_tag_that_looks_like_one(typist: Typist) -> None:
    done = typist("run", "examples/release-approval.yaml", "--input", '{"tag": "soon"}')
    assert (done.exit_code, done.stdout) == (10, "")
    assert "tag" in done.stderr

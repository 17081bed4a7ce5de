"""`stepwell definitions`: edits that would undo somebody else's are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepwell.cli.session import naming
from stepwell.errors import RunNotFound
from tests.operations.support import document
from tests.surfaces.graphs import written
from tests.surfaces.support import Cli


def published(cli: Cli, seconds: int) -> str:
    """The hash of a revision that has become current."""
    path = cli.folder / "checks.json"
    path.write_text(json.dumps(document(seconds=seconds)), "utf-8")
    found: dict[str, Any] = cli.ok("definitions", "publish", str(path))
    return str(found["revision"]["hash"])


def test_a_rollback_says_what_it_replaces(cli: Cli) -> None:
    first, second, third = (published(cli, seconds) for seconds in (1, 2, 3))
    words = ("definitions", "rollback", "checks", "1.0.0", "--if-match")
    refused = cli(*words, second, "--json")
    assert refused.exit_code == 10
    error = refused.document["error"]
    assert (error["code"], error["details"]["hash"]) == ("conflict", third)
    assert error["details"]["changes"] == ["node wait: config.duration: 2 → 3"]
    assert error["details"]["at"].endswith("Z")
    assert cli.ok(*words, third)["revision"]["hash"] == first


def test_a_draft_is_kept_wrong_shown_and_published_when_it_is_right(cli: Cli) -> None:
    path = cli.folder / "checks.yaml"
    path.write_text("name: checks\nnodes: nothing yet\n", "utf-8")
    words = ("definitions", "draft")
    saved = cli(*words, "save", "checks", str(path))
    assert saved.exit_code == 0
    assert "nodes is a list" in saved.stderr
    shown = cli(*words, "show", "checks")
    assert "nodes: nothing yet" in shown.stdout
    assert "# error: line 2: nodes: " in shown.stdout
    assert cli(*words, "publish", "checks").exit_code == 10
    path.write_text(json.dumps(document(seconds=1)), "utf-8")
    etag = cli.ok(*words, "save", "checks", str(path))["etag"]
    assert cli.ok(*words, "show", "checks")["etag"] == etag
    assert cli(*words, "publish", "checks", "--if-match", "other").exit_code == 10
    assert cli.ok(*words, "publish", "checks", "--if-match", etag)["revision"]["version"] == "1.0.0"
    assert cli(*words, "show", "checks").exit_code == 10
    assert cli.ok("runs", "start", "checks")["id"]


def test_a_draft_is_discarded_and_what_is_published_stays(cli: Cli) -> None:
    published(cli, 1)
    (cli.folder / "two.json").write_text(json.dumps(document(seconds=2)), "utf-8")
    cli.ok("definitions", "draft", "save", "checks", str(cli.folder / "two.json"))
    assert "1 → 2" in cli("definitions", "diff", "checks", "1.0.0", "draft").stdout
    assert cli.ok("definitions", "draft", "discard", "checks")["discarded"] is True
    assert "has no draft" in cli("definitions", "draft", "discard", "checks").stdout
    assert cli.ok("definitions", "show", "checks")["definition"]["version"] == "1.0.0"


def test_syncing_tells_of_each_file_what_became_of_it(cli: Cli) -> None:
    folder = cli.folder / "definitions"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.json").write_text(json.dumps(document(name)), "utf-8")
    assert "--apply does it" in cli("definitions", "sync", str(folder)).stdout
    found = cli.ok("definitions", "sync", str(folder), "--apply")
    assert (found["applied"], found["ok"]) == (True, True)
    assert [(step["action"], step["outcome"]) for step in found["steps"]] == [
        ("create", "done"), ("create", "done"),
    ]  # fmt: skip
    again = cli("definitions", "sync", str(folder), "--apply").stdout
    assert "not done" not in again
    assert "All is up to date." in again


def test_syncing_says_in_which_file_and_line_something_is_wrong(cli: Cli) -> None:
    folder = cli.folder / "definitions"
    folder.mkdir()
    (folder / "a.yaml").write_text("name: a\nnodes:\n  - {id: x, type: nothing}\n", "utf-8")
    (folder / "b.yaml").write_text("name: b\n\tnodes: []\n", "utf-8")
    (folder / "c.json").write_text(json.dumps(document("c")), "utf-8")
    (folder / "d.json").write_text(json.dumps(document("c")), "utf-8")
    said = cli("definitions", "sync", str(folder)).stdout
    assert f"invalid    a  {folder}/a.yaml" in said
    assert "error: line 3: nodes[0].type: There is no node type 'nothing'" in said
    assert "indented with a tab" in said
    assert f"error: name: {folder}/c.json is called 'c' as well. [duplicate_name]" in said
    found = cli("definitions", "sync", str(folder), "--json").document["steps"]
    assert [each["file"] for each in found] == [str(each) for each in sorted(folder.iterdir())]
    assert [each["problems"][0]["line"] for each in found if each["problems"]] == [3, 2, None]


def test_a_run_is_started_with_the_version_that_the_history_shows(cli: Cli) -> None:
    first, _ = (published(cli, seconds) for seconds in (1, 2))
    for version in ("1.0.0", "1", first):
        run_id = cli.ok("runs", "start", "checks", "--version", version)["id"]
        assert cli.ok("runs", "show", run_id)["run"]["revision"] == first
    refused = cli("runs", "start", "checks", "--version", "1.2.0", "--json")
    assert refused.exit_code == 10
    assert refused.document["error"]["code"] == "revision_not_found"


def test_all_proposals_are_listed_without_a_name(cli: Cli) -> None:
    published(cli, 1)
    assert cli.ok("proposals", "list") == {"items": []}


@pytest.mark.parametrize(
    ("url", "place"),
    [("sqlite:///here/runs.db", "here/runs.db"),
     ("postgresql://me:secret@host:1/runs?user=me", "postgresql://host:1/runs")],
)  # fmt: skip
def test_a_run_that_is_not_found_was_looked_for_somewhere(url: str, place: str) -> None:
    with pytest.raises(RunNotFound) as error, naming(url):
        raise RunNotFound("There is no such run.")
    assert error.value.message.endswith(f"{place}.")
    assert "secret" not in error.value.message


def test_publishing_says_which_secrets_are_still_to_be_stored(lite: Cli) -> None:
    flow = """
        name: flow
        nodes: [{id: send, type: shell, config: {command: "send {{secrets.token}}"}}]
    """
    done = lite.process("definitions", "publish", written(lite, flow))
    assert done.exit_code == 0
    assert "there is no secret 'token' yet. [unknown_secret]" in done.stderr
    assert "stepwell secrets set token" in done.stderr


def test_a_proposal_shows_what_became_of_it(lite: Cli) -> None:
    flow = """
        name: flow
        policy: {proposals: true}
        nodes: [{id: a, type: transform, config: {value: 1}}]
    """
    lite.process("definitions", "publish", written(lite, flow))
    wanted = '[{"op": "update_node", "id": "a", "set": {"timeout": "5s"}}]'
    proposal = lite.ok("propose", "flow", "--operations", wanted, "--by", "ann")
    assert proposal["created_at"] < proposal["expires_at"]
    assert proposal["created_at"].endswith("Z")
    review = ("--decision", "approve", "--by", "bob", "--note", "fine")
    reviewed = lite.ok("proposals", "review", proposal["id"], *review)
    assert reviewed["review"]["reviewed_at"].endswith("Z")
    lite.process("definitions", "publish", written(lite, flow.replace("value: 1", "value: 2")))
    assert lite("proposals", "apply", proposal["id"]).exit_code == 10
    said = lite("proposals", "show", proposal["id"]).stdout
    assert "for flow: failed" in said
    assert "  approved by bob: fine\n" in said
    assert "  not applied: Revision 1.1.0 of 'flow' was published" in said

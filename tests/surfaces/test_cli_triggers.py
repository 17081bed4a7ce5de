"""`stepwell triggers` and `stepwell events`: what they print, and how they exit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepwell.cli.oneself import own_name
from stepwell.triggers.inbound.cloudevents import read_events
from stepwell.triggers.inbound.headers import Headers
from tests.surfaces.support import Cli

REPOSITORY = Path(__file__).parent.parent.parent

DOCUMENT = """
name: report
timezone: Europe/Berlin
triggers:
  - {id: nightly, type: schedule, cron: "0 2 * * 1-5"}
  - {id: told, type: event, event: news}
nodes: [{id: a, type: transform, config: {value: 1}}]
"""


@pytest.fixture
def cli(lite: Cli) -> Cli:
    (lite.folder / "report.yaml").write_text(DOCUMENT, "utf-8")
    lite.ok("definitions", "publish", str(lite.folder / "report.yaml"))
    return lite


def listed(cli: Cli, *words: str) -> dict[str, Any]:
    return {each["name"]: each for each in cli.ok("triggers", "list", *words)["items"]}


def test_triggers_are_listed_with_their_next_times(cli: Cli) -> None:
    found = listed(cli, "report")
    assert found.keys() == {"nightly", "told"}
    nightly = found["nightly"]
    assert (nightly["status"], nightly["timezone"]) == ("enabled", "Europe/Berlin")
    assert nightly["description"] == "At 02:00, Monday to Friday, in Europe/Berlin."
    assert len(nightly["next"]) == 5
    assert "T02:00:00+0" in nightly["next"][0]
    done = cli("triggers", "list")
    assert "report/nightly" in done.stdout
    assert "report/told" in done.stdout
    lines = done.stdout.splitlines()
    row = next(index for index, line in enumerate(lines) if "report/nightly" in line)
    assert lines[row + 1] == "  At 02:00, Monday to Friday, in Europe/Berlin."


def test_publishing_says_when_schedules_fire(cli: Cli) -> None:
    file = str(cli.folder / "report.yaml")
    cli.ok("triggers", "create", "report", "schedule", '{"every": "15m"}', "--name", "often")
    nightly, often = cli.ok("definitions", "publish", file)["schedules"]
    sentence = "At 02:00, Monday to Friday, in Europe/Berlin."
    assert (nightly["trigger"], nightly["description"]) == ("nightly", sentence)
    assert (often["trigger"], len(often["next"])) == ("often", 5)
    _, first, second = cli("definitions", "publish", file).stdout.splitlines()
    at = nightly["next"][0]
    assert first == f"  nightly: {sentence} Next: {at[:10]} {at[11:19]} {at[-6:]}"
    assert second.startswith("  often: Every 15 minutes. Next: ")
    cli.ok("triggers", "disable", "report/often")
    disabled = cli("definitions", "publish", file, "--disabled").stdout.splitlines()
    assert disabled[1:] == [f"  nightly: {sentence}", "  often: Every 15 minutes."]


def test_a_trigger_is_made_changed_fired_and_deleted(cli: Cli) -> None:
    made = cli.ok("triggers", "create", "report", "schedule", '{"every": "15m"}', "--name", "often")
    assert made["description"] == "Every 15 minutes."
    changed = cli.ok("triggers", "update", "report/often", '{"every": "1h"}')
    assert changed["id"] == made["id"]
    assert len(cli.ok("triggers", "preview", "report/often", "--count", "3")["next"]) == 3
    fired = cli.ok("triggers", "fire", "report/often", "--key", "k")
    assert fired["created"]
    assert not cli.ok("triggers", "fire", "report/often", "--key", "k")["created"]
    said = f"started by       schedule often (by hand, by {own_name()})"
    assert said in cli("runs", "show", fired["run_id"]).stdout
    assert cli.ok("triggers", "show", made["id"])["last_run_id"] == fired["run_id"]
    assert cli.ok("triggers", "disable", "report/often")["status"] == "disabled"
    done = cli("triggers", "fire", "report/often")
    assert (done.exit_code, "It is disabled." in done.stderr) == (10, True)
    assert "stepwell triggers enable report/often" in done.stderr
    assert cli.ok("triggers", "enable", "report/often")["status"] == "enabled"
    cli.ok("triggers", "delete", "report/often")
    assert "often" not in listed(cli)


def test_the_commands_of_the_documentation_work_from_top_to_bottom(lite: Cli) -> None:
    page = (REPOSITORY / "docs" / "triggers.md").read_text("utf-8")
    block = next(each for each in page.split("```") if "triggers disable" in each)
    lines = [line for line in block.splitlines() if line.startswith("stepwell ")]
    assert len(lines) >= 8
    for line in lines:
        typed = line.removeprefix("stepwell ").replace("examples/", f"{REPOSITORY}/examples/")
        done = lite.shell(typed)
        assert done.exit_code == 0, f"{line}: {done.stderr}"


def test_a_trigger_of_a_document_is_changed_there(cli: Cli) -> None:
    for words in (("update", "report/nightly", "{}"), ("delete", "report/nightly")):
        done = cli("triggers", *words)
        assert done.exit_code == 10
        assert "stands in the document of 'report'" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "report/none"), "DEFINITION/NAME"),
        (("create", "none", "manual"), "No definition 'none'"),
        (("create", "reprot", "manual"), "Did you mean 'report'?"),
        (("create", "report", "sched"), "there are event, manual, schedule, webhook"),
        (("create", "report", "schedule", "{}"), "cron, every, at"),
        (("create", "report", "schedule", '{"every": "1h"}', "--name", "nightly"), "'nightly'"),
        (("create", "report", "manual", "--tz", "UTC"), "its document says the time zone"),
        (("create", "report", "manual", "[1]"), "config"),
        (("create", "report", "manual", "--name", "no name"), "letters, digits"),
    ],
    ids=str,
)
def test_what_cannot_be_is_said_and_exits_10(cli: Cli, words: Any, said: str) -> None:
    done = cli("triggers", *words)
    assert done.exit_code == 10
    assert said in done.stderr


def test_events_are_emitted_and_listed(cli: Cli) -> None:
    assert cli.ok("events", "emit", "news", '{"n": 1}', "--key", "k", "--once")["emitted"]
    assert not cli.ok("events", "emit", "news", '{"n": 2}', "--key", "k", "--once")["emitted"]
    cli.ok("events", "emit", "olds")
    page = cli.ok("events", "list", "--limit", "1")
    assert [each["type"] for each in page["items"]] == ["olds"]
    more = cli.ok("events", "list", "--limit", "1", "--cursor", page["next_cursor"])
    assert more["items"][0]["payload"] == {"n": 1}
    assert "news" in cli("events", "list", "--type", "news").stdout
    assert cli("events", "emit", "news", "not json").exit_code == 10


def test_a_worker_fires_what_the_command_line_has_made(cli: Cli) -> None:
    cli.ok("triggers", "create", "report", "schedule", json.dumps({"every": 1}), "--name", "often")
    with cli.worker():
        cli.ok("events", "emit", "news", '{"n": 1}')
        cli.until(
            lambda found: {"often", "told"}
            <= {run["trigger"]["name"] for run in found["items"] if run["status"] == "completed"},
            "runs", "list", "--definition", "report",
        )  # fmt: skip


def test_events_go_out_as_cloudevents_and_come_in_again(cli: Cli) -> None:
    cli.ok("events", "emit", "paid", '{"n": 1}', "--key", "order-1")
    cli.ok("events", "emit", "paid", '{"n": 2}')
    batch = json.loads(cli("events", "list", "--type", "paid", "--cloudevents").stdout)
    headers = Headers([("Content-Type", "application/cloudevents-batch+json")])
    second, first = read_events(headers, json.dumps(batch).encode())
    assert (first.type, first.subject, first.data) == ("paid", "order-1", {"n": 1})
    assert (second.source, second.subject, second.data) == ("/stepwell/default", None, {"n": 2})
    assert first.time is not None

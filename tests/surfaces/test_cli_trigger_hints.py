"""What `stepwell triggers` and `stepwell events` say beside what they were asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from stepwell.cli.triggertext import list_lines, show_lines
from tests.surfaces.support import Cli

REPOSITORY = Path(__file__).parent.parent.parent

DOCUMENT = """
name: report
inputs: {type: object, properties: {version: {type: string}}}
triggers:
  - {id: nightly, type: schedule, cron: "0 2 * * 1-5", map: {}}
  - {id: released, type: event, event: release, filter: {env: prod}}
nodes: [{id: a, type: shell, config: {command: "exit 3"}}]
"""
NO_WORKER = "Warning: No worker is alive. Start one: stepwell worker"


@pytest.fixture
def report(cli: Cli) -> Cli:
    (cli.folder / "report.yaml").write_text(DOCUMENT, "utf-8")
    cli.ok("definitions", "publish", str(cli.folder / "report.yaml"))
    return cli


def test_whoever_looks_at_triggers_is_told_that_no_worker_is_alive(report: Cli) -> None:
    lines = report("triggers", "list").stdout.splitlines()
    assert lines[0] == "0 workers alive, none has reported."
    assert lines[1].startswith(NO_WORKER)
    assert report("triggers", "show", "report/nightly").stdout.startswith(NO_WORKER)
    assert report.ok("triggers", "list")["health"]["alive"] == 0
    for words in (("triggers", "fire", "report/nightly"), ("events", "emit", "release")):
        done = report(*words)
        assert (done.exit_code, done.stderr.startswith(NO_WORKER)) == (0, True)
        assert NO_WORKER in report(*words, "--json").stderr


def test_nobody_is_warned_while_a_worker_is_alive(report: Cli) -> None:
    with report.worker():
        for words in (
            ("list",), ("show", "report/nightly"), ("fire", "report/nightly"),
        ):  # fmt: skip
            done = report("triggers", *words)
            assert "Warning" not in done.stdout + done.stderr
        assert "Warning" not in report("events", "emit", "release").stderr


def test_an_event_that_starts_nothing_is_said_to(report: Cli) -> None:
    done = report("events", "emit", "release", '{"env": "prod"}')
    assert "Triggers that listen for it: 1." in done.stdout
    assert "No trigger fires" not in done.stderr
    done = report("events", "emit", "relaese")
    assert "Triggers that listen for it: 0." in done.stdout
    assert "No trigger fires for 'relaese'" in done.stderr
    assert "Did you mean 'release'?" in done.stderr
    report.ok("triggers", "disable", "report/released")
    assert "report/released is off" in report("events", "emit", "release").stderr
    assert report.ok("events", "emit", "release")["triggers"] == 0


def test_an_event_that_filters_turn_away_is_said_to(report: Cli) -> None:
    report.ok(
        "triggers", "create", "report", "event",
        '{"event": "release", "filter": "payload.size > 3"}', "--name", "urgent",
    )  # fmt: skip
    for payload, said in (
        ('{"env": "test", "size": 1}', "listen for it: 2; none of them wants this payload."),
        ('{"env": "prod", "size": 1}', "listen for it: 2; 1 of them wants this payload."),
        ('{"env": "prod", "size": 4}', "listen for it: 2."),
    ):
        assert said in report("events", "emit", "release", payload).stdout
    done = report.ok("events", "emit", "release", '{"env": "test", "size": 4}')
    assert (done["triggers"], done["wanting"]) == (2, 1)


def test_a_trigger_shows_how_its_last_run_ended(report: Cli) -> None:
    with report.worker():
        run_id = report.ok("triggers", "fire", "report/nightly")["run_id"]
        report.until(lambda found: found["run"]["status"] == "failed", "runs", "show", run_id)
    assert f"last run: {run_id} (failed)" in report("triggers", "show", "report/nightly").stdout
    assert report.ok("triggers", "show", "report/nightly")["last_run_status"] == "failed"


def test_a_field_that_is_no_input_is_left_out_and_said_to_be(report: Cli) -> None:
    done = report("triggers", "fire", "report/released", '{"verison": "1", "zebra": 2}')
    assert done.exit_code == 0
    assert "no such input: verison (did you mean 'version'?), zebra" in done.stderr
    assert (
        "Left out" not in report("triggers", "fire", "report/released", '{"version": "1"}').stderr
    )
    assert "Left out" not in report("triggers", "fire", "report/nightly", '{"zebra": 1}').stderr
    help_text = report("triggers", "fire", "--help").stdout
    assert "Filter, signature and rate are not applied." in help_text


def test_a_webhook_made_by_hand_is_told_that_its_secret_is_missing(report: Cli) -> None:
    config = '{"verify": "github", "secret": "hook"}'
    made = report("triggers", "create", "report", "webhook", config)
    assert made.exit_code == 0
    assert "There is no secret 'hook' yet" in made.stderr
    assert "stepwell secrets set hook" in made.stderr
    changed = report("triggers", "update", "report/webhook", config.replace("hook", "other"))
    assert "There is no secret 'other' yet" in changed.stderr
    assert "secret" not in report("triggers", "update", "report/webhook", "{}").stderr


def test_a_misspelt_trigger_is_told_what_may_be_meant(report: Cli) -> None:
    done = report("triggers", "show", "report/nighty")
    assert (done.exit_code, "Did you mean 'report/nightly'?" in done.stderr) == (10, True)
    assert "Did you mean 'report/nightly'?" in report("triggers", "show", "reprot/nightly").stderr
    assert "Did you mean" not in report("triggers", "show", "report/none").stderr


def test_a_config_is_explained(report: Cli) -> None:
    help_text = " ".join(report("triggers", "create", "--help").stdout.split())
    assert "schedule, event, webhook or manual" in help_text
    assert "docs/triggers.md" in help_text
    assert "- reads it from standard input" in help_text
    done = report("triggers", "create", "report", "schedule", "every=15m")
    assert """Write it like '{"cron": "0 3 * * *"}'""" in done.stderr
    assert "its own quotes" not in done.stderr
    made = report.ok("triggers", "create", "report", "schedule", "-", stdin='{"every": "1h"}')
    assert made["name"] == "schedule"


def test_what_started_a_run_is_said_once(report: Cli) -> None:
    report.ok("triggers", "create", "report", "schedule", '{"every": "1h"}')
    run_id = report.ok("triggers", "fire", "report/schedule")["run_id"]
    assert "started by       schedule (by hand, by " in report("runs", "show", run_id).stdout


def test_an_input_that_does_not_fit_is_described_once(report: Cli) -> None:
    done = report("triggers", "fire", "report/released", '{"version": 5}', "--json")
    error = done.document["error"]
    assert (done.exit_code, error["code"], list(error["details"])) == (
        10, "input_invalid", ["problems"],
    )  # fmt: skip


def test_lists_and_refusals_are_short() -> None:
    trigger = {
        "definition": "report", "name": "nightly", "type": "schedule", "id": "t", "why": None,
        "status": "enabled", "description": "At 02:00.", "next": [], "last_fired_at": None,
        "last_error": "x" * 500, "last_run_id": None, "config": {}, "webhook_url": None,
        "refusals": [
            {"code": "times_missed", "message": "17 times were missed.", "count": 17,
             "refused_at": datetime(2026, 1, 1, tzinfo=UTC)},
            {"code": "queue_full", "message": "Full.", "count": 2,
             "refused_at": datetime(2026, 1, 1, tzinfo=UTC)},
        ],
    }  # fmt: skip
    assert max(map(len, list_lines([trigger]))) < 130
    *_, missed, full = show_lines(trigger)
    assert missed.endswith("17 times were missed.")
    assert full.endswith("Full. (2 times)")


def test_the_first_definition_of_the_documentation_runs(cli: Cli) -> None:
    page = (REPOSITORY / "docs" / "triggers.md").read_text("utf-8")
    text = page.split("```yaml\n")[1].split("```")[0]
    path = cli.folder / "nightly-report.yaml"
    path.write_text(text, "utf-8")
    published = cli("definitions", "publish", str(path))
    assert published.exit_code == 0, published.stderr
    with cli.worker():
        run_id = cli.ok("triggers", "fire", "nightly-report/nightly")["run_id"]
        cli.until(lambda found: found["run"]["status"] == "completed", "runs", "show", run_id)
    assert "report on all" in cli("runs", "show", run_id).stdout


def test_a_schedule_in_vain_is_said_when_it_is_checked_or_published(cli: Cli) -> None:
    path = cli.folder / "report.yaml"
    text = DOCUMENT.replace("type: object,", "type: object, required: [version],")
    path.write_text(text.replace('cron: "0 2 * * 1-5"', 'at: "2001-01-01T00:00"'), "utf-8")
    checked, published = cli("validate", str(path)), cli("definitions", "publish", str(path))
    assert (checked.exit_code, published.exit_code) == (0, 0)
    for said in (checked.stdout, published.stderr):
        assert "[in_the_past]" in said
        assert "It can start no run." in said

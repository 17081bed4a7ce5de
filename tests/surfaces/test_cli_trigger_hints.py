"""What `stepwell triggers` and `stepwell events` say beside what they were asked for."""

from __future__ import annotations

import pytest

from tests.surfaces.support import Cli

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
    done = report("events", "emit", "release")
    assert "Triggers that listen for it: 1." in done.stdout
    assert "No trigger fires" not in done.stderr
    done = report("events", "emit", "relaese")
    assert "Triggers that listen for it: 0." in done.stdout
    assert "No trigger fires for 'relaese'" in done.stderr
    assert "Did you mean 'release'?" in done.stderr
    report.ok("triggers", "disable", "report/released")
    assert "report/released is off" in report("events", "emit", "release").stderr
    assert report.ok("events", "emit", "release")["triggers"] == 0


def test_a_trigger_shows_how_its_last_run_ended(report: Cli) -> None:
    with report.worker():
        run_id = report.ok("triggers", "fire", "report/nightly")["run_id"]
        report.until(lambda found: found["run"]["status"] == "failed", "runs", "show", run_id)
    assert f"last run: {run_id} (failed)" in report("triggers", "show", "report/nightly").stdout
    assert report.ok("triggers", "show", "report/nightly")["last_run_status"] == "failed"

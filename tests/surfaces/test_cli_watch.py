"""Watching a run from the command line, while a worker in another process executes it."""

from __future__ import annotations

import json
import signal

from tests.surfaces.support import PATIENCE_SECONDS, Cli


def test_a_run_that_has_ended_is_told_line_by_line(cli: Cli) -> None:
    with cli.worker("jobs"):
        run_id = cli.ok("runs", "start", "stumble", '{"times": 1}', "--wait")["id"]
    watched = cli("runs", "watch", run_id)
    assert watched.exit_code == 0, watched.stderr
    assert [line.split(" ", 1)[1] for line in watched.stdout.splitlines()] == [
        "▶ run.started", "· step.started flaky",
        "↻ step.retrying flaky ConnectionError: try again", "✓ step.completed flaky 2",
        "■ run.finished completed 2",
    ]  # fmt: skip
    written = cli("runs", "watch", run_id, "--json").stdout
    events = [json.loads(line) for line in written.splitlines()]
    assert [event["type"] for event in events][-2:] == ["step.completed", "run.finished"]
    for number, event in enumerate(events, 1):
        rest = cli("runs", "watch", run_id, "--json", "--after", event["id"])
        assert rest.exit_code == 0
        assert [json.loads(line) for line in rest.stdout.splitlines()] == events[number:]
    wrong = cli("runs", "watch", run_id, "--json", "--after", "nonsense")
    assert (wrong.exit_code, wrong.document["error"]["code"]) == (10, "invalid_cursor")


def test_a_run_of_another_process_is_watched_until_it_ends_badly(cli: Cli) -> None:
    with cli.worker("jobs"):
        run_id = cli.ok("runs", "start", "ask")["id"]
        with cli.started("runs", "watch", run_id, "--json") as watching:
            assert watching.stdout is not None
            types = []
            while "run.waiting" not in types:
                types.append(json.loads(watching.stdout.readline())["type"])
            cli.ok("runs", "cancel", run_id)
            said, problems = watching.communicate(timeout=PATIENCE_SECONDS)
    assert watching.returncode == 0, problems
    last = json.loads(said.splitlines()[-1])
    assert (last["type"], last["data"]) == ("run.finished", {"status": "cancelled"})


def test_whoever_is_interrupted_is_told_how_to_go_on(cli: Cli) -> None:
    with cli.worker("jobs:ask"):
        run_id = cli.ok("runs", "start", "ask")["id"]
        with cli.started("runs", "watch", run_id) as watching:
            assert watching.stdout is not None
            while "run.waiting" not in watching.stdout.readline():
                pass
            watching.send_signal(signal.SIGINT)
            _, problems = watching.communicate(timeout=PATIENCE_SECONDS)
        assert watching.returncode == 130
        command = problems.splitlines()[0].removeprefix("To go on: stepwell ")
        assert command.startswith(f"runs watch {run_id} --after ")
        cli.ok("runs", "signal", run_id, "answer", "7")
        rest = cli(*command.split()).stdout.splitlines()
    assert rest[0].endswith("▶ run.resumed")
    assert rest[-1].endswith("run.finished completed 7")


def test_a_run_that_nobody_executes_says_why_nothing_happens(lite: Cli) -> None:
    with lite.worker("jobs:greet"):
        pass
    run_id = lite.ok("runs", "start", "greet")["id"]
    with lite.started("runs", "watch", run_id) as watching:
        assert watching.stderr is not None
        assert "worker" in watching.stderr.readline()
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=PATIENCE_SECONDS)

"""`stepwell worker`: finding workflows, stopping, and keeping several processes alive."""

from __future__ import annotations

import os
import signal

import pytest

from tests.conftest import new_database
from tests.surfaces.support import PATIENCE_SECONDS, Cli, gone, until


@pytest.mark.parametrize(
    ("targets", "definitions"),
    [
        (["jobs:nap"], ["nap"]),
        (["jobs:SOME"], ["nap", "ask"]),
        (["jobs:nap", "jobs:SOME", "jobs:greet"], ["nap", "ask", "greet"]),
        (["jobs"], ["greet", "greet", "stumble", "nap", "ask", "hold"]),
    ],
)
def test_a_worker_finds_its_workflows_in_the_working_directory(
    lite: Cli, targets: list[str], definitions: list[str]
) -> None:
    with lite.worker(*targets) as worker:
        assert [each["name"] for each in worker.ready["definitions"]] == definitions


async def test_a_worker_does_not_tell_its_password(lite: Cli, postgres_server: str) -> None:
    store = await new_database(postgres_server)
    with lite.worker("jobs:nap", "--store", f"{store}&password=secret") as worker:
        assert worker.ready["store"] == f"{store}&password=***"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere", "there is no module 'nowhere'"),
        ("nowhere.at.all:x", "there is no module 'nowhere'"),
        ("jobs:nothing", "jobs has no 'nothing'"),
        ("jobs:NONE", "neither decorated with @workflow or @function"),
        ("jobs:CALLS", "neither decorated with @workflow or @function"),
        ("jobs.py", "not examples/onboarding.py"),
        ("./jobs", "not examples/onboarding.py"),
        ("empty", "no workflow and no @function at its top level"),
        ("broken", "ZeroDivisionError"),
        ("missing", "No module named 'not_installed'"),
        ("leaving", "SystemExit"),
    ],
)
def test_a_target_that_is_no_workflow_is_an_input_error(lite: Cli, target: str, said: str) -> None:
    for name, text in {
        "empty": "",
        "broken": "1 / 0",
        "missing": "import not_installed",
        "leaving": "raise SystemExit(3)",
    }.items():
        (lite.folder / f"{name}.py").write_text(text, "utf-8")
    done = lite.process("worker", target, "--json")
    assert done.exit_code == 10, done.stderr
    assert done.document["error"]["code"] == "invalid_input"
    assert said in done.document["error"]["message"]


@pytest.mark.parametrize(
    "options",
    [("--processes", "0"), ("--concurrency", "-1"), ("--lease", "0.1s"), ("--grace", "long")],
    ids=" ".join,
)
def test_a_bad_shape_is_an_input_error(lite: Cli, options: tuple[str, ...]) -> None:
    done = lite.process("worker", "jobs", *options)
    assert done.exit_code == 10
    assert done.stdout == ""


def test_two_workflows_of_one_name_are_refused_before_any_process_starts(lite: Cli) -> None:
    (lite.folder / "twice.py").write_text(
        "from stepwell import workflow\n"
        "@workflow(name='x')\nasync def a(ctx, input): ...\n"
        "@workflow(name='x')\nasync def b(ctx, input): ...\n",
        "utf-8",
    )
    done = lite.process("worker", "twice", "--processes", "2", "--json")
    assert done.exit_code == 10
    assert done.document["error"]["code"] == "duplicate_definition"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_worker_and_its_runs_go_on_in_the_next(
    cli: Cli, number: signal.Signals
) -> None:
    with cli.worker("jobs:ask") as worker:
        run_id = cli.ok("runs", "start", "ask")["id"]
        cli.until(lambda said: said["code"] == "event", "runs", "explain", run_id)
        assert worker.stop(number) == 0
    assert cli.ok("workers")["health"]["alive"] == 0
    cli.ok("runs", "signal", run_id, "answer")
    with cli.worker("jobs:ask"):
        cli.until(lambda it: it["run"]["status"] == "completed", "runs", "show", run_id)


def test_a_worker_whose_step_blocks_a_thread_still_stops(cli: Cli) -> None:
    door = cli.folder / "door"
    with cli.worker("jobs:hold_on", "--grace", "100ms") as worker:
        run_id = cli.ok("runs", "start", "hold", f'{{"door": "{door}"}}')["id"]
        until((cli.folder / "door.entered").exists)
        assert worker.stop() == 0
    shown = cli.ok("runs", "show", run_id)
    assert shown["run"]["status"] in ("pending", "running")
    assert shown["explanation"]["code"] == "no_worker"
    door.touch()
    with cli.worker("jobs:hold_on") as second:
        shown = cli.until(lambda it: it["run"]["status"] == "completed", "runs", "show", run_id)
        assert shown["run"]["output"] == second.process.pid


def test_a_process_that_dies_is_replaced_and_all_stop_together(cli: Cli) -> None:
    with cli.worker("jobs", "--processes", "2") as worker:
        assert len(set(worker.pids)) == 2
        assert cli.ok("workers")["health"]["alive"] == 2
        dead, living = worker.pids
        os.kill(dead, signal.SIGKILL)

        def replaced(found: object) -> bool:
            assert isinstance(found, dict)
            pids = {each["pid"] for each in found["items"] if each["alive"]} - {dead}
            return living in pids and len(pids) == 2

        found = cli.until(replaced, "workers")
        pids = {each["pid"] for each in found["items"] if each["alive"]} - {dead}
        assert cli.ok("runs", "start", "greet", "--wait")["output"] == "version 2"
        assert worker.stop() == 0
        assert all(gone(pid) for pid in pids)
    assert cli.ok("workers")["health"]["alive"] == 0


def test_processes_do_not_outlive_a_supervisor_that_is_killed(lite: Cli) -> None:
    with lite.worker("jobs", "--processes", "2") as worker:
        assert worker.stop(signal.SIGKILL) == -signal.SIGKILL
        until(lambda: all(gone(pid) for pid in worker.pids))
    assert lite.ok("workers")["health"]["alive"] == 0


@pytest.mark.parametrize("output", [">&-", "| true"])
def test_a_worker_that_nobody_listens_to_works_and_stops_all_the_same(
    lite: Cli, output: str
) -> None:
    with lite.started(typed=f"worker jobs:greet --json {output}") as process:
        [worker] = lite.until(lambda found: found["items"], "workers")["items"]
        assert lite.ok("runs", "start", "greet", "--wait")["output"] == {"hello": "you"}
        os.kill(worker["pid"], signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert "Traceback" not in errors
    assert process.returncode == 0

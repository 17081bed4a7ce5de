"""Starting runs and acting on them from the command line, with a worker in another process."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from stepwell import Stepwell, workflow
from tests.surfaces.support import PATIENCE_SECONDS, Cli


@workflow(name="idle")
async def idle(ctx: Any, input: Any) -> None: ...


def test_a_started_run_is_waited_for_and_its_output_printed(cli: Cli) -> None:
    with cli.worker("jobs:greet"):
        plain = cli.process("runs", "start", "greet", '{"name": "ada"}', "--wait")
        assert plain.exit_code == 0, plain.stderr
        assert json.loads(plain.stdout) == {"hello": "ada"}
        words = ("runs", "start", "greet", "--input", "-", "--wait", "--json")
        done = cli.process(*words, stdin='{"name": "bob"}').document
        assert (done["output"], done["created"]) == ({"hello": "bob"}, True)
        assert cli.ok("runs", "start", "greet", "--wait")["output"] == {"hello": "you"}


def test_every_start_option_reaches_the_run(cli: Cli) -> None:
    with cli.worker("jobs"):
        pass
    words = ["runs", "start", "greet", "{}", "--idempotency-key", "k", "--version", "1"]
    words += ["--delay", "1h", "--deadline", "2h", "--priority", "7", "--concurrency-key", "c"]
    words += ["--concurrency-limit", "3", "--retention", "1d", "--ttl", "90m"]
    first = cli.ok(*words)
    assert cli.ok(*words) == {"id": first["id"], "created": False}
    shown = cli.ok("runs", "show", first["id"])
    run = shown["run"]
    assert (run["version"], run["priority"], run["idempotency_key"]) == (1, 7, "k")
    assert (run["concurrency_key"], run["concurrency_limit"]) == ("c", 3)
    assert run["deadline_at"] is not None
    assert shown["explanation"]["code"] == "delay"
    timed = cli.ok("runs", "start", "nap", "{}", "--deadline", "2999-01-01T00:00:00Z")
    assert cli.ok("runs", "show", timed["id"])["run"]["deadline_at"].startswith("2999-01-01")
    assert cli.ok("runs", "show", cli.ok("runs", "start", "greet")["id"])["run"]["version"] == 2


def test_a_run_shows_who_started_it_and_who_did_again(lite: Cli, tmp_path: Path) -> None:
    async def start() -> tuple[str, str]:
        url = f"sqlite:///{tmp_path}/stepwell.db"
        async with Stepwell(url, [idle]) as sw:
            first = await sw.start("idle", user="ada")
            await sw.cancel(first.id)
            return first.id, (await sw.retry(first.id, user="bob")).id

    for run_id, by in zip(asyncio.run(start()), ("ada", "bob"), strict=True):
        assert f"started by       {by}\n" in lite("runs", "show", run_id).stdout


def test_a_run_that_does_not_complete_exits_with_40(cli: Cli) -> None:
    with cli.worker("jobs"):
        failed = cli("runs", "start", "stumble", '{"times": 9}', "--wait", "--json")
        assert failed.exit_code == 40
        error = failed.document["error"]
        assert error["code"] == "run_failed"
        assert error["details"]["error"]["step"] == "flaky"
        late = cli("runs", "start", "nap", '{"for": "1h"}', "--wait", "--timeout", "0.1", "--json")
        assert late.exit_code == 40
        assert late.document["error"]["code"] == "timeout"
        assert cli.status(late.document["error"]["details"]["run_id"]) in ("pending", "waiting")
        dead = cli(
            "runs", "start", "nap", '{"for": "1h"}', "--deadline", "100ms", "--wait", "--json"
        )
        assert dead.exit_code == 40
        assert dead.document["error"]["code"] == "run_timed_out"


def test_waiting_without_a_worker_warns_and_ctrl_c_tells_the_run(cli: Cli) -> None:
    with cli.worker("jobs:greet"):
        pass
    with cli.started("runs", "start", "greet", "--wait", "--json") as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith("Warning: No worker is alive.")
        waiting.send_signal(signal.SIGINT)
        said, _ = waiting.communicate(timeout=PATIENCE_SECONDS)
    assert waiting.returncode == 130
    error = json.loads(said)["error"]
    assert error["code"] == "interrupted"
    assert cli.status(error["details"]["run_id"]) == "pending"


def test_waiting_for_what_no_living_worker_has_says_what_is_missing(cli: Cli) -> None:
    with cli.worker("jobs:nap"):
        pass
    with cli.worker("jobs:greet"):
        with cli.started("runs", "start", "nap", "--wait") as waiting:
            assert waiting.stderr is not None
            run_id = waiting.stderr.readline().split()[1]
            said = waiting.stderr.readline()
            assert said.startswith("Warning: unknown_definition: No living worker has the")
            cli.ok("runs", "cancel", run_id)
            assert waiting.wait(PATIENCE_SECONDS) == 40


def test_failed_attempts_are_shown_under_their_step(cli: Cli) -> None:
    with cli.worker("jobs:stumble"):
        run_id = cli.ok("runs", "start", "stumble", '{"times": 2}', "--wait")["id"]
    [step] = cli.ok("runs", "show", run_id)["steps"]
    assert step["attempts"] == 3
    assert [failure["number"] for failure in step["failures"]] == [1, 2]
    text = cli("runs", "show", run_id).stdout
    assert "attempt 2 failed after" in text
    assert "ConnectionError: try again" in text


def test_a_signal_ends_a_wait_and_is_refused_once_the_run_has_ended(cli: Cli) -> None:
    with cli.worker("jobs:SOME"):
        run_id = cli.ok("runs", "start", "ask")["id"]
        cli.until(lambda said: said["code"] == "event", "runs", "explain", run_id)
        assert cli.ok("runs", "signal", run_id, "answer", '{"n": 42}')["delivered"] is True
        shown = cli.until(lambda it: it["run"]["status"] == "completed", "runs", "show", run_id)
        assert shown["run"]["output"] == {"n": 42}
    late = cli("runs", "signal", run_id, "answer", "--json")
    assert late.exit_code == 40
    assert late.document["error"]["code"] == "signal_not_delivered"


def test_a_run_is_cancelled_once(cli: Cli) -> None:
    with cli.worker("jobs:nap"):
        run_id = cli.ok("runs", "start", "nap", '{"for": "1h"}')["id"]
        cli.until(lambda said: said["code"] == "sleep", "runs", "explain", run_id)
        assert cli.ok("runs", "cancel", run_id) == {"id": run_id, "cancelled": True}
        assert cli.ok("runs", "cancel", run_id) == {"id": run_id, "cancelled": False}
        assert cli.status(run_id) == "cancelled"


def test_a_failed_run_is_retried_and_a_completed_one_is_not(cli: Cli) -> None:
    with cli.worker("jobs:stumble"):
        failed = cli("runs", "start", "stumble", '{"times": 4}', "--wait", "--json")
        run_id = failed.document["error"]["details"]["run_id"]
        again = cli.ok("runs", "retry", run_id, "--wait")
        assert again["output"] == 5
        assert cli.ok("runs", "show", again["id"])["run"]["forked_from"] == run_id
        refused = cli("runs", "retry", again["id"], "--json")
        assert refused.exit_code == 10
        assert refused.document["error"]["code"] == "run_not_failed"


def test_a_run_is_forked_from_a_step_with_another_input(cli: Cli) -> None:
    with cli.worker("jobs:greet"):
        run_id = cli.ok("runs", "start", "greet", '{"name": "ada"}', "--wait")["id"]
        words = ("runs", "fork", run_id, "--from-step", "greet", "--wait")
        assert cli.ok(*words)["output"] == {"hello": "ada"}
        other = cli.ok(*words, "--input", '{"name": "bob"}')
        assert other["output"] == {"hello": "bob"}
        unknown = cli("runs", "fork", run_id, "--from-step", "nowhere", "--json")
        assert unknown.exit_code == 10
        assert unknown.document["error"]["code"] == "step_not_found"

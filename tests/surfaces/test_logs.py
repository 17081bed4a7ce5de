"""Logs: lines for people or for machines, with the run and the step, and without secrets."""

from __future__ import annotations

import io
import json
import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwell import NonRetryable, RunFailed, Stepwell, function, workflow
from stepwell.app import new_key
from stepwell.app.logs import JsonLines, Lines
from stepwell.errors import InvalidInput
from stepwell.settings import Settings
from tests.conftest import World
from tests.operations.support import definition, node
from tests.surfaces.support import Cli, until

SECRET = "correct-horse-battery"
log = logging.getLogger("app.jobs")


class Written:
    """What was logged, line by line."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.setFormatter(formatter)

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    def said(self, message: str) -> dict[str, Any]:
        """The one line whose message begins so."""
        (found,) = [line for line in self.lines if line["message"].startswith(message)]
        return found


@pytest.fixture(params=[JsonLines])
def written(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    """All that is logged, in the form asked for."""
    found = Written(request.param())
    root = logging.getLogger()
    monkeypatch.setattr(root, "level", logging.INFO)
    root.addHandler(found.handler)
    yield found
    root.removeHandler(found.handler)


@workflow
async def chatty(ctx: Any, input: Any) -> None:
    log.info("in the workflow")
    await ctx.step("speak", speak, input)
    await ctx.step("shout", shout)


def speak(what: str) -> None:
    log.info("in a step: %s", what)


async def shout() -> None:
    try:
        raise ValueError("too loud")
    except ValueError:
        log.exception("in an error \ud800")
    raise NonRetryable("hoarse")


async def failed(sw: Stepwell, definition: str, input: Any) -> str:
    run = await sw.start(definition, input, idempotency_key="k")
    with pytest.raises(RunFailed):
        await run.result()
    return run.id


async def test_a_line_says_which_run_and_step_it_came_from(world: World, written: Written) -> None:
    log.info("before")
    async with world([chatty]) as sw, sw.worker(lease="1h"):
        run_id = await failed(sw, "chatty", "x")
    log.info("after")
    for outside in ("before", "after"):
        assert written.said(outside).keys() == {"time", "level", "logger", "message"}
    around, inside, wrong = map(written.said, ("in the workflow", "in a step: x", "in an error"))
    assert (around["run_id"], around.get("step")) == (run_id, None)
    assert (around["level"], around["logger"]) == ("info", "app.jobs")
    assert (inside["run_id"], inside["step"], inside["attempt"]) == (run_id, "speak", 1)
    assert "ValueError: too loud" in wrong["exception"]
    assert wrong["level"] == "error"
    own = written.said(f"Run {run_id}: attempt 1 of step 'shout' failed")
    assert (own["run_id"], own["step"], own["logger"]) == (run_id, "shout", "stepwell.step")


@function
def leak(secret: str) -> None:
    log.info("the secret is %s", secret)
    try:
        raise ValueError(secret)
    except ValueError:
        log.exception("it got out")


@pytest.mark.parametrize("written", [JsonLines, Lines], indirect=True)
async def test_secrets_are_masked_whoever_logs_them(world: World, written: Written) -> None:
    leaks = definition(node("leak", "python", function="leak", args={"secret": "{{secrets.key}}"}))
    settings = Settings(secret_key=new_key())
    async with world(functions=[leak], settings=settings) as sw, sw.worker(lease="1h"):
        await sw.secrets.set("key", SECRET)
        await (await sw.start_document(leaks)).result()
    assert "the secret is •••" in written.text
    assert "ValueError: •••" in written.text
    assert SECRET not in written.text


def test_a_worker_logs_json_if_that_is_wanted(lite: Cli) -> None:
    lite.environ["STEPWELL_LOG_FORMAT"] = "json"
    with lite.worker("jobs:stumble") as worker:
        started = lite.ok("runs", "start", "stumble", "--input", '{"times": 1}', "--wait")
        worker.process.terminate()
        _, said = worker.process.communicate(timeout=60)
    lines = [json.loads(line) for line in said.splitlines()]
    (about,) = [line for line in lines if line.get("step") == "flaky"]
    assert about["run_id"] == started["id"]
    assert "try again" in about["message"]


TALKATIVE = """
import sys, threading, warnings
from stepwell import workflow

class Broken:
    def __del__(self):
        raise ValueError("let go of")

def shout():
    raise ValueError("in a thread")

def talk():
    warnings.warn("mind the gap")
    Broken()
    for target, name in ((shout, "shouter"), (sys.exit, "leaver")):
        thread = threading.Thread(target=target, name=name)
        thread.start()
        thread.join()

@workflow(name="talk")
async def talking(ctx, input):
    return await ctx.step("talk", talk)
"""


@pytest.mark.parametrize("command", ["serve", "worker"])
@pytest.mark.parametrize("signals", [1, 2])
def test_every_line_is_json_if_that_is_wanted(lite: Cli, command: str, signals: int) -> None:
    (lite.folder / "talkative.py").write_text(TALKATIVE, "utf-8")
    lite.environ |= {"STEPWELL_LOG_FORMAT": "json", "PYTHONWARNINGS": "default"}
    port = ("--port", "0") if command == "serve" else ()
    with lite.started(command, "talkative", "jobs:hold_on", *port, "--json") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        lite.ok("runs", "start", "talk", "--wait", "--store", lite.store)
        if signals > 1:
            door = lite.folder / "door"
            hold = json.dumps({"door": str(door)})
            lite.ok("runs", "start", "hold", "--input", hold, "--store", lite.store)
            until(Path(f"{door}.entered").exists)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(json.loads(line))
            if signals > 1 and said[-1]["message"].startswith("Stopping"):
                process.send_signal(signal.SIGINT)
        process.wait(60)
    messages = [each["message"] for each in said]
    for wanted in ("Stopping;", "A thread has failed: shouter", "Exception ignored in"):
        assert [each for each in messages if each.startswith(wanted)], (wanted, messages)
    assert any("mind the gap" in each for each in messages)
    assert not any("leaver" in each for each in messages)


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_what_ends_a_command_is_logged_as_json_too(lite: Cli, command: str) -> None:
    (lite.folder / "broken.py").write_text("raise KeyError('x')", "utf-8")
    lite.environ["STEPWELL_LOG_FORMAT"] = "json"
    for words in (("broken",), ("--store", f"sqlite:///{lite.folder}/broken.py/x.db")):
        done = lite.process(command, *words)
        assert done.exit_code != 0
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        assert lines[-1]["message"].startswith("Error (")


def test_the_format_is_text_or_json() -> None:
    assert Settings.read({}).log_format == "text"
    assert Settings.read({"STEPWELL_LOG_FORMAT": "json"}).log_format == "json"
    with pytest.raises(InvalidInput, match="STEPWELL_LOG_FORMAT must be text or json"):
        Settings.read({"STEPWELL_LOG_FORMAT": "xml"})

"""The command line as a user has it, in a folder of the test's own."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from stepwell.cli import main

PATIENCE_SECONDS = 60

JOBS = """
    import asyncio, os, time
    from pathlib import Path
    from stepwell import Retry, workflow

    CALLS = []

    def flaky(times):
        CALLS.append(1)
        if len(CALLS) <= times:
            raise ConnectionError("try again")
        return len(CALLS)

    def hold(door):
        Path(door + ".entered").open("a").write("x")
        while not Path(door).exists():
            time.sleep(0.01)
        return os.getpid()

    @workflow(name="greet", max_concurrent_runs=50)
    async def greet(ctx, input):
        return await ctx.step("greet", lambda: {"hello": (input or {}).get("name", "you")})

    @workflow(name="greet", version=2)
    async def greet_2(ctx, input):
        return "version 2"

    @workflow(name="stumble")
    async def stumble(ctx, input):
        return await ctx.step("flaky", flaky, input["times"], retry=Retry(attempts=3, base="1ms"))

    @workflow(name="nap")
    async def nap(ctx, input):
        await ctx.sleep("nap", input["for"])
        return "rested"

    @workflow(name="ask")
    async def ask(ctx, input):
        return await ctx.wait_for_event("answer")

    @workflow(name="hold")
    async def hold_on(ctx, input):
        return await ctx.step("hold", hold, input["door"])

    SOME = [nap, ask]
    NONE = []
"""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.stdout)


class Cli:
    """`stepwell …` on one store, in a folder with a module `jobs`."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.store = store
        self._command = [sys.executable, "-m", "stepwell.cli"]
        # What names the store, or a server in its place.
        self.named: dict[str, str | None] = {"STEPWELL_STORE": store}
        self.environ = {**os.environ, "STEPWELL_STORE": store, "PYTHONWARNINGS": "error"}
        (folder / "jobs.py").write_text(textwrap.dedent(JOBS), "utf-8")

    def __call__(self, *words: str, stdin: str | None = None) -> Done:
        """A command in this process: for most, another one adds nothing but time."""
        result = CliRunner(env=self.named).invoke(main, words, input=stdin)
        return Done(result.exit_code, result.stdout, result.stderr)

    def process(self, *words: str, stdin: str = "") -> Done:
        """A command in a process of its own."""
        return self._run([*self._command, *words], stdin)

    def shell(self, line: str) -> Done:
        """A command with its arguments and redirections, as typed."""
        return self._run(self._typed(line), "")

    def _typed(self, line: str) -> list[str]:
        return ["sh", "-c", f"{shlex.join(self._command)} {line}"]

    def _run(self, command: list[str], stdin: str) -> Done:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environ, input=stdin,
            capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def ok(self, *words: str, stdin: str | None = None) -> Any:
        """The document of a command that succeeds."""
        done = self(*words, "--json", stdin=stdin)
        assert done.exit_code == 0, done.stdout + done.stderr
        return done.document

    def until(self, condition: Callable[[Any], Any], *words: str) -> Any:
        """The document of a command, once it is as wished."""
        return until(lambda: condition(found := self.ok(*words)) and found)

    def status(self, run_id: str, store: str | None = None) -> str:
        options = () if store is None else ("--store", store)
        status: str = self.ok("runs", "show", run_id, *options)["run"]["status"]
        return status

    def started(self, *words: str, typed: str = "") -> subprocess.Popen[str]:
        """A command in a process of its own that goes on meanwhile."""
        return subprocess.Popen(
            self._typed(typed) if typed else [*self._command, *words],
            cwd=self.folder, env=self.environ,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=_as_from_a_terminal,
        )  # fmt: skip

    @contextmanager
    def worker(self, *words: str) -> Iterator[Worker]:
        """A worker process that has said it is ready; stopped at the end."""
        with self.started("worker", *words, "--json") as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line, process.communicate()[1]
                yield Worker(process, json.loads(line))
            finally:
                if process.poll() is None:
                    process.terminate()
                process.communicate(timeout=PATIENCE_SECONDS)


class Worker:
    """A worker process at work."""

    def __init__(self, process: subprocess.Popen[str], ready: Any) -> None:
        self.process = process
        self.ready = ready
        self.pids: list[int] = [worker["pid"] for worker in ready["workers"]]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)


def _as_from_a_terminal() -> None:
    """What runs in the background may be told to ignore Ctrl-C, and hands that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def until(condition: Callable[[], Any]) -> Any:
    """What the condition gives, once it holds."""
    latest = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < latest, "waited in vain"
        time.sleep(0.02)
    return found


def gone(pid: int) -> bool:
    """Whether no process has this id, or only the remains of one."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"

"""Code that means harm: it is stopped in time, nothing is left of it, and the next call works."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import CodeFailed
from stepwell.nodes.languages.javascript import run_javascript
from stepwell.nodes.languages.limits import Limits
from stepwell.nodes.languages.python import run_python

Run = Callable[[str, Any, Limits], Coroutine[Any, Any, Any]]
RUNS: dict[str, Run] = {"python": run_python, "javascript": run_javascript}
SHORT = Limits(seconds=0.2)
LONG = Limits(seconds=30)
ENDLESS = {"python": "while True: pass", "javascript": "while (true);"}


async def refused(language: str, text: str, limits: Limits) -> CodeFailed:
    """What is said of code that fails, after which code that does not must work."""
    before = children()
    with pytest.raises(CodeFailed) as caught:
        await RUNS[language](text, {}, limits)
    assert children() <= before
    assert await RUNS[language]("input", [1], limits=LONG) == [1]
    return caught.value


def children() -> set[str]:
    """The ids of all child processes; each belongs to the thread that started it."""
    found: set[str] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            found |= set(path.read_text().split())
        except OSError:  # a thread that has ended meanwhile
            continue
    return found


def is_running(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("language", "text"),
    [
        *ENDLESS.items(),
        ("python", "def main(input):\n    while True: pass"),
        ("python", "try:\n    while True: pass\nexcept BaseException:\n    pass\n1"),
        ("python", "while True: print('x' * 1000)"),
        ("javascript", "export default async () => { await 1; while (true); }"),
        ("javascript", "try { while (true); } catch { 1 }"),
        ("javascript", "/(a+)+$/.test('a'.repeat(50) + 'b')"),
        ("javascript", "Array(1e8).join('ab')"),
        ("javascript", "const f = () => { Promise.resolve().then(f); }; f(); new Promise(f)"),
        ("javascript", "({toJSON() { while (true); }})"),
        ("javascript", "throw {toString() { while (true); }}"),
    ],
)
async def test_code_is_stopped_when_its_time_is_up(language: str, text: str) -> None:
    error = await refused(language, text, SHORT)
    assert str(error).startswith("The code ran longer than 0.2 s")
    assert error.details["limit"] == "time"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "'x' * 10**9"),
        ("python", "x = []\nwhile True: x.append('abc' * 100)"),
        ("python", "10 ** 10 ** 10"),
        ("python", "[0] * 3_000_000"),
        ("javascript", "'x'.repeat(1e8)"),
        ("javascript", "const a = []; while (true) a.push('x'.repeat(1000))"),
        ("javascript", "let o = null; while (true) o = {o}"),
        ("javascript", "new ArrayBuffer(1e9)"),
    ],
)
async def test_code_is_stopped_when_it_needs_too_much_memory(language: str, text: str) -> None:
    error = await refused(language, text, LONG)
    assert str(error).startswith("The code needed more than 64 MB of memory")
    assert error.details["limit"] == "memory"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "'x' * 2_000_000"),
        ("python", "'é' * 600_000"),
        ("javascript", "'x'.repeat(2_000_000)"),
        ("javascript", "export default () => 'é'.repeat(600_000)"),
    ],
)
async def test_a_large_output_is_refused(language: str, text: str) -> None:
    error = await refused(language, text, LONG)
    assert "bytes of JSON, more than 1,048,576" in str(error)


@pytest.mark.parametrize(
    ("language", "text", "message"),
    [
        ("python", "def f(): return f()\nf()", "RecursionError"),
        ("python", "a = []\nfor i in range(100_000): a = [a]\na", "The output of the code cannot"),
        ("python", "[" * 100_000, "SyntaxError"),
        ("python", "import re\nre.match(r'(a*)*\\1$', 'a' * 50 + 'b')", "re.PatternError"),
        ("javascript", "const f = () => f() + 1; f()", "RangeError: Maximum call stack size"),
        ("javascript", "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; a", "RangeError"),
        ("javascript", "[" * 100_000, "RangeError"),
    ],
)
async def test_code_that_goes_too_deep_fails(language: str, text: str, message: str) -> None:
    assert str(await refused(language, text, LONG)).startswith(message)


@pytest.mark.parametrize(
    ("language", "text", "message"),
    [
        ("python", "open('/etc/passwd').read()", "PermissionError"),
        ("python", "import pathlib\npathlib.Path('/etc/passwd').read_text()", "PermissionError"),
        ("python", "import os\nos.environ['PATH']", "RuntimeError: 'os.environ'"),
        ("python", "import socket", "ModuleNotFoundError: No module named 'socket'"),
        ("python", "__import__('os')", "NameError"),
        ("python", "().__class__.__bases__[0].__subclasses__()", "AttributeError"),
        ("javascript", "require('fs')", "ReferenceError: require"),
        ("javascript", "process.env", "ReferenceError: process"),
        ("javascript", "fetch('http://localhost')", "ReferenceError: fetch"),
        ("javascript", "import fs from 'fs'; export default 1", "ReferenceError: could not load"),
        ("javascript", "import('/etc/passwd')", "ReferenceError: could not load"),
    ],
)
async def test_files_network_and_environment_are_out_of_reach(
    language: str, text: str, message: str
) -> None:
    assert str(await refused(language, text, LONG)).startswith(message)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("Promise.prototype.then = null; 5", 5),
        ("globalThis.JSON = null; Array.prototype[Symbol.iterator] = null; ({a: 1})", {"a": 1}),
        ("Object.defineProperty(Object.prototype, 'state', {get: () => 'done'}); [1]", [1]),
        ("input.__proto__.polluted = 1; ({}).polluted", 1),
        ("Object.prototype.then = (resolve) => resolve(66); ({})", 66),
    ],
)
async def test_javascript_can_deceive_nobody_but_itself(text: str, output: Any) -> None:
    assert await run_javascript(text, {}, LONG) == output
    assert await run_javascript("({}).polluted ?? input", [1], LONG) == [1]


@pytest.mark.parametrize("language", ENDLESS)
async def test_cancelled_code_leaves_nothing_running(language: str) -> None:
    before = children()
    task = asyncio.create_task(RUNS[language](ENDLESS[language], {}, LONG))
    while children() <= before:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() <= before


@pytest.mark.parametrize("language", ENDLESS)
async def test_code_can_be_cancelled_before_it_has_begun(language: str) -> None:
    before = children()
    for turns in range(5):
        task = asyncio.create_task(RUNS[language](ENDLESS[language], {}, LONG))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert children() <= before


ENDS_AT_ONCE = """
import asyncio
from stepwell.nodes.languages.javascript import run_javascript
from stepwell.nodes.languages.limits import Limits
from stepwell.nodes.languages.python import run_python

async def main():
    asyncio.create_task(run_python("while True: pass", {}, Limits()))
    asyncio.create_task(run_javascript("while (true);", {}, Limits()))
    print(await run_python("1", {}, Limits()) + await run_javascript("1", {}, Limits()))

asyncio.run(main())
"""


def test_a_process_can_end_while_code_is_running(python: str) -> None:
    ended = subprocess.run(
        [python, "-W", "error", "-c", ENDS_AT_ONCE], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2\n", "")


DIES = """
import asyncio, os, signal
from stepwell.nodes.languages.javascript import run_javascript
from stepwell.nodes.languages.limits import Limits
from tests.nodes.test_code_limits import children

async def main():
    running = asyncio.create_task(run_javascript("while (true);", {}, Limits()))
    while not children():
        await asyncio.sleep(0)
    # Later calls are answered only when the first child has long been given its code.
    print(*children(), await run_javascript("1", {}, Limits()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_a_child_ends_when_its_worker_is_killed(python: str) -> None:
    died = subprocess.run([python, "-c", DIES], capture_output=True, text=True, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    child = died.stdout.split()[0]
    while is_running(child):
        pass


async def test_calls_do_not_wait_for_each_other() -> None:
    for run in RUNS.values():
        calls = [run("input", number, LONG) for number in range(10)]
        assert await asyncio.gather(*calls) == list(range(10))

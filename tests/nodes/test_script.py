"""The script node: what scripts can do, and one by one what hostile ones cannot."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import CommandFailed, ConfigInvalid, SandboxUnavailable, StepTimedOut
from stepwell.nodes import sandbox, seccomp
from stepwell.nodes.script import script
from tests.nodes.support import Host, executed


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder that everybody may read; pytest closes its own to others."""
    folder = tmp_path / "repository"
    (folder / ".stepwell").mkdir(parents=True)
    (folder / ".stepwell" / "stepwell.db").write_text("the engine's state")
    (folder / "data.txt").write_text("data")
    folder.chmod(0o755)
    return folder


@pytest.fixture
def ran(repository: Path) -> Callable[..., Any]:
    async def run(text: str, **config: Any) -> Any:
        host = Host(folder=str(repository))
        async with asyncio.timeout(60):
            return await executed(script, {"script": text, **config}, host=host)

    return run


@pytest.fixture
def python(ran: Callable[..., Any]) -> Callable[..., Any]:
    async def run(text: str, **config: Any) -> Any:
        return await ran(text, interpreter="python3", **config)

    return run


Ran = Callable[..., Any]


async def test_a_script_returns_what_it_wrote(ran: Ran) -> None:
    assert await ran("echo out; echo err >&2") == {
        "exit_code": 0, "stdout": "out\n", "stderr": "err\n", "truncated": False,
    }  # fmt: skip


@pytest.mark.parametrize("interpreter", ["bash", "sh"])
async def test_a_script_is_read_by_the_interpreter_it_names(ran: Ran, interpreter: str) -> None:
    output = await ran("cat /proc/$$/comm", interpreter=interpreter)
    assert output["stdout"] == f"{interpreter}\n"


async def test_a_python_script_finds_its_input_as_json(python: Ran) -> None:
    text = "import json, sys\nprint(json.load(sys.stdin)['items'][1])"
    assert (await python(text, input={"items": [1, "zwölf"]}))["stdout"] == "zwölf\n"


async def test_references_in_a_script_are_left_alone(ran: Ran) -> None:
    assert "script" in script.verbatim
    assert (await ran("echo '{{input.x}}'"))["stdout"] == "{{input.x}}\n"


async def test_a_failing_script_fails_the_node_with_code_and_output(ran: Ran) -> None:
    with pytest.raises(CommandFailed, match="exit code 3: no such thing"):
        await ran("echo no such thing >&2; exit 3")
    assert (await ran("exit 3", check=False))["exit_code"] == 3


async def test_a_script_that_takes_too_long_is_stopped(ran: Ran) -> None:
    with pytest.raises(StepTimedOut, match="300 ms"):
        await ran("sleep 1000", timeout_ms=300)


async def test_a_script_can_be_larger_than_an_argument(ran: Ran) -> None:
    assert (await ran(f"echo {'x' * 200_000} | wc -c"))["stdout"].strip() == "200001"


async def test_a_script_can_write_to_its_folder_and_read_the_repository(ran: Ran) -> None:
    output = await ran("pwd; echo x > file; cat file /repo/data.txt")
    assert output["stdout"] == "/tmp\nx\ndata"


async def test_the_repository_can_be_left_out(ran: Ran) -> None:
    assert (await ran("ls /repo", repo=False, check=False))["stdout"] == ""


async def test_nothing_stays_from_one_script_to_the_next(ran: Ran) -> None:
    await ran("touch /tmp/x /dev/shm/x")
    assert (await ran("ls /tmp /dev/shm"))["stdout"] == "/dev/shm:\n\n/tmp:\n"


async def test_the_environment_is_cleared(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWELL_STORE", "postgres://secret")
    monkeypatch.setenv("LANG", "secret")
    output = await ran("env; cat /proc/*/environ", env={"GIVEN": "x"}, check=False)
    assert "secret" not in output["stdout"]
    assert "GIVEN=x" in output["stdout"]


async def test_variables_arrive_as_they_are_and_not_in_any_command_line(ran: Ran) -> None:
    value = "it's $(id) `id`\n\"\\ ü"
    assert (await ran('printf %s "$GIVEN"', env={"GIVEN": value}))["stdout"] == value
    assert "it's" not in (await ran("cat /proc/1/cmdline", env={"GIVEN": value}))["stdout"]


async def test_variables_reach_the_script_alone(ran: Ran) -> None:
    # Else each program on the way into the sandbox would write what it loads.
    output = await ran("true", env={"LD_DEBUG": "libs"})
    assert "bash" in output["stderr"]
    assert "bwrap" not in output["stderr"]
    assert "setpriv" not in output["stderr"]


async def test_no_file_of_the_worker_is_open_in_a_script(ran: Ran) -> None:
    assert (await ran("echo /proc/self/fd/*"))["stdout"].split()[:3] == [
        "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2",
    ]  # fmt: skip
    assert "memfd" not in (await ran("ls -l /proc/self/fd"))["stdout"]


async def test_the_state_of_the_engine_is_not_there(ran: Ran, repository: Path) -> None:
    assert (await ran("ls -A /repo /repo/.stepwell"))["stdout"].endswith("/repo/.stepwell:\n")
    (repository / ".stepwell").rename(repository / "state")
    (repository / ".stepwell").symlink_to("state")
    assert (await ran("ls -A /repo/state /repo/.stepwell/"))["stdout"].split() == [
        "/repo/.stepwell/:", "/repo/state:",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "place", ["/repo/x", "/repo/.stepwell/x", "/x", "/usr/x", "/etc/x", "/dev/x", "/proc/x"]
)
async def test_a_script_cannot_write_outside_its_folder(ran: Ran, place: str) -> None:
    with pytest.raises(CommandFailed, match="exit code 1"):
        await ran(f"echo x > {place}")


@pytest.mark.parametrize(
    "place", ["/etc/shadow", "/etc/passwd", "/root", "/home", "/var", "/run", "/sys", "{tests}"]
)
async def test_a_script_cannot_see_the_rest_of_the_machine(ran: Ran, place: str) -> None:
    place = place.format(tests=Path(__file__))
    with pytest.raises(CommandFailed, match="No such file"):
        await ran(f"ls {place}")


async def test_a_script_cannot_see_other_processes(ran: Ran) -> None:
    listed = (await ran("cd /proc; echo [0-9]*"))["stdout"].split()
    assert len(listed) < 6
    with pytest.raises(CommandFailed):
        await ran(f"kill -0 {os.getpid()}")


async def test_a_script_has_no_privileges(ran: Ran) -> None:
    output = await ran("id -u; grep -E '^(CapPrm|CapEff|CapAmb|NoNewPrivs)' /proc/self/status")
    user, *rest = output["stdout"].split()
    assert int(user) > 0
    assert rest[1::2] == ["0" * 16] * 3 + ["1"]


async def test_a_script_cannot_get_namespaces_of_its_own(ran: Ran) -> None:
    for command in ("unshare -Ur true", "unshare -m true", "mount -t tmpfs x /tmp"):
        with pytest.raises(CommandFailed, match=r"ermitted|ermission|superuser"):
            await ran(command)


async def test_a_script_cannot_reach_the_network(python: Ran) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"import socket\nsocket.create_connection({server.getsockname()!r}, 5)"
        with pytest.raises(CommandFailed, match="refused"):
            await python(connect)
        await python(connect, network=True)


@pytest.mark.parametrize(
    "call",
    [
        "import socket; socket.socket(socket.AF_VSOCK)",
        "import os; os.memfd_create('x')",
        "import ctypes, os; assert ctypes.CDLL(None, use_errno=True).shmget(1, 4096, 0o1600) >= 0, "
        "os.strerror(ctypes.get_errno())",
    ],
)
async def test_calls_that_get_around_the_limits_are_refused(python: Ran, call: str) -> None:
    with pytest.raises(CommandFailed, match="not permitted"):
        await python(call)


async def test_a_script_that_fills_memory_fails(python: Ran) -> None:
    with pytest.raises(CommandFailed, match="MemoryError"):
        await python("x = bytearray(100 << 20)", memory_mb=64)


async def test_processes_that_fill_memory_together_are_stopped(python: Ran) -> None:
    text = "import os, time\nfor _ in range(3): os.fork()\nx = b'x' * (40 << 20)\ntime.sleep(1000)"
    with pytest.raises(CommandFailed, match="more than 64 MB"):
        await python(text, memory_mb=64)


async def test_shared_memory_counts_as_well(python: Ran) -> None:
    text = "import mmap, time\nx = mmap.mmap(-1, 200 << 20)\nx.write(b'x' * (20 << 20))\n"
    text += "for _ in range(9): x.write(x[:20 << 20])\ntime.sleep(1000)"
    with pytest.raises(CommandFailed, match="more than 64 MB"):
        await python(text, memory_mb=64)


async def test_a_script_that_fills_the_disk_fails(ran: Ran) -> None:
    output = await ran(
        "for i in 1 2 3; do head -c 12M /dev/zero > $i; done; echo x > 4", memory_mb=16, check=False
    )
    assert output["exit_code"] == 1
    assert "No space left" in output["stderr"]
    with pytest.raises(CommandFailed, match="No space left"):
        await ran("head -c 2M /dev/zero > /dev/shm/x")


async def test_a_fork_bomb_ends_with_its_script(ran: Ran) -> None:
    with pytest.raises(StepTimedOut):
        await ran("b() { b | b & }; b; sleep 1000", timeout_ms=500)
    assert (await ran("echo fine"))["stdout"] == "fine\n"


async def test_a_script_cannot_start_processes_without_end(python: Ran) -> None:
    text = "import os, signal\nfor number in range(1000):\n"
    text += "    try:\n        os.fork() or signal.pause()\n"
    text += "    except BlockingIOError:\n        break\nprint(number)"
    assert 50 < int((await python(text))["stdout"]) <= 128


async def test_what_a_script_leaves_running_does_not_hold_it_up(ran: Ran) -> None:
    assert (await ran("setsid sleep 1000 & sleep 1000 & echo done"))["stdout"] == "done\n"


def named(text: str) -> list[Path]:
    """The processes of this machine whose arguments hold a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in path.read_text(errors="replace"):
                found.append(path)
        except OSError:
            continue
    return found


async def test_a_cancelled_script_dies_with_all_that_it_started(ran: Ran, tmp_path: Path) -> None:
    name = f"{tmp_path.name}-cancelled"
    task = asyncio.create_task(ran(f"setsid bash -c 'exec -a {name} sleep 1000' & wait"))
    async with asyncio.timeout(20):
        while not named(f"{name}\0"):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert named(name) == []


WORKER = """
import asyncio, sys
from stepwell.nodes.script import script
from tests.nodes.support import executed
asyncio.run(executed(script, {"script": sys.argv[1], "repo": False}))
"""


async def test_a_script_dies_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    name = f"{tmp_path.name}-orphaned"
    text = f"setsid bash -c 'exec -a {name} sleep 1000' & wait"
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    worker = subprocess.Popen([sys.executable, "-c", WORKER, text], env=os.environ | path)
    async with asyncio.timeout(20):
        while not named(f"{name}\0"):
            await asyncio.sleep(0)
        worker.kill()
        worker.wait()
        while named(f"{name}\0"):
            await asyncio.sleep(0)


@pytest.mark.parametrize("missing", ["bwrap", "prlimit", "setpriv"])
async def test_without_its_tools_a_script_is_refused(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    find = sandbox.find
    monkeypatch.setattr(sandbox, "find", lambda name: None if name == missing else find(name))
    with pytest.raises(SandboxUnavailable, match="apt-get install bubblewrap"):
        await ran("touch /tmp/executed", check=False)


async def test_a_sandbox_that_does_not_work_is_not_a_failed_script(
    ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_system", lambda folder: ("--ro-bind", "/nowhere", folder))
    with pytest.raises(SandboxUnavailable, match="bwrap: "):
        await ran("true", check=False)


async def test_a_machine_without_a_filter_is_refused(
    ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seccomp, "_MACHINES", {})
    with pytest.raises(SandboxUnavailable, match="x86_64 and aarch64"):
        await ran("true")


@pytest.mark.parametrize(
    "config", [{"memory_mb": 15}, {"memory_mb": 4097}, {"timeout_ms": 300_001}, {"env": {"=": ""}}]
)
async def test_limits_beyond_what_is_allowed_are_refused(ran: Ran, config: Any) -> None:
    with pytest.raises(ConfigInvalid):
        await ran("true", **config)


def test_the_config_can_be_written_as_a_schema() -> None:
    assert json.dumps(script.schema())
    assert (script.timeout, script.max_timeout) == (30, 300)
    assert script.aliases == ("action_script",)


@pytest.mark.parametrize("folder", ["data", ".stepwell"])
async def test_files_of_the_engine_cannot_be_read_wherever_they_are(
    tmp_path: Path, folder: str
) -> None:
    store = tmp_path / folder / "own.db"
    store.parent.mkdir()
    store.write_text("the engine's state")
    (tmp_path / "other").write_text("of the repository")
    for place in (tmp_path, store.parent):
        place.chmod(0o755)
    host = Host(folder=str(tmp_path), hidden=[str(store), str(tmp_path / "not there")])
    text = f"cat /repo/{folder}/own.db; cat /repo/other"
    found = await executed(script, {"script": text}, host=host)
    assert found["stdout"] == "of the repository"

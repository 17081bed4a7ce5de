"""The shell node: what commands see, what becomes of their output, and that nothing stays."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import CommandFailed, ConfigInvalid
from stepwell.node import Inserted
from stepwell.nodes import shell as shell_module
from stepwell.nodes.shell import shell
from stepwell.settings import Settings
from tests.nodes.support import Host, executed


async def ran(command: str, **config: Any) -> Any:
    return await executed(shell, {"command": command, **config})


def alive(pid: int) -> bool:
    """Whether a process is still there, other than as a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def gone(pid: int) -> None:
    async with asyncio.timeout(10):
        while alive(pid):
            await asyncio.sleep(0)


async def written(path: Path) -> str:
    async with asyncio.timeout(10):
        while not path.exists():
            await asyncio.sleep(0)
    return path.read_text()


async def test_a_command_returns_what_it_wrote() -> None:
    assert await ran("echo out; echo err >&2") == {
        "exit_code": 0, "stdout": "out\n", "stderr": "err\n", "truncated": False,
    }  # fmt: skip


async def test_a_failing_command_fails_the_node_with_code_and_output() -> None:
    with pytest.raises(CommandFailed, match="exit code 3: no such thing") as caught:
        await ran("echo no such thing >&2; exit 3")
    assert caught.value.details["exit_code"] == 3


async def test_a_command_killed_by_a_signal_says_which() -> None:
    with pytest.raises(CommandFailed, match="killed by SIGTERM"):
        await ran("kill $$")


async def test_an_exit_code_can_be_an_output() -> None:
    assert (await ran("exit 3", check=False))["exit_code"] == 3


async def test_a_message_has_the_end_of_a_long_output() -> None:
    with pytest.raises(CommandFailed, match="the reason") as caught:
        await ran("seq 100000 >&2; echo the reason >&2; exit 1")
    assert len(str(caught.value)) < 3000


async def test_a_command_is_executed_in_the_folder_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    host = Host(folder=str(tmp_path))
    at = await executed(shell, {"command": "pwd"}, host=host)
    below = await executed(shell, {"command": "pwd", "cwd": "sub"}, host=host)
    assert at["stdout"] == f"{tmp_path}\n"
    assert below["stdout"] == f"{tmp_path}/sub\n"


async def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigInvalid, match="nowhere"):
        await ran("true", cwd="nowhere")


async def test_a_command_can_read_its_input() -> None:
    text = "größer " * 50_000
    assert (await ran("wc -m", stdin=text))["stdout"].strip() == str(len(text))


async def test_a_command_need_not_read_its_input() -> None:
    assert (await ran("echo done", stdin="x" * 1_000_000))["stdout"] == "done\n"


async def test_without_an_input_there_is_nothing_to_read() -> None:
    assert (await ran("cat"))["stdout"] == ""


async def test_a_command_sees_little_of_the_environment() -> None:
    secrets = {"STEPWELL_STORE": "sqlite:///secret", "AWS_SECRET_ACCESS_KEY": "secret"}
    told = {"TZ": "UTC", "LC_TIME": "C", "SSL_CERT_FILE": "/certificates", "TERM": "dumb"}
    host = Host(environment=Settings.read({**told, **secrets}).environment)
    config = {"command": "env -0", "env": {"GIVEN": "a\nb"}}
    output = await executed(shell, config, host=host)
    seen = dict(pair.split("=", 1) for pair in output["stdout"].split("\0") if pair)
    assert "secret" not in output["stdout"]
    assert seen.items() >= {**told, "GIVEN": "a\nb", "PATH": os.defpath}.items()


async def test_text_from_a_reference_is_not_executed(tmp_path: Path) -> None:
    hostile = f"$(touch {tmp_path}/a) ; touch {tmp_path}/b `touch {tmp_path}/c` ' \" "
    parts = ['echo "', Inserted(hostile), "\" '", Inserted(hostile), "'"]
    output = await executed(shell, {}, in_parts={"command": parts})
    assert output["stdout"] == f"{hostile} {hostile}\n"
    assert list(tmp_path.iterdir()) == []


async def test_a_command_that_is_a_reference_as_a_whole_is_executed() -> None:
    assert (await executed(shell, {}, in_parts={"command": ["echo $((1+1))"]}))["stdout"] == "2\n"


async def test_too_large_an_argument_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigInvalid, match="100,000 bytes; hand large texts over"):
        await executed(shell, {}, in_parts={"command": ["echo ", Inserted("x" * 100_001)]})
    with pytest.raises(ConfigInvalid, match="at most 100,000 bytes"):
        await ran(":" * 100_001)
    with pytest.raises(ConfigInvalid, match="larger than the system accepts"):
        await ran("true", env={f"V{number}": "x" * 99_999 for number in range(100)})


@pytest.mark.parametrize("env", [{"": "x"}, {"a=b": "x"}, {"a": "\0"}, {"a": "\ud800"}])
async def test_variables_that_no_process_can_have_are_refused(env: dict[str, str]) -> None:
    with pytest.raises(ConfigInvalid):
        await ran("true", env=env)


async def test_a_machine_without_bash_uses_sh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_module.shutil, "which", lambda name, path: None)
    assert (await ran("echo $0"))["stdout"] == "/bin/sh\n"
    with pytest.raises(ConfigInvalid, match="need bash"):
        await executed(shell, {}, in_parts={"command": ["echo $'a' ", Inserted("b")]})


async def test_a_huge_output_keeps_its_start_and_its_end() -> None:
    output = await ran("echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert output["truncated"]
    assert len(output["stdout"]) <= 65_536
    assert output["stdout"].startswith("first\n")
    assert output["stdout"].endswith("x\nlast\n")
    assert "characters left out" in output["stdout"]


async def test_an_output_of_exactly_the_limit_is_whole() -> None:
    whole = await ran("head -c 65536 /dev/zero | tr '\\0' x")
    assert (whole["stdout"], whole["truncated"]) == ("x" * 65_536, False)
    assert (await ran("head -c 65537 /dev/zero | tr '\\0' x"))["truncated"]


async def test_characters_are_never_cut_and_bytes_that_are_none_are_replaced() -> None:
    output = await ran("printf 'x'; for i in $(seq 40000); do printf 'ä€'; done; printf '\\377'")
    assert set(output["stdout"]) <= set("xä€\n[… 0123456789,characterslfou …]�")
    assert output["stdout"].count("�") == 1


BACKGROUND = {
    "a child": "sleep 1000 & echo $!",
    "a child without output": "sleep 1000 >/dev/null 2>&1 & echo $!",
    "a child of a child": "(sleep 1000 & echo $!)",
    "a session of its own": "setsid sleep 1000 & echo $!",
    "a daemon": "setsid -w bash -c 'sleep 1000 </dev/null >/dev/null 2>&1 & echo $!'",
    "one that ignores signals": "(trap '' TERM HUP INT; sleep 1000; sleep 1000) & echo $!",
    "a cleared environment": "env -i sleep 1000 & echo $!",
    "a session and cleared environment": "env -i setsid sleep 1000 & echo $!",
}


@pytest.mark.parametrize("command", BACKGROUND.values(), ids=BACKGROUND.keys())
async def test_what_a_command_leaves_running_is_killed(command: str) -> None:
    async with asyncio.timeout(20):
        output = await ran(command)
    await gone(int(output["stdout"]))


@pytest.mark.parametrize("command", BACKGROUND.values(), ids=BACKGROUND.keys())
async def test_a_cancelled_command_dies_with_all_that_it_started(
    command: str, tmp_path: Path
) -> None:
    task = asyncio.create_task(
        ran(f"exec > {tmp_path}/out; {command}; mv {tmp_path}/out {tmp_path}/pid; sleep 1000")
    )
    pid = int(await written(tmp_path / "pid"))
    task.cancel()
    async with asyncio.timeout(20):
        with pytest.raises(asyncio.CancelledError):
            await task
    await gone(pid)


async def test_a_command_is_killed_when_its_time_is_up(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await ran(f"setsid sleep 1000 & echo $! > {tmp_path}/pid; wait")
    await gone(int((tmp_path / "pid").read_text()))


async def test_a_command_that_keeps_starting_others_is_stopped_with_all_of_them(
    tmp_path: Path,
) -> None:
    # It ends by itself as well, should a defect let it escape.
    starting = f"while [ $SECONDS -lt 10 ]; do (setsid tail -f {tmp_path}/x &) ; done"
    (tmp_path / "x").touch()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await ran(starting)
    named = [path for path in Path("/proc").glob("[0-9]*/cmdline") if holds(path, str(tmp_path))]
    assert named == []


def holds(path: Path, text: str) -> bool:
    try:
        return text in path.read_text(errors="replace")
    except OSError:
        return False


async def test_cancelling_twice_still_cleans_up(tmp_path: Path) -> None:
    task = asyncio.create_task(
        ran(f"echo $$ > {tmp_path}/out; mv {tmp_path}/out {tmp_path}/pid; sleep 1000")
    )
    pid = int(await written(tmp_path / "pid"))
    async with asyncio.timeout(20):
        for _ in range(5):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not alive(pid)


WORKER = """
import asyncio, sys
from stepwell.nodes.shell import shell
from tests.nodes.support import executed
asyncio.run(executed(shell, {"command": sys.argv[1]}))
"""


async def test_a_command_dies_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    starting = f"sleep 1000 & A=$!; setsid sleep 1000 & echo $$ $A $! > {tmp_path}/out"
    command = f"{starting}; mv {tmp_path}/out {tmp_path}/pids; wait"
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    worker = subprocess.Popen([sys.executable, "-c", WORKER, command], env=os.environ | path)
    pids = [int(pid) for pid in (await written(tmp_path / "pids")).split()]
    worker.kill()
    worker.wait()
    assert len(pids) == 3
    for pid in pids:
        await gone(pid)


def test_the_config_can_be_written_as_a_schema() -> None:
    assert json.dumps(shell.schema())
    assert (shell.timeout, shell.max_timeout) == (120, 600)
    assert shell.aliases == ("bash", "run_command")


@pytest.mark.parametrize(
    ("value", "text"), [(8080, "8080"), (1.5, "1.5"), (True, "true"), ({"a": [1]}, '{"a":[1]}')]
)
async def test_what_a_reference_yields_becomes_text_where_words_are_wanted(
    value: Any, text: str
) -> None:
    found = await ran('echo "$GIVEN"; cat', env={"GIVEN": value}, stdin=value)
    assert found["stdout"] == f"{text}\n{text}"


async def test_nothing_is_no_text() -> None:
    assert (await ran("cat", stdin=None))["stdout"] == ""
    with pytest.raises(ConfigInvalid, match=r"env\.GIVEN: Input should be a valid string"):
        await ran("true", env={"GIVEN": None})

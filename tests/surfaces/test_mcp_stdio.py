"""`stepwell mcp`: a process of its own, on standard input and output."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from stepwell import Stepwell
from tests.engine.support import until
from tests.surfaces.agents import (
    GATED,
    HELLO,
    NEW,
    OLD,
    VERSIONS,
    Person,
    done,
    generations,
    publish,
    tools,
)
from tests.surfaces.support import PATIENCE_SECONDS, Cli


@asynccontextmanager
async def agent(cli: Cli, generation: str, *words: str, **options: Any) -> AsyncIterator[Client]:
    """A client that has started `stepwell mcp`; what that says is in the file `said`."""
    process = StdioServerParameters(
        command=sys.executable, args=["-m", "stepwell.cli", "mcp", *words], env=cli.environ,
        cwd=cli.folder,
    )  # fmt: skip
    with said(cli).open("w", encoding="utf-8") as stderr:
        transport = stdio_client(process, errlog=stderr)
        async with Client(transport, mode=generation, cache=None, **options) as client:
            assert client.protocol_version == VERSIONS[generation]
            yield client


def said(cli: Cli) -> Path:
    return cli.folder / "said"


@generations
async def test_a_process_serves_the_tools_of_its_store(cli: Cli, generation: str) -> None:
    async with Stepwell(cli.store) as sw, sw.worker():
        await publish(sw, HELLO)
        async with agent(cli, generation, "--wait", "60") as client:
            found = await tools(client)
            assert {"run_say_hello", "runs_start"} <= found.keys()
            assert "drafts_save" not in found
            answer = await done(client, "run_say_hello", name="Ada")
            assert answer["output"] == {"hello": "Ada"}
            assert (await sw.get_run(answer["run_id"])).status == "completed"
    assert said(cli).read_text("utf-8") == ""


@generations
async def test_whoever_sits_before_the_client_is_asked(cli: Cli, generation: str) -> None:
    somebody = Person(decision="approve", note="fine")
    async with Stepwell(cli.store) as sw, sw.worker():
        await publish(sw, GATED)
        async with agent(cli, generation, "--wait", "60", elicitation_callback=somebody) as client:
            answer = await done(client, "run_ship", tag="v1")
            assert answer["output"]["note"] == "fine"
    assert len(somebody.asked) == 1


async def test_who_cannot_be_asked_gets_a_link(lite: Cli) -> None:
    async with Stepwell(lite.store) as sw, sw.worker():
        await publish(sw, GATED)
        words = ("--wait", "60", "--url", "https://stepwell.test")
        async with agent(lite, NEW, *words) as client:
            [gate] = (await done(client, "run_ship", tag="v1"))["gates"]
            assert gate["link"] == f"https://stepwell.test/gates/{gate['id']}"


async def test_it_says_that_no_worker_is_alive(lite: Cli) -> None:
    async with Stepwell(lite.store) as sw:
        await publish(sw, HELLO)
        async with agent(lite, NEW, "--wait", "0", "--level", "build") as client:
            assert "drafts_save" in await tools(client)
            answer = await done(client, "run_say_hello", name="Ada")
            assert "worker" in answer["why"]
    assert "No worker is alive" in said(lite).read_text("utf-8")


async def test_a_workspace_is_chosen(lite: Cli) -> None:
    async with Stepwell(lite.store, workspace="other") as sw:
        await publish(sw, HELLO)
        async with agent(lite, NEW, "--workspace", "other") as client:
            assert "run_say_hello" in await tools(client)
        async with agent(lite, NEW) as client:
            assert "run_say_hello" not in await tools(client)


async def test_clients_of_both_generations_hear_of_new_tools(lite: Cli) -> None:
    heard = asyncio.Event()

    async def listen(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            heard.set()

    async with Stepwell(lite.store) as sw:
        async with (
            agent(lite, OLD, message_handler=listen) as old,
            agent(lite, NEW) as new,
            new.listen(tools_list_changed=True) as news,
        ):
            assert old.server_capabilities.tools is not None
            assert old.server_capabilities.tools.list_changed is True
            assert "run_say_hello" not in await tools(old)
            await publish(sw, HELLO)
            await heard.wait()
            assert "run_say_hello" in await tools(old)
            await anext(aiter(news))
            assert "run_say_hello" in await tools(new)


async def test_a_client_that_goes_away_leaves_its_run_alone(lite: Cli) -> None:
    async with Stepwell(lite.store) as sw, sw.worker():
        await publish(sw, GATED)
        async with agent(lite, NEW, "--wait", "60") as client:
            call = asyncio.create_task(client.call_tool("run_ship", {"tag": "v1"}))
            while not (runs := (await sw.list_runs()).items):
                await asyncio.sleep(0.001)
            call.cancel()
        assert (await until(sw, runs[0].id, "waiting")).status == "waiting"


LINES = (
    "no json at all",
    "[" * 100_000,
    '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 7}}',
    '{"jsonrpc": "2.0", "id": 2, "method": "no/such"}',
    "",
)
HANDSHAKE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def started(cli: Cli) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "stepwell.cli", "mcp"], cwd=cli.folder, env=cli.environ,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_lines_that_are_no_requests_stop_nothing_and_only_the_protocol_is_written(
    lite: Cli,
) -> None:
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HANDSHAKE}
    ping = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
    answers: dict[int, Any] = {}
    with started(lite) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n".join([json.dumps(hello), *LINES, json.dumps(ping)]) + "\n")
        process.stdin.flush()
        while not {0, 1, 2, 3} <= answers.keys():
            found = json.loads(process.stdout.readline())
            answers[found.get("id")] = found
        rest, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, rest) == (0, "")
    assert answers[0]["result"]["protocolVersion"] == "2025-06-18"
    assert answers[1]["error"]["code"] == types.INVALID_PARAMS
    assert answers[2]["error"]["code"] == types.METHOD_NOT_FOUND
    assert answers[3]["result"] == {}
    assert "Traceback" not in str(answers)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_told_to_stop_does(lite: Cli, number: signal.Signals) -> None:
    with started(lite) as process:
        assert process.stderr is not None
        assert "No worker is alive" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) in (-signal.SIGTERM, 130)


def test_a_workspace_that_is_not_there_is_refused(lite: Cli) -> None:
    refused = lite("mcp", "--workspace", "nope")
    assert refused.exit_code == 10
    assert "There is no workspace 'nope'" in refused.stderr


@pytest.mark.parametrize("words", [("--level", "own"), ("--wait", "61"), ("--store", "no")])
def test_options_that_cannot_be_are_refused(lite: Cli, words: tuple[str, ...]) -> None:
    refusal = lite("mcp", *words)
    assert refusal.exit_code == 10
    assert refusal.stdout == ""


def test_without_the_package_of_the_protocol_it_says_what_is_missing(lite: Cli) -> None:
    hidden = "import sys; sys.modules['mcp'] = None; from stepwell.cli import main; main(['mcp'])"
    finished = subprocess.run(
        [sys.executable, "-c", hidden], env=lite.environ, cwd=lite.folder, capture_output=True,
        text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    assert finished.returncode == 20
    assert "pip install '.[mcp]'" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_other_commands_do_not_load_the_protocol(lite: Cli) -> None:
    look = "import sys, stepwell.cli; print(sys.modules.keys() & {'mcp', 'stepwell.mcp'})"
    finished = subprocess.run(
        [sys.executable, "-c", look], env=lite.environ, capture_output=True, text=True,
        timeout=PATIENCE_SECONDS, check=True,
    )  # fmt: skip
    assert finished.stdout.strip() == "set()"

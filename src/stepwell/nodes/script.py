"""The script node: a script, executed in isolation."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any, Literal

from pydantic import Field

from stepwell.errors import StepTimedOut
from stepwell.node import Call, Host, NodeConfig, Words, node
from stepwell.nodes.output import Ended
from stepwell.nodes.processes import Command, execute
from stepwell.nodes.sandbox import ENVIRONMENT, Sandbox, refused
from stepwell.nodes.variables import checked

_MAX_MS = 300_000


class Config(NodeConfig):
    script: str = Field(description="The script; nothing in it is a reference.")
    interpreter: Literal["bash", "sh", "python3"] = Field("bash", description="What reads it.")
    input: Any = Field(None, description="Arrives as JSON on the script's standard input.")
    env: dict[str, Words] = Field({}, description="Environment variables.")
    network: bool = Field(False, description="Whether the script can reach the network.")
    repo: bool = Field(True, description="Whether /repo is the worker's folder, read-only.")
    check: bool = Field(True, description="Fail if the exit code is not 0.")
    memory_mb: int = Field(512, ge=16, le=4096, description="How much memory it can use, in MB.")
    timeout_ms: int | None = Field(
        None, ge=1, le=_MAX_MS,
        description="Stop it after this time, if the node's own timeout is not sooner.",
    )  # fmt: skip


@node(
    "script", title="Isolated script", group="action", config=Config, aliases=("action_script",),
    verbatim=("script",), timeout="30s", max_timeout="300s",
)  # fmt: skip
async def script(config: Config, call: Call) -> dict[str, Any]:
    """Execute a script apart from the machine; the output is like that of a shell command.

    It can write to /tmp, which starts empty and is where it is executed, and read the worker's
    folder in /repo and the system's programs. It has no network unless it asks, a cleared
    environment, and limits of time, memory, processes and file size. The worker's machine needs
    bubblewrap (`apt install bubblewrap`).
    """
    limit = None if config.timeout_ms is None else config.timeout_ms / 1000
    try:
        async with asyncio.timeout(limit):
            ended = await _executed(config, call.host)
    except TimeoutError:
        raise StepTimedOut(f"The script ran longer than {config.timeout_ms} ms.") from None
    refused(ended.exit_code, ended.stderr.text())
    return ended.output(check=config.check)


async def _executed(config: Config, host: Host) -> Ended:
    sandbox = Sandbox(
        repository=host.folder if config.repo else None,
        hidden=host.hidden,
        network=config.network,
        memory_mb=config.memory_mb,
        cpu_seconds=math.ceil((config.timeout_ms or _MAX_MS) / 1000),
    )
    variables = checked(config.env)
    with sandbox.entered(config.script, config.interpreter, variables) as (arguments, files):
        return await execute(
            Command(
                arguments,
                ENVIRONMENT,
                "/",
                json.dumps(config.input),
                files,
                sandbox.guard(),
                dies_with_worker=True,
            )
        )

"""The shell node: a command, executed by bash in the folder of the worker."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from stepwell.errors import ConfigInvalid
from stepwell.node import Call, Inserted, NodeConfig, Words, node
from stepwell.nodes.processes import Command, execute
from stepwell.nodes.quoting import with_variables
from stepwell.nodes.variables import MAX_BYTES, checked, size


class Config(NodeConfig):
    command: str = Field(description="What bash executes. Text put in by references is data.")
    check: bool = Field(True, description="Fail if the exit code is not 0.")
    cwd: str | None = Field(None, description="The folder; relative to the worker's.")
    env: dict[str, Words] = Field({}, description="Further environment variables.")
    stdin: Words | None = Field(None, description="What the command can read as its input.")


@node(
    "shell", title="Shell command", group="action", config=Config,
    aliases=("bash", "run_command"), timeout="120s", max_timeout="600s",
)  # fmt: skip
async def shell(config: Config, call: Call) -> dict[str, Any]:
    """Execute a command with bash; the output has exit_code, stdout, stderr and truncated.

    When the shell ends, or its time is up, all that it has started is killed. Of each stream at
    most 65,536 characters are kept: its start and its end.
    """
    text, variables = with_variables(call.parts("command"))
    if size(text) > MAX_BYTES:
        raise ConfigInvalid(f"A command can have at most {MAX_BYTES:,} bytes; this one has more.")
    environment = {
        "PATH": os.defpath, **call.host.environment, **checked(config.env), **checked(variables),
    }  # fmt: skip
    command = Command(
        (_shell(call, environment), "-c", text),
        environment,
        _folder(call.host.folder, config.cwd),
        config.stdin,
    )
    return (await execute(command)).output(check=config.check)


def _shell(call: Call, environment: Mapping[str, str]) -> str:
    path = environment["PATH"]
    if bash := shutil.which("bash", path=path):
        return bash
    parts = call.parts("command")
    if any(isinstance(part, Inserted) for part in parts) and "$'" in "".join(parts):
        raise ConfigInvalid("References beside $'…' need bash, and this machine has only sh.")
    return shutil.which("sh", path=path) or "/bin/sh"


def _folder(folder: str, cwd: str | None) -> str:
    place = Path(folder) / (cwd or "")
    if not place.is_dir():
        raise ConfigInvalid(f"The folder {str(place)!r}, to execute a command in, does not exist.")
    return str(place)

"""Definitions in files, and running them from the command line in processes of their own."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from tests.surfaces.support import Cli, Done

STEP_KEYS = [
    "id", "status", "reason", "attempts", "output", "error", "started_at", "ended_at",
]  # fmt: skip


def written(cli: Cli, text: str, name: str = "flow.yaml") -> str:
    """The name of a file with this text, in the folder where commands are typed."""
    (cli.folder / name).write_text(textwrap.dedent(text), "utf-8")
    return name


def log(cli: Cli) -> list[str]:
    """What the commands of a definition have appended to the file `log`, line by line."""
    path = Path(cli.folder, "log")
    return path.read_text("utf-8").split() if path.exists() else []


def document(cli: Cli, *words: str, exit_code: int = 0, stdin: str = "") -> Any:
    """The one document that a command prints, on one line."""
    done = cli.process(*words, stdin=stdin)
    assert done.exit_code == exit_code, done.stdout + done.stderr
    assert done.stdout.count("\n") == 1
    return done.document


def refused(done: Done, exit_code: int = 10) -> str:
    """What a command says that was refused: nothing on standard output, and no traceback."""
    assert (done.exit_code, done.stdout) == (exit_code, ""), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def step(found: Any, key: str) -> Any:
    return next(each for each in found["steps"] if each["id"] == key)


def statuses(found: Any) -> dict[str, str]:
    return {each["id"]: each["status"] for each in found["steps"]}

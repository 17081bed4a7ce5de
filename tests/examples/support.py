"""The commands of the examples' README, typed in the folder that they are to be typed in."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.surfaces.support import PATIENCE_SECONDS, Done

REPOSITORY = Path(__file__).parent.parent.parent
EXAMPLES = REPOSITORY / "examples"
README = (EXAMPLES / "README.md").read_text("utf-8")
# The words after `stepwell` that run each file.
COMMANDS = {
    words[1].removeprefix("examples/"): words
    for words in (shlex.split(text) for text in re.findall(r"`stepwell (run ex[^`]+)`", README))
}
DEFINITIONS = sorted(
    str(path.relative_to(EXAMPLES))
    for path in [*EXAMPLES.glob("*.yaml"), *(EXAMPLES / "dialects").iterdir()]
)


class Typist:
    """Types commands in processes of their own, on one store."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        self.environ = {
            **os.environ, "PYTHONWARNINGS": "error", "TMPDIR": str(folder),
            "STEPWELL_STORE": f"sqlite:///{folder}/stepwell.db", **environ,
        }  # fmt: skip

    def __call__(self, *words: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "stepwell.cli", *words], cwd=REPOSITORY, env=self.environ,
            capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def run(self, name: str, *, exit_code: int = 0) -> Any:
        """What the README's command for an example prints."""
        return self.document(*COMMANDS[name], exit_code=exit_code)

    def document(self, *words: str, exit_code: int = 0) -> Any:
        done = self(*words)
        assert done.exit_code == exit_code, done.stdout + done.stderr
        return done.document


def outcomes(document: Any) -> dict[str, str]:
    """How each step ended, and why if it has a reason."""
    return {
        step["id"]: f"{step['status']}: {step['reason']}" if step["reason"] else step["status"]
        for step in document["steps"]
    }

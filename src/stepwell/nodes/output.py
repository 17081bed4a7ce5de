"""What is kept of the output of a process, and what a node makes of it."""

from __future__ import annotations

import codecs
import contextlib
import signal
from dataclasses import dataclass
from typing import Any

from stepwell.errors import CommandFailed

MAX_CHARACTERS = 65_536
_HEAD = MAX_CHARACTERS // 2
# Begins and ends with a mark: see `kernel.masking`.
_NOTE = "…\n[{} characters left out]\n…"
_TAIL = MAX_CHARACTERS - _HEAD - 64  # the note takes the rest
_IN_MESSAGE = 2_000


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it wrote."""

    exit_code: int
    stdout: Kept
    stderr: Kept
    stopped: str | None = None

    def output(self, *, check: bool) -> dict[str, Any]:
        """The output of the node; an error if it was stopped, or failed and is checked."""
        if self.stopped or (check and self.exit_code):
            raise CommandFailed(self._message(), exit_code=self.exit_code)
        return {
            "exit_code": self.exit_code,
            "stdout": self.stdout.text(),
            "stderr": self.stderr.text(),
            "truncated": self.stdout.truncated or self.stderr.truncated,
        }

    def _message(self) -> str:
        how = self.stopped or _how(self.exit_code)
        said = self.stderr.text().strip() or self.stdout.text().strip()
        tail = said if len(said) <= _IN_MESSAGE else f"…{said[-_IN_MESSAGE:]}"
        return f"The command {how}: {tail}" if tail else f"The command {how}, and wrote nothing."


def _how(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"was killed by signal {-exit_code}"


class Kept:
    """The first and the last half of what may be kept of a stream; the middle is dropped."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = ""
        self._tail = ""
        self._dropped = 0

    def add(self, data: bytes, *, final: bool = False) -> None:
        text = self._decoder.decode(data, final)  # keeps the start of a cut character
        room = _HEAD - len(self._head)
        self._head += text[:room]
        self._tail += text[room:]
        excess = len(self._tail) - (MAX_CHARACTERS - _HEAD)
        if excess > 0:
            self._dropped += excess
            self._tail = self._tail[excess:]

    def complete(self) -> Kept:
        self.add(b"", final=True)
        return self

    @property
    def truncated(self) -> bool:
        return self._dropped > 0

    def text(self) -> str:
        if not self.truncated:
            return self._head + self._tail
        dropped = self._dropped + len(self._tail) - _TAIL
        return self._head + _NOTE.format(f"{dropped:,}") + self._tail[-_TAIL:]

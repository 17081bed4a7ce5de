"""What code may use, and what is said of code that used more or failed otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepwell.errors import CodeFailed
from stepwell.kernel.codec import decode
from stepwell.kernel.masking import beginning

# An engine that knows its limit says in which line it was reached, so it goes first; whoever
# started it ends it this much later.
GRACE_SECONDS = 0.5
MAX_MESSAGE = 2000


@dataclass(frozen=True)
class Limits:
    """How much one execution may use."""

    seconds: float = 60
    memory_bytes: int = 64 * 1024 * 1024
    output_bytes: int = 1024 * 1024

    def time_exceeded(self, line: int | None = None) -> CodeFailed:
        message = f"The code ran longer than {self.seconds:g} s{_at(line)}."
        return CodeFailed(message, limit="time", line=line)

    def memory_exceeded(self, line: int | None = None) -> CodeFailed:
        megabytes = self.memory_bytes / 1024 / 1024
        message = f"The code needed more than {megabytes:g} MB of memory{_at(line)}."
        return CodeFailed(message, limit="memory", line=line)

    def output_too_large(self, size: int) -> CodeFailed:
        return CodeFailed(
            f"The output of the code has {size:,} bytes of JSON, more than "
            f"{self.output_bytes:,}. Return less, or where it can be found.",
            limit="output",
        )

    def decoded(self, output: str | bytes) -> Any:
        """The output that this JSON stands for."""
        data = output.encode() if isinstance(output, str) else output
        if len(data) > self.output_bytes:
            raise self.output_too_large(len(data))
        try:
            return decode(data)
        except (ValueError, RecursionError) as error:
            raise CodeFailed(f"The output of the code cannot be read as JSON: {error}.") from None


def raised(error: str, line: int | None, hint: str = "") -> CodeFailed:
    """What is said of an error, given as `Type: message`, that the code did not catch."""
    return CodeFailed(f"{beginning(error, MAX_MESSAGE)}{_at(line)}{hint}", line=line)


def _at(line: int | None) -> str:
    return "" if line is None else f" (line {line} of the code)"

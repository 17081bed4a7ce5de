"""JavaScript code, executed by QuickJS in a child process."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from stepwell.errors import CodeFailed, SandboxUnavailable
from stepwell.nodes.languages.limits import GRACE_SECONDS, Limits, raised

_CHILD = Path(__file__).with_name("javascript_child.py")

# What else a reply may hold besides an output.
_FRAME_BYTES = 64 * 1024

# What only TypeScript has. Removing types takes a parser of it; guessing would change the meaning
# of some code.
_TYPES = re.compile(
    r"\b(interface|type|enum)\s+\w+\s*[={<]|\b(as|satisfies)\s+\w+"
    r"|[\w)\]}?]\s*:\s*(any|string|number|boolean|unknown|void|object|never|[A-Z]\w*)\b"
)
_PLAIN = (
    " This looks like TypeScript; plain JavaScript is wanted: remove the types,"
    " as `tsc` or `esbuild` do."
)


async def run_javascript(code: str, input: Any, limits: Limits) -> Any:
    """What the default export or `main` returns for the input, or else the last expression."""
    request = msgspec.json.encode(
        {"code": code, "input": msgspec.json.encode(input).decode(), "seconds": limits.seconds,
         "memory_bytes": limits.memory_bytes, "output_bytes": limits.output_bytes}
    )  # fmt: skip
    try:
        async with asyncio.timeout(limits.seconds + GRACE_SECONDS):
            reply = await _answer(request, limits)
    except TimeoutError:
        raise limits.time_exceeded() from None
    if reply.startswith(b"="):
        return limits.decoded(reply[1:])
    raise _failure(msgspec.json.decode(reply), code, limits)


async def _answer(request: bytes, limits: Limits) -> bytes:
    """What the child answers: `=` and the output, or an object that says what went wrong."""
    child = await asyncio.create_subprocess_exec(
        # Without site and environment: faster to start, and nothing to be found there.
        sys.executable, "-I", "-S", _CHILD, _folder(), env={}, cwd="/",
        stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=limits.output_bytes + _FRAME_BYTES,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        with contextlib.suppress(ConnectionError):  # a child that died says so by its exit code
            child.stdin.write(request + b"\n")
            await child.stdin.drain()
        # The child takes the end of its input for the end of the worker: it is left open.
        reply = await child.stdout.readline()
        if not reply.endswith(b"\n"):
            raise _death(await child.wait(), limits)
        await child.wait()
        return reply[:-1]
    finally:
        await _ended(child)


async def _ended(child: Process) -> None:
    """Kill the child, if it lives, and wait until nothing is left of it."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
    with contextlib.suppress(ConnectionError):
        await child.communicate()  # closes the pipes


def _folder() -> str:
    """Where the child finds QuickJS; this process does not load it."""
    found = find_spec("_quickjs")
    if found is None or found.origin is None:
        raise SandboxUnavailable(
            "JavaScript needs quickjs-ng, which comes with the extra `code`: "
            "pip install 'stepwell[code]'"
        )
    return str(Path(found.origin).parent)


def _failure(told: dict[str, Any], code: str, limits: Limits) -> CodeFailed:
    line: int | None = told.get("line")
    match told["failed"]:
        case "time":
            return limits.time_exceeded(line)
        case "memory":
            return limits.memory_exceeded(line)
        case "output":
            return limits.output_too_large(told["size"])
    message: str = told["message"]
    typed = message.startswith("SyntaxError") and _TYPES.search(code)
    return raised(message, line, f".{_PLAIN}" if typed else "")


def _death(exit_code: int, limits: Limits) -> CodeFailed:
    if exit_code == -signal.SIGXCPU:
        return limits.time_exceeded()
    cause = signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"
    return CodeFailed(
        f"The JavaScript engine died ({cause}). Most likely the code needed more memory than "
        "there is for it."
    )

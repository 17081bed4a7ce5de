"""Processes that nodes start: their output is bounded, and nothing of them stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from stepwell.errors import ConfigInvalid
from stepwell.nodes.output import Ended, Kept
from stepwell.nodes.process_tree import GONE_SECONDS, kill_holders, kill_tree

# Every process of a step has this variable, whatever session or parent it gives itself.
_MARKER = "STEPWELL_STEP"
# How long pipes may take to close after those who held them are gone.
_CLOSED_SECONDS = 0.5

# Started beside a command, with a pipe to the worker as its input: if the pipe ends without a
# word, the worker is dead, and whoever has the marker goes as well.
_SENTRY = """
read -r word && exit
for round in 1 2 3; do
    for process in /proc/[0-9]*; do
        if tr '\\0' '\\n' < "$process/environ" | grep -qx "$1"; then
            kill -9 "${process#/proc/}"
        fi
    done
done
"""

Guard = Callable[[int], Coroutine[Any, Any, str]]


@dataclass(frozen=True)
class Command:
    """What to execute; a `guard` that returns has found a reason to stop the process."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    stdin: str | None = None
    file_descriptors: Sequence[int] = ()
    guard: Guard | None = None
    # Whether the processes end by themselves when the worker dies.
    dies_with_worker: bool = False


class _Watch(asyncio.SubprocessProtocol):
    """Takes what a process writes as fast as it does, and hears of its end.

    Not asyncio's streams: their `wait` may also wait for whoever holds the pipes.
    """

    def __init__(self) -> None:
        self.stdout, self.stderr = Kept(), Kept()
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        (self.stdout if fd == 1 else self.stderr).add(data)

    def process_exited(self) -> None:
        self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)


async def execute(command: Command) -> Ended:
    """Execute a command to its end; whatever it leaves running is killed, also on cancellation."""
    cancelled = asyncio.Event()
    # In a task of its own, so that a cancellation cannot fall between a start and its end.
    task = asyncio.ensure_future(_executed(command, cancelled))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancelled.set()
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        raise


async def _executed(command: Command, cancelled: asyncio.Event) -> Ended:
    marker = secrets.token_hex(16)
    sentry = None if command.dies_with_worker else await _start_sentry(marker)
    try:
        transport, watch = await _start(command, marker)
        try:
            stopped = await _until_end(watch, transport.get_pid(), command.guard, cancelled)
        finally:
            await _end(transport, watch, marker)
    finally:
        if sentry is not None:
            await sentry.communicate(b"done\n")
    exit_code = transport.get_returncode()
    return Ended(
        -signal.SIGKILL if exit_code is None else exit_code,
        watch.stdout.complete(),
        watch.stderr.complete(),
        stopped,
    )


async def _start(command: Command, marker: str) -> tuple[asyncio.SubprocessTransport, _Watch]:
    loop = asyncio.get_running_loop()
    try:
        transport, watch = await loop.subprocess_exec(
            _Watch,
            *command.arguments,
            stdin=subprocess.DEVNULL if command.stdin is None else subprocess.PIPE,
            env={**command.environment, _MARKER: marker},
            cwd=command.folder,
            start_new_session=True,
            pass_fds=tuple(command.file_descriptors),
        )
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        raise ConfigInvalid(
            "The command and its environment are larger than the system accepts; "
            "hand large texts over by `stdin`."
        ) from None
    if command.stdin is not None:
        pipe = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        pipe.write(command.stdin.encode("utf-8", "replace"))
        pipe.close()
    return transport, watch


async def _until_end(
    watch: _Watch, pid: int, guard: Guard | None, cancelled: asyncio.Event
) -> str | None:
    """Wait for the end, or a reason to bring it about; the reason, if it is the guard's."""
    guarding: asyncio.Future[Any] = asyncio.ensure_future(
        guard(pid) if guard else asyncio.Event().wait()
    )
    cancelling = asyncio.ensure_future(cancelled.wait())
    waiting: set[asyncio.Future[Any]] = {watch.exited, guarding, cancelling}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    stopped = guarding.result() if guarding.done() else None
    for each in (guarding, cancelling):
        each.cancel()
    await asyncio.gather(guarding, cancelling, return_exceptions=True)
    return stopped


async def _end(transport: asyncio.SubprocessTransport, watch: _Watch, marker: str) -> None:
    """Kill what is left, so that the pipes close, and read what is still in them."""
    await kill_tree(transport.get_pid(), f"{_MARKER}={marker}")
    await asyncio.wait({watch.exited}, timeout=GONE_SECONDS)
    if not (await asyncio.wait({watch.closed}, timeout=_CLOSED_SECONDS))[0]:
        pipes = {name for fd in (1, 2) if (name := _pipe(transport, fd))}
        await kill_holders(pipes)
        await asyncio.wait({watch.closed}, timeout=GONE_SECONDS)
    transport.close()


def _pipe(transport: asyncio.SubprocessTransport, fd: int) -> str | None:
    """What /proc calls the pipe, if it is still open."""
    end = transport.get_pipe_transport(fd)
    if end is None or end.is_closing():
        return None
    return f"pipe:[{os.fstat(end.get_extra_info('pipe').fileno()).st_ino}]"


async def _start_sentry(marker: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", _SENTRY, "stepwell-sentry", f"{_MARKER}={marker}",
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={"PATH": os.defpath}, start_new_session=True,
    )  # fmt: skip

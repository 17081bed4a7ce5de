"""Keeping several worker processes alive, and stopping them together.

Each process is tied to its supervisor by a socket: the process says through it that it is
ready, and takes its end as the word to stop. So nothing outlives a supervisor that is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from typing import Any

log = logging.getLogger("stepwell.supervisor")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
# A process that lived this long did not crash because of how it was started.
STEADY_SECONDS = 60.0
# On top of the grace for steps: closing connections, giving runs back.
KILL_SECONDS = 15.0

Document = dict[str, Any]


def catch_signals(stop: asyncio.Event) -> None:
    """The first SIGTERM or SIGINT stops gracefully, the second at once: runs survive both."""
    loop = asyncio.get_running_loop()

    def caught(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, caught, number)


def keep_what_is_there() -> None:
    """A process has begun: what it is made of stays, and garbage is not looked for in it again.

    With hundreds of runs in memory, looking through modules and schemas took a tenth of the time,
    and held up everybody for 50 ms each time.
    """
    gc.collect()
    gc.freeze()


class Tie:
    """The worker process's end of the socket to its supervisor."""

    def __init__(self, fd: int, stop: asyncio.Event) -> None:
        self._socket = socket.socket(fileno=fd)
        asyncio.get_running_loop().add_reader(fd, stop.set)  # nothing but its end ever comes

    def say(self, document: Document) -> None:
        """Tell the supervisor, unless it is gone."""
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps(document).encode() + b"\n")


class Supervisor:
    """Runs commands in a process each, and again in place of each that ends by itself."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        grace_seconds: float,
        ready: Callable[[list[Document]], None],
    ) -> None:
        self._commands = commands
        self._kill_seconds = grace_seconds + KILL_SECONDS
        self._ready = ready
        self._said: list[Document] = []
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Keep the processes alive until a signal comes, then stop them all."""
        catch_signals(self._stop)
        async with asyncio.TaskGroup() as group:
            for command in self._commands:
                group.create_task(self._keep_one(command))

    async def _keep_one(self, command: Sequence[str]) -> None:
        clock = asyncio.get_running_loop().time
        pause = FIRST_PAUSE
        while not self._stop.is_set():
            began = clock()
            code = await self._run_one(command)
            if self._stop.is_set():
                return
            if clock() - began > STEADY_SECONDS:
                pause = FIRST_PAUSE
            log.warning("A worker process ended with %s; another follows in %g s.", code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _run_one(self, command: Sequence[str]) -> int:
        ours, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            # A group of its own: a terminal's Ctrl-C is for the supervisor to pass on, once.
            process = await asyncio.create_subprocess_exec(
                *command, "--supervised", str(fd),
                pass_fds=(fd,), stdin=DEVNULL, process_group=0,
            )  # fmt: skip
        reader, writer = await asyncio.open_connection(sock=ours)
        listening = asyncio.create_task(self._listen(reader))
        try:
            await self._ended_or_stopped(process)
        finally:
            writer.close()
            listening.cancel()
        try:
            return await asyncio.wait_for(process.wait(), self._kill_seconds)
        except TimeoutError:
            log.warning("Process %s does not stop and is killed.", process.pid)
            process.kill()
            return await process.wait()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        line = await reader.readline()
        if not line:
            return
        said = json.loads(line)
        self._said.append(said)
        if len(self._said) == len(self._commands):
            self._ready(self._said)
        elif len(self._said) > len(self._commands):
            log.info("Worker %s is ready (process %s).", said["id"], said["pid"])

    async def _ended_or_stopped(self, process: Process) -> None:
        ended = asyncio.ensure_future(process.wait())
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([ended, stopped], return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        stopped.cancel()

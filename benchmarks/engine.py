"""The contract of a measured engine, and what its programs are asked to do."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self


@dataclass(frozen=True)
class Sizes:
    """How much work each workload is; the defaults are those of the comparison."""

    runs: int = 1_000
    samples: int = 50
    chains: tuple[int, ...] = (1_000, 5_000)
    sleepers: int = 10_000
    wakes: int = 1_000
    waiters: int = 1_000
    parallel: int = 500
    matches: int = 100_000
    events: int = 1_000
    schedules: int = 1_000
    idle_seconds: float = 10.0
    http_seconds: float = 30.0
    listed: int = 1_000_000


@dataclass(frozen=True)
class Options:
    """The command line of an engine module."""

    module: str
    store: str
    dsn: str
    workload: str
    concurrency: int
    trace: Path
    sizes: Sizes = field(default_factory=Sizes)

    @classmethod
    def parse(cls, module: str) -> Options:
        parser = argparse.ArgumentParser()
        parser.add_argument("--store", required=True)
        parser.add_argument("--dsn", required=True)
        parser.add_argument("--workload", required=True)
        parser.add_argument("--concurrency", type=int, required=True)
        parser.add_argument("--trace", type=Path, required=True)
        parser.add_argument("--sizes", type=json.loads, default={})
        args = parser.parse_args()
        sizes = Sizes(**args.sizes)
        return cls(module, args.store, args.dsn, args.workload, args.concurrency, args.trace, sizes)

    def arguments(self, workload: str) -> list[str]:
        """The same engine and store again, for a child process with another workload."""
        return [
            "-m", self.module, "--store", self.store, "--dsn", self.dsn, "--workload", workload,
            "--concurrency", str(self.concurrency), "--trace", str(self.trace),
            "--sizes", json.dumps(asdict(self.sizes)),
        ]  # fmt: skip


class Engine(Protocol):
    """One engine with one worker, ready between enter and exit.

    Programs: `steps` (n sequential steps), `counted` (5 steps, each leaving a trace line),
    `sleeper` (sleep n seconds), `until` (sleep until a Unix time, trace the lateness),
    `waiter` (wait for one signal), `fan_out` (n parallel steps of 10 ms). Ours has graphs too:
    `chain` (5 nodes in a row), `wide` (1,000 nodes beside each other), and `matched` (wait for an
    event that has this number), and things that start by themselves.
    """

    worker_pid: int

    def __init__(self, options: Options) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...

    async def start(self, program: str, inputs: list[Any]) -> list[Any]:
        """Submit one run per input; the handles of the runs."""

    async def finish(self, handles: list[Any]) -> None:
        """Return when all of them have ended, and fail if one failed."""

    async def signal(self, handles: list[Any]) -> None:
        """Send each of these waiters its signal."""

    async def parked(self) -> int:
        """How many runs durably sleep or wait."""

    async def unfinished(self) -> int:
        """How many runs have not ended."""

    async def emit(self, number: int) -> None:
        """Emit the event with this number; return when it has found its run, durably."""

    async def schedule(self, count: int, at: float) -> list[float]:
        """How much later than that Unix time so many schedules that are due then start a run."""


class Trace:
    """An append-only file that survives SIGKILL: who executed what."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


async def poll(done: Callable[[], Awaitable[bool]], pause_seconds: float) -> None:
    """Wait for something that no engine announces alike."""
    while not await done():  # noqa: ASYNC110
        await asyncio.sleep(pause_seconds)


def read_trace(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []

"""Where worker processes show their metrics: each at a port of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from stepwell.errors import InvalidInput

if TYPE_CHECKING:
    from stepwell.telemetries.prometheus import Prometheus

HIGHEST_PORT = 65535
# For an answer in progress, when the process stops.
GRACE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Showing:
    """The address that a process is to show its metrics at; without a port it shows none."""

    host: str
    port: int | None

    def of_process(self, number: int) -> Showing:
        """That of one process among several: the ports from the first one on, or any."""
        return Showing(self.host, self.port + number if self.port else self.port)

    def check(self, processes: int) -> None:
        """Raise if so many processes cannot all listen."""
        if self.port is not None and self.port + processes - 1 > HIGHEST_PORT:
            raise InvalidInput(
                f"--metrics-port {self.port} leaves no room for {processes} processes, which take "
                f"the ports from there on: choose {HIGHEST_PORT - processes + 1} at most."
            )
        for number in range(processes):
            with self.of_process(number).listening():
                pass

    @property
    def words(self) -> list[str]:
        """The options that say so."""
        if self.port is None:
            return []
        return ["--metrics-port", str(self.port), "--metrics-host", self.host]

    @contextmanager
    def listening(self) -> Iterator[socket.socket | None]:
        """A socket there, if one is wanted; raises AddressUnavailable."""
        if self.port is None:
            yield None
            return
        # By name: surfaces do not import each other, and this one starts a part of another.
        server = import_module("stepwell.api.server")
        with closing(server.listen(self.host, self.port, "--metrics-port")) as found:
            yield found


@asynccontextmanager
async def shown(metrics: Prometheus, listening: socket.socket | None) -> AsyncIterator[str | None]:
    """Answer on the socket meanwhile; the address of the metrics."""
    if listening is None:
        yield None
        return
    server = import_module("stepwell.api.server")
    exposition = import_module("stepwell.api.exposition").Exposition(metrics)
    stop = asyncio.Event()
    serving = asyncio.create_task(server.serve(exposition, listening, stop, GRACE_SECONDS))
    try:
        yield _address(listening)
    finally:
        stop.set()
        await serving


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"

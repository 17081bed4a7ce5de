"""The server: a socket, what answers on it, and stopping in order."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Network, ip_network
from typing import Protocol

import uvicorn

from stepwell.api.connection import Connection, end_owing
from stepwell.api.exchange import Receive, Scope, Send
from stepwell.errors import AddressUnavailable

# Connections that wait to be accepted.
BACKLOG = 1024
# How often is looked for connections that send only half of what they began.
LOOK_SECONDS = 5


class Application(Protocol):
    """What answers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def close(self) -> None:
        """End what has no end of its own."""
        ...


class _Server(uvicorn.Server):
    """One that leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """A socket at that address, which was given by that option; raises AddressUnavailable."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With its protocol: only of TCP sockets does asyncio know to send small answers at once.
        listening = socket.socket(*found[:3])
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(found[4])
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        foreign = isinstance(error, socket.gaierror) or (
            isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL
        )
        hint = "It is no address of this machine." if foreign else f"Choose another with {option}."
        raise AddressUnavailable(f"{host}:{port} cannot be listened at: {error}. {hint}") from None
    listening.setblocking(False)
    return listening


async def serve(
    api: Application, listening: socket.socket, stop: asyncio.Event, grace: float,
    proxies: Sequence[str] = (),
) -> None:  # fmt: skip
    """Answer requests until stopped; those that were begun have the grace to end.

    Networks of `proxies` are believed where a request came from, and whether by TLS.
    """
    server = _Server(
        uvicorn.Config(
            api,
            http=Connection,
            loop="asyncio",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=bool(proxies),
            forwarded_allow_ips=[each for proxy in proxies for each in seen_as(proxy)],
        )
    )
    # It is only ever waited for, so it need not be whole seconds.
    server.config.timeout_graceful_shutdown = grace  # type: ignore[assignment]
    serving = asyncio.create_task(server.serve([listening]))
    watching = asyncio.create_task(_watch(server))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    api.close()
    server.should_exit = True
    await serving
    watching.cancel()


async def _watch(server: uvicorn.Server) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        end_owing(server.server_state.connections, loop.time())


def seen_as(proxy: str) -> list[str]:
    """A network as a socket sees it: one for both kinds of addresses writes the older as newer."""
    network = ip_network(proxy)
    if not isinstance(network, IPv4Network):
        return [proxy]
    return [proxy, f"::ffff:{network.network_address}/{96 + network.prefixlen}"]

"""A small web server on loopback, whose answers the tests write by hand."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Asked:
    """A request as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Web:
    """A running server and what it was asked."""

    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    # Set when the other side has closed a connection that was not answered.
    left: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def reply(status: int = 200, body: Any = b"", **headers: str) -> bytes:
    """An answer as it goes over the wire; underscores in names are hyphens."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Said"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines += [f"content-length: {len(content)}", "", ""]
    return "\r\n".join(lines).encode() + content


async def _read(reader: asyncio.StreamReader) -> Asked:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, body)


@asynccontextmanager
async def serving(
    answer: Callable[[Asked], bytes | None], host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Web]:  # fmt: skip
    """Answer every request with what the function makes of it; with None, not at all."""
    web = Web()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await _read(reader)
            web.asked.append(asked)
            said = answer(asked)
            if said is None:
                await reader.read()
                web.left.set()
            else:
                writer.write(said)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            web.left.set()  # in the middle of it
        finally:
            writer.close()

    server = await asyncio.start_server(serve, host, 0, ssl=tls)
    web.port = server.sockets[0].getsockname()[1]
    try:
        yield web
    finally:
        server.close()
        await server.wait_closed()

"""A proxy that does to requests what networks, gateways and busy servers do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

# What becomes of a request: it passes, its answer is lost after it was applied, it is lost before,
# or it is answered by somebody in between.
PASS, LOSE_ANSWER, LOSE_REQUEST = "pass", "lose answer", "lose request"


def said(status: int, *headers: str, body: str = "busy") -> str:
    """An answer of somebody in between."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines)


def streamed(text: str) -> str:
    """Live events that end with that."""
    head = "HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked"
    return f"{head}\r\n\r\n{len(text):x}\r\n{text}\r\n0\r\n\r\n"


class Flaky:
    """Forwards requests to a server, each by the next line of its plan; then all of them."""

    def __init__(self, upstream: str, plan: Sequence[str]) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname, parts.port)
        self._plan = list(plan)
        self.seen: list[str] = []
        # Whole requests, and answers to those that are for live events.
        self.requests: list[str] = []
        self.live: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Treat one request; whether the connection goes on."""
        request = await _message(reader)
        self.seen.append(request.partition(b"\r\n")[0].decode().rpartition(" ")[0])
        self.requests.append(request.decode())
        plan = self.live if _is_live(self.seen[-1]) else self._plan
        fate = plan.pop(0) if plan else PASS
        if fate == LOSE_REQUEST:
            return False
        if fate not in (PASS, LOSE_ANSWER):
            writer.write(fate.encode())
            return True
        inward, outward = await asyncio.open_connection(*self._upstream)
        outward.write(request)
        answer = await _message(inward)
        outward.close()
        if fate == LOSE_ANSWER:
            return False
        writer.write(answer)
        return True


def _is_live(line: str) -> bool:
    return line.startswith("GET /api/runs/") and line.endswith("/events")


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head + await reader.readexactly(int(line.partition(b":")[2]))
    return head


@asynccontextmanager
async def flaky(upstream: str, *plan: str) -> AsyncIterator[Flaky]:
    proxy = Flaky(upstream, plan)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield proxy

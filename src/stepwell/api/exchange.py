"""A request as it came, and the answer to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from stepwell.errors import BodyTooLarge, BodyUnsupported, StepwellError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

log = logging.getLogger("stepwell.api")

# What a body may have at most; what is in it has limits of its own.
MAX_BODY_BYTES = 8 * 1024 * 1024

# Where a server puts what ends a connection at once: closed in order, it would stay open until the
# other side has read what was sent.
ABORT = "stepwell.abort"

_encoder = msgspec.json.Encoder(enc_hook=str)


class Disconnected(Exception):
    """The other side has gone before all of its request was there."""


class _ReaderGone(Exception):
    """Whoever read a stream reads no more."""


class Request:
    """What somebody asks for."""

    def __init__(self, scope: Scope, receive: Receive, request_id: str) -> None:
        self._receive = receive
        self.scope = scope
        self.id = request_id
        # What it is for, once that is known: a name, of which there are few.
        self.endpoint = "other"
        self.method: str = scope["method"]
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        self.path = raw.partition(b"?")[0].decode("latin-1")
        self.query: bytes = scope["query_string"]
        self.pairs: Sequence[tuple[bytes, bytes]] = scope["headers"]

    @cached_property
    def headers(self) -> dict[str, str]:
        """By their names in small letters; of several with one name, the last."""
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in self.pairs}

    @property
    def address(self) -> str:
        """Where it came from, as far as is known."""
        client = self.scope.get("client")
        return client[0] if client else "local"

    @cached_property
    def cookies(self) -> dict[str, str]:
        found = {}
        for part in self.headers.get("cookie", "").split(";"):
            name, equals, value = part.strip().partition("=")
            if equals:
                found[name] = value
        return found

    async def body(self, limit: int = MAX_BODY_BYTES, *, packed: bool = False) -> bytes:
        """All of the body; refused when it turns out to be too large.

        With `packed` it may be compressed: who asks for it so unpacks it.
        """
        if not packed and self.headers.get("content-encoding", "identity") != "identity":
            raise BodyUnsupported("The body is compressed; send it as it is.")
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limit:
            raise _too_large(limit)
        chunks, size = [], 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            chunks.append(chunk)
            if not message.get("more_body"):
                return b"".join(chunks) if len(chunks) > 1 else chunk

    async def disconnected(self) -> None:
        """Return when the other side has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {limit:,} bytes.")


@dataclass(slots=True)
class Answer:
    """What is sent back."""

    status: int
    body: bytes = b""
    media_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def json(cls, value: Any, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Answer:
        return cls(status, _encoder.encode(value), headers=list(headers))

    async def send(self, send: Send, request: Request) -> None:
        fields = [(name.encode(), value.encode("latin-1")) for name, value in self.headers]
        if self.body or self.status not in (204, 304):
            fields.append((b"content-length", str(len(self.body)).encode()))
            fields.append((b"content-type", self.media_type.encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": fields})
        await send({"type": "http.response.body", "body": self.body})


@dataclass(slots=True)
class Stream:
    """An answer that is sent piece by piece, as long as somebody reads it."""

    pieces: AsyncGenerator[bytes, None]
    media_type: str
    # How long a piece may wait for a reader before the reader is given up.
    patience_seconds: float
    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=list)

    async def send(self, send: Send, request: Request) -> None:
        fields = [(name.encode(), value.encode("latin-1")) for name, value in self.headers]
        fields.append((b"content-type", self.media_type.encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": fields})
        if request.method == "HEAD":
            await self.pieces.aclose()
            await send({"type": "http.response.body", "body": b""})
            return
        sending = asyncio.ensure_future(self._send_pieces(send))
        gone = asyncio.ensure_future(request.disconnected())
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and isinstance(sending.exception(), _ReaderGone):
                abort = request.scope.get(ABORT)
                if abort is not None:
                    abort()
                    await gone
        finally:
            for task in (sending, gone):
                task.cancel()
            # Both have ended when this returns: what they hold is given back.
            failed, _ = await asyncio.gather(sending, gone, return_exceptions=True)
            if isinstance(failed, Exception) and not isinstance(failed, _ReaderGone):
                said = None if isinstance(failed, StepwellError) else failed
                log.error("The stream of %s broke off: %r", request.id, failed, exc_info=said)

    async def _send_pieces(self, send: Send) -> None:
        async with contextlib.aclosing(self.pieces) as pieces:
            async for piece in pieces:
                try:
                    async with asyncio.timeout(self.patience_seconds):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                except (TimeoutError, OSError):  # which uvicorn has for a connection that is lost
                    raise _ReaderGone from None
        await send({"type": "http.response.body", "body": b""})

"""Live events of a run, as Server-Sent Events that go on where a reader left off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from math import inf

import msgspec

from stepwell.api.exchange import Answer, Request, Stream
from stepwell.api.gatehouse import Gatehouse
from stepwell.app.doorkeeper import Admission
from stepwell.app.hosting import Host
from stepwell.errors import InvalidInput
from stepwell.kernel.clock import SECOND
from stepwell.kernel.presenting import present
from stepwell.kernel.told import read_id

MEDIA_TYPE = "text/event-stream"
# A comment is sent when nothing else was for so long, so that nobody in between hangs up.
BEAT_SECONDS = 15.0
# A reader that takes nothing for so long is given up; it can come back and go on.
PATIENCE_SECONDS = 30.0
RETRY_MILLISECONDS = 1_000

# Stands for what comes when nothing has happened.
_BEAT = object()

_encoder = msgspec.json.Encoder(enc_hook=str)


class LiveEndpoint:
    """Sends what happens to a run, until it has ended, or whoever reads it may do so no more."""

    def __init__(self, host: Host, gatehouse: Gatehouse, closing: asyncio.Event) -> None:
        self._host = host
        self._closing = closing
        self._gatehouse = gatehouse

    async def __call__(self, request: Request, values: Mapping[str, str]) -> Answer | Stream:
        admission = await self._gatehouse.admit(request)
        if request.query:
            name = request.query.decode("latin-1").partition("=")[0]
            raise InvalidInput(f"There is no query parameter {name!r:.100}: live events have none.")
        stepwell = await self._host.workspace(admission.workspace_id)
        await stepwell.get_run(values["run_id"])
        after = request.headers.get("last-event-id") or None
        # Read here, while it can still be answered with a problem.
        if after is not None and read_id(after, values["run_id"]).finished:
            return Answer(204)  # which tells browsers not to come back
        pieces = self._pieces(stepwell.watch(values["run_id"], after), request, admission)
        return Stream(pieces, MEDIA_TYPE, PATIENCE_SECONDS, headers=[("x-accel-buffering", "no")])

    async def _pieces(
        self, events: AsyncGenerator[object, None], request: Request, admission: Admission
    ) -> AsyncGenerator[bytes, None]:
        yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
        closed = asyncio.ensure_future(self._closing.wait())
        coming = asyncio.ensure_future(anext(events, None))
        try:
            while (left := self._left(admission)) > 0 and not closed.done():
                await asyncio.wait(
                    (coming, closed), timeout=min(BEAT_SECONDS, left),
                    return_when=asyncio.FIRST_COMPLETED,
                )  # fmt: skip
                event = coming.result() if coming.done() else _BEAT
                # Asked each time: whom the doorkeeper has just let in it knows without looking.
                if event is None or not await self._gatehouse.readmits(request, admission):
                    return
                if event is not _BEAT:
                    yield _written(event)
                    coming = asyncio.ensure_future(anext(events, None))
                elif not closed.done():
                    yield b": still here\n\n"
        finally:
            for task in (coming, closed):
                task.cancel()
            await asyncio.gather(coming, closed, return_exceptions=True)
            await events.aclose()

    def _left(self, admission: Admission) -> float:
        """For how many seconds a token or session lasts."""
        if admission.expires_at is None:
            return inf
        return (admission.expires_at - self._host.first.store.clock.now()) / SECOND


def _written(event: object) -> bytes:
    shown = present(event)
    data = _encoder.encode(shown)
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (shown["id"].encode(), shown["type"].encode(), data)

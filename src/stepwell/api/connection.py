"""One connection: how much it may send before it makes sense, and how long it may take to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from stepwell.api.exchange import ABORT, Answer, Scope
from stepwell.api.guard import MAX_HEAD_BYTES, SECURITY_HEADERS, given_id, headers_too_large
from stepwell.api.problems import MEDIA_TYPE, problem, status_of
from stepwell.errors import RequestInvalid, StepwellError
from stepwell.kernel.clock import SystemClock
from stepwell.kernel.ids import Ids

# How long the rest of a head, or the next bytes of a body, may take.
OWING_SECONDS = 30

_ids = Ids(SystemClock())


class Connection(HttpToolsProtocol):
    """One that refuses heads without end, and in our words what is no HTTP.

    Its answers can end it, with all that was not read yet.
    """

    # Since when the other side was seen to owe us the rest of a request.
    owing_since: float | None = None
    # What the parser was given since it last made something of it: it keeps all of that.
    _held_bytes = 0
    _in_body = False

    def data_received(self, data: bytes) -> None:
        self._held_bytes += len(data)
        super().data_received(data)
        if self._held_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(headers_too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.owing_since = None
        cast(Scope, self.scope)[ABORT] = self.transport.abort

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        # What follows a body must not count as if it had come before: a proxy looks only there.
        self.headers = self.headers.copy()
        self._held_bytes = 0
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._held_bytes = 0
        self.owing_since = None

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._held_bytes = 0
        self._in_body = False

    def send_400_response(self, msg: str) -> None:
        self._refuse(RequestInvalid("This is no request of HTTP/1.1 that can be understood."))

    def _refuse(self, error: StepwellError) -> None:
        """Say so, unless it would be taken for a part of another answer, and close."""
        if self._is_next():
            self.transport.write(self._refusal(error))
        self.transport.close()

    @property
    def _latest(self) -> RequestResponseCycle | None:
        """The request whose head came last; uvicorn's type conceals that there may be none."""
        return self.cycle

    def _is_next(self) -> bool:
        """Whether what is sent now answers the request that is being read."""
        if self._in_body:
            return not self.cycle.response_started and not self.pipeline
        return self._latest is None or self._latest.response_complete

    def _refusal(self, error: StepwellError) -> bytes:
        request_id = given_id(self.headers or ()) or _ids.new()
        status = status_of(error)
        body = Answer.json(problem(error, status, "", request_id)).body
        fields = [
            *self.server_state.default_headers,
            *SECURITY_HEADERS,
            (b"x-request-id", request_id.encode()),
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        lines = [b"%b: %b\r\n" % field for field in fields]
        return b"".join([STATUS_LINE[status], *lines, b"\r\n", body])

    def owes(self) -> bool:
        """Whether the other side has to send something before we can do anything."""
        # Between requests, uvicorn's own timer runs; whoever closes only waits to be read.
        if self.timeout_keep_alive_task is not None or self.transport.is_closing():
            return False
        if self.flow.read_paused:  # then it is us who do not read
            return False
        if self._latest is None or self._latest.response_complete:
            return True
        return self.cycle.more_body and not self.cycle.waiting_for_100_continue


def end_owing(connections: Iterable[object], now: float) -> None:
    """End connections that have owed us something for too long.

    When it began is when this first sees it, so that requests need not look at a clock.
    """
    for each in [each for each in connections if isinstance(each, Connection)]:
        if not each.owes():
            each.owing_since = None
        elif each.owing_since is None:
            each.owing_since = now
        elif now - each.owing_since > OWING_SECONDS:
            each.transport.abort()

"""The server over HTTP: every request stands for itself, so any process can answer it.

There are no sessions that somebody else could use: whoever sends a request says with it who they
are.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from stepwell.mcp.asking import Context
from stepwell.mcp.seat import HIGHEST, Manner, Record, Seat
from stepwell.mcp.server import server_of
from stepwell.operation import Caller, Permission, Place

# Who sends a request, and where to; None if they cannot show it. The address is that of the pages
# where people look, for whoever asks the server by the name they did; None if it has but one.
Found = tuple[Place, Caller, Record | None, str | None]
Resolve = Callable[[Scope], Awaitable[Found | None]]

# Whether whoever sent a request is answered any longer, asked while that takes.
Stays = Callable[[Scope], Awaitable[bool]]

_SEAT = "stepwell.seat"

# They would tell of the start and the end of every request.
for _name in ("streamable_http_manager", "streamable_http"):
    logging.getLogger(f"mcp.server.{_name}").setLevel(logging.WARNING)


class McpApp:
    """The ASGI application; to be put at one path as the endpoint of a route."""

    def __init__(
        self, resolve: Resolve, level: Permission, manner: Manner, stays: Stays | None
    ) -> None:
        self._resolve = resolve
        self._stays = stays
        self._level = level
        self._server = server_of(_seat_of, manner)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        found = await self._resolve(scope)
        if found is None:
            await _unauthorized()(scope, receive, send)
            return
        if scope["method"] != "POST":
            # Without sessions there is none to listen to, nor to end.
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        place, caller, record, url = found
        stays = None if self._stays is None else partial(self._stays, scope)
        seated = {**scope, _SEAT: Seat(place, caller, self._level, record, url, stays)}
        requests = StreamableHTTPSessionManager(self._server, stateless=True)
        async with requests.run():
            await requests.handle_request(seated, receive, send)


def mcp_app(
    resolve: Resolve, *, level: Permission = HIGHEST, manner: Manner | None = None,
    stays: Stays | None = None,
) -> McpApp:  # fmt: skip
    """The server as an ASGI application; `resolve` says of each request who sends it.

    Callers are offered what they may do, at most what `level` allows. `stays` is asked now and then
    whether they are to be answered any longer; without it they always are. Hosts and origins are
    to be checked before.
    """
    return McpApp(resolve, level, manner or Manner(), stays)


def _seat_of(context: Context) -> Seat:
    assert context.request is not None
    seat: Seat = context.request.scope[_SEAT]
    return seat


def _unauthorized() -> Response:
    message = "Send a token that is valid: Authorization: Bearer …"
    return JSONResponse(
        {
            "type": "urn:stepwell:error:unauthenticated", "title": "Unauthorized", "status": 401,
            "code": "unauthenticated", "detail": message,
        },
        status_code=401,
        headers={"WWW-Authenticate": 'Bearer realm="stepwell"'},
        media_type="application/problem+json",
    )  # fmt: skip

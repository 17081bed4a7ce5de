"""The server as an ASGI application: requests find their endpoints, errors their answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from stepwell.api.agents import PATH, Agents
from stepwell.api.endpoints import NESTED, Endpoint, OperationEndpoint
from stepwell.api.exchange import (
    Answer,
    Disconnected,
    Message,
    Receive,
    Request,
    Scope,
    Send,
    Stream,
)
from stepwell.api.gatehouse import Gatehouse
from stepwell.api.guard import SECURITY_HEADERS, check_host, check_repeats, check_size, given_id
from stepwell.api.logging_in import LoginLink
from stepwell.api.pages import HEALTH, pages
from stepwell.api.problems import MEDIA_TYPE, problem, problem_answer
from stepwell.api.routing import Match, Routes
from stepwell.app.hosting import Host
from stepwell.app.performing import Performer
from stepwell.catalog import operations
from stepwell.errors import MethodNotAllowed, NotOpen, RouteNotFound, StepwellError
from stepwell.telemetry import request_trace

log = logging.getLogger("stepwell.api")

PREFIX = "/api"


class Api:
    """Answers requests for one host; `hosts` are the names that it goes by."""

    def __init__(self, host: Host, hosts: Collection[str]) -> None:
        self._host = host
        self._hosts = frozenset(hosts)
        self._new_id = host.ids.new
        self._metrics = host.metrics
        self._closing = asyncio.Event()
        self._routes: Routes[Endpoint] = Routes()
        performer, gatehouse = Performer(host), Gatehouse(host.doorkeeper)
        self._agents = Agents(host, gatehouse, self._closing)
        for each in operations().values():
            for path in (each.path, *each.also):
                kind = NESTED.get(path, OperationEndpoint)
                self._add(each.method, PREFIX + path, kind(each, performer, gatehouse))
        for method, path, page in pages(host, gatehouse, self._closing):
            self._add(method, path, page)

    def _add(self, method: str, path: str, endpoint: Endpoint) -> None:
        self._routes.add(method, path, endpoint)
        # Whoever only looks at where a login link leads must not use it up.
        if method == "GET" and not isinstance(endpoint, LoginLink):
            self._routes.add("HEAD", path, endpoint)

    def close(self) -> None:
        """The server stops: begin no run any more, and end what has no end of its own."""
        self._host.wind_down()
        self._closing.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            try:
                await self._answer(scope, receive, send)
            except asyncio.CancelledError:  # the grace is over: the connection is closed
                if not self._closing.is_set():
                    raise
        else:
            await send({"type": "websocket.close"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, given_id(scope["headers"]) or self._new_id())
        carried = [*SECURITY_HEADERS, (b"x-request-id", request.id.encode())]
        begun: int | None = None

        async def carrying(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = message["status"]
                message["headers"] = [*message["headers"], *carried]
            await send(message)

        request_trace.set(request.headers.get("traceparent"))
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer: Answer | Stream | None
        try:
            answer = await self._answered(request, receive, carrying)
        except StepwellError as error:
            answer = problem_answer(request, error)
        except Disconnected:
            return
        except asyncio.CancelledError:
            if begun or not self._closing.is_set():
                raise
            answer = problem_answer(request, _stopped())
        except Exception:
            log.exception("Request %s could not be answered.", request.id)
            if begun is not None:  # too late to say so: the connection is closed instead
                raise
            answer = _failure(request)
        status = begun if answer is None else answer.status
        if status is not None:  # else they have gone before anything was answered
            self._metrics.request_answered(
                request.method, request.endpoint, status, loop.time() - began
            )
        if answer is not None:
            await answer.send(carrying, request)

    async def _answered(
        self, request: Request, receive: Receive, send: Send
    ) -> Answer | Stream | None:
        """The answer; None if it was sent already."""
        check_size(request)
        if request.path not in HEALTH:
            check_repeats(request)
            check_host(request, self._hosts)
        if request.path == PATH:
            request.endpoint = "mcp"
            await self._agents(request, receive, send)
            return None
        match = self._routes.find(request.method, request.path)
        if not isinstance(match, Match):
            raise _nothing_there(request, match)
        endpoint: Endpoint = match.target
        request.endpoint = getattr(endpoint, "name", request.endpoint)
        return await endpoint(request, match.values)


def _nothing_there(request: Request, methods: set[str]) -> StepwellError:
    if not methods:
        return RouteNotFound(f"There is nothing at {request.path!r:.200}. See /api/openapi.json.")
    return MethodNotAllowed(
        f"{request.path!r:.200} takes {', '.join(sorted(methods))}, not {request.method}.",
        methods=sorted(methods),
    )


def _stopped() -> StepwellError:
    """What is said to whom the server could not answer before it stopped."""
    return NotOpen(
        "The server stops, and could not finish this in time. Ask again: another one, or this one "
        "once it is back, goes on.",
        retry_after=1,
    )


def _failure(request: Request) -> Answer:
    """What is said of a fault of the server's own: nothing of what is inside."""
    error = StepwellError(f"The server failed; its log says more of request {request.id}.")
    error.code = "internal_error"
    return Answer(500, Answer.json(problem(error, 500, request.path, request.id)).body, MEDIA_TYPE)


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return

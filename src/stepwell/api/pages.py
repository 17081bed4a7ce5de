"""What answers without being an operation: pages, health, webhooks, logging in, live events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from stepwell.api.endpoints import Endpoint
from stepwell.api.exchange import Answer, Request
from stepwell.api.gate_page import decide_gate, show_gate
from stepwell.api.gatehouse import Gatehouse
from stepwell.api.home import Home
from stepwell.api.live import LiveEndpoint
from stepwell.api.logging_in import LogIn, LoginLink, LogOut
from stepwell.api.oidc.pages import oidc_pages
from stepwell.api.openapi import openapi
from stepwell.api.run_page import show_run
from stepwell.api.visits import Page
from stepwell.app.hosting import Host
from stepwell.app.performing import Performer
from stepwell.errors import BodyTooLarge, PermissionDenied, StepwellError, StoreUnavailable
from stepwell.telemetries.prometheus import CONTENT_TYPE

# Asked by machines, by whatever name they know this one; they tell nothing.
HEALTH = ("/healthz", "/readyz")
# How long a store may take to answer.
READY_SECONDS = 2.0
# Of a webhook: more is refused before it is looked at.
MAX_DELIVERY_BYTES = 1024 * 1024
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def pages(
    host: Host, gatehouse: Gatehouse, closing: asyncio.Event
) -> Iterable[tuple[str, str, Endpoint]]:
    """Method, path and endpoint of each."""
    yield "GET", "/", Home(host, gatehouse)
    performer = Performer(host)
    for at in ("", "/{at}"):
        run = Page("run_page", show_run, performer, gatehouse)
        yield "GET", f"{at}/runs/{{run_id}}", run
        gate = Page("gate_page", show_gate, performer, gatehouse)
        yield "GET", f"{at}/gates/{{gate_id}}", gate
        deciding = Page("gate_page", decide_gate, performer, gatehouse)
        yield "POST", f"{at}/gates/{{gate_id}}/decide", deciding
    yield "GET", "/healthz", alive
    yield "GET", "/readyz", Ready(host)
    yield "GET", "/metrics", Metrics(host, gatehouse)
    yield "GET", "/api/openapi.json", documented
    yield "POST", "/api/login", LogIn(host.doorkeeper)
    yield "POST", "/api/logout", LogOut(host.doorkeeper)
    yield "GET", "/login/{link}", LoginLink(host.doorkeeper)
    yield from oidc_pages(host)
    yield "GET", "/api/runs/{run_id}/events", LiveEndpoint(host, gatehouse, closing)
    hooks = Hooks(host)
    for method in METHODS:
        yield method, "/hooks/{*path}", hooks


async def alive(request: Request, values: Mapping[str, str]) -> Answer:
    """The process answers; that says nothing of its store."""
    return Answer.json({"status": "ok"})


class Ready:
    """Whether requests can be served: the store answers, and can be written to."""

    name = "ready"

    def __init__(self, host: Host) -> None:
        self._host = host

    async def __call__(self, request: Request, values: Mapping[str, str]) -> Answer:
        store, workspace_id = self._host.first.store, self._host.first_id
        try:
            async with asyncio.timeout(READY_SECONDS):
                workers = await store.workers(workspace_id)
        except (StepwellError, TimeoutError):
            raise StoreUnavailable("The store does not answer.") from None
        if not self._host.is_writable():
            raise StoreUnavailable("The store cannot be written to.")
        return Answer.json({"status": "ok", "workers": sum(each.alive for each in workers)})


class Metrics:
    """What Prometheus asks for, with a token of somebody who owns the first workspace."""

    name = "metrics"

    def __init__(self, host: Host, gatehouse: Gatehouse) -> None:
        self._host = host
        self._gatehouse = gatehouse

    async def __call__(self, request: Request, values: Mapping[str, str]) -> Answer:
        admission = await self._gatehouse.admit(request)
        # By the role, not by what a token allows: Prometheus shall need none that may do more.
        if admission.workspace_id != self._host.first_id or admission.caller.role != "owner":
            raise PermissionDenied(
                "Metrics are of all workspaces, and for owners of the first one: use a token of "
                "theirs; one that may only read is enough."
            )
        return Answer(200, await self._host.metrics.render(), CONTENT_TYPE)


async def documented(request: Request, values: Mapping[str, str]) -> Answer:
    """What can be asked for here."""
    return Answer(200, openapi())


class Hooks:
    """Takes deliveries to webhooks: `/hooks/path`, or `/hooks/@workspace/path`."""

    name = "hooks"

    def __init__(self, host: Host) -> None:
        self._host = host

    async def __call__(self, request: Request, values: Mapping[str, str]) -> Answer:
        path, workspace = values["path"], self._host.first_id
        if path.startswith("@"):
            workspace, _, path = path[1:].partition("/")
        stepwell = await self._host.guessed(workspace)
        if stepwell is None:
            stepwell = self._host.first  # which has no such path: the answer is as for that
            path = values["path"]
        try:
            body = await request.body(MAX_DELIVERY_BYTES, packed=True)
        except BodyTooLarge as error:
            await stepwell.turn_away(path, error)
            raise
        received = await stepwell.receive(
            path, method=request.method, headers=request.pairs, body=body, query=request.query
        )
        if received.challenge is not None:
            return Answer.json({"challenge": received.challenge})
        # One by one: what else there may be is not for senders.
        return Answer.json(
            {
                "run_id": received.run_id, "created": received.created,
                "events": received.events, "note": received.note,
            },
            202,
        )  # fmt: skip

"""`/mcp`: the tools of agents, served by another surface to whoever has a token."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from stepwell.api.exchange import Receive, Request, Scope, Send
from stepwell.api.gatehouse import Gatehouse
from stepwell.api.guard import check_no_other_site
from stepwell.app.doorkeeper import Admission
from stepwell.app.hosting import Host
from stepwell.errors import MethodNotAllowed, RouteNotFound
from stepwell.operation import Operation

PATH = "/mcp"
_ADMITTED = "stepwell.admitted"


class Agents:
    """Hands requests over to the surface for agents, which is loaded when the first one comes."""

    def __init__(self, host: Host, gatehouse: Gatehouse, closing: asyncio.Event) -> None:
        self._host = host
        self._closing = closing
        self._gatehouse = gatehouse
        self._app: Any = None

    async def __call__(self, request: Request, receive: Receive, send: Send) -> None:
        # What is refused is refused here, with a problem like everywhere.
        check_no_other_site(request)
        admission = await self._gatehouse.admit(request)
        if request.method != "POST":  # without sessions there is none to listen to, nor to end
            raise MethodNotAllowed(f"{PATH} takes POST, not {request.method}.", methods=["POST"])
        if self._app is None:
            # By name: surfaces do not import each other. In a thread, because it takes a while.
            surface = await asyncio.to_thread(_loaded)
            self._app = surface.mcp_app(self._resolve, stays=self._stays)
        await self._app({**request.scope, _ADMITTED: (request, admission)}, receive, send)

    async def _resolve(self, scope: Scope) -> Any:
        """Where they act and who they are, for each request anew."""
        request: Request
        admission: Admission
        request, admission = scope[_ADMITTED]

        async def record(operation: Operation, arguments: Mapping[str, Any], result: Any) -> None:
            await self._host.doorkeeper.record(
                admission, operation, arguments, result=result, request_id=request.id
            )

        place = await self._host.workspace(admission.workspace_id)
        return place, admission.caller, record, self._url(request, admission.workspace_id)

    def _url(self, request: Request, workspace_id: str) -> str:
        """Where the pages of a workspace are, by the name that the server was asked by."""
        base = f"{request.scope.get('scheme', 'http')}://{request.headers['host']}"
        return base if workspace_id == self._host.first_id else f"{base}/@{workspace_id}"

    async def _stays(self, scope: Scope) -> bool:
        """Whether whoever has been answered for a while is answered any longer."""
        if self._closing.is_set():
            return False
        return await self._gatehouse.readmits(*scope[_ADMITTED])


def _loaded() -> Any:
    try:
        return import_module("stepwell.mcp")
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise RouteNotFound(
            "This server has no tools for agents: install the extra `mcp`, pip install '.[mcp]'."
        ) from None

"""Who asks: by a token, or by the session of a browser."""

from __future__ import annotations

from stepwell.api.exchange import Request
from stepwell.api.guard import check_origin
from stepwell.app.doorkeeper import Admission, Doorkeeper
from stepwell.errors import StepwellError, Unauthenticated, WorkspaceNotFound
from stepwell.kernel.names import show

COOKIE = "stepwell_session"
WORKSPACE_HEADER = "stepwell-workspace"


class Gatehouse:
    """Lets requests in, each as somebody."""

    def __init__(self, doorkeeper: Doorkeeper) -> None:
        self._doorkeeper = doorkeeper

    async def admit(self, request: Request, workspace: str | None = None) -> Admission:
        """Who it is and where they may act; raises Unauthenticated, or RateLimited.

        A session is for that workspace, or for the one that a header names; a token has its own,
        and is refused where a header names another.
        """
        return await self._found(request, workspace, request.address)

    async def _found(
        self, request: Request, workspace: str | None, address: str | None
    ) -> Admission:
        named = request.headers.get(WORKSPACE_HEADER)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            found = await self._doorkeeper.by_token(token.strip(), address)
            if named not in (None, found.workspace_id):
                raise WorkspaceNotFound(
                    f"This token is not for a workspace {show(named)}: leave the header "
                    "Stepwell-Workspace out, or use a token of that workspace."
                )
            return found
        session = request.cookies.get(COOKIE)
        if session is None:
            raise Unauthenticated(
                "Who are you? Send `Authorization: Bearer` with a token, or log in."
            )
        check_origin(request)
        return await self._doorkeeper.by_session(session, workspace or named, address)

    async def readmits(self, request: Request, before: Admission) -> bool:
        """Whether somebody who was let in would be let in again, as who they were."""
        try:
            # Counted for no address: it is no attempt, and is refused for what it is.
            now = await self._found(request, None, None)
        except (Unauthenticated, WorkspaceNotFound):
            return False
        except StepwellError:  # the store may be away; nobody is sent off for that
            return True
        return (now.workspace_id, now.caller) == (before.workspace_id, before.caller)

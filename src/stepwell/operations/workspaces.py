"""Workspaces: those of the caller, made and renamed."""

from __future__ import annotations

import builtins

from stepwell.errors import InvalidInput, Overtaken, WorkspaceExists, WorkspaceNotFound
from stepwell.kernel.access import WorkspaceRecord, check_workspace_id
from stepwell.kernel.names import check_text
from stepwell.operation import Caller, Noun, Workspace, operation


class Workspaces(Noun):
    """The workspaces of a store, as far as they are the caller's."""

    noun = "workspaces"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._access = workspace.store.access

    @operation("GET /workspaces", needs="read", caller={"caller": "itself"})
    async def list(self, caller: Caller) -> builtins.list[WorkspaceRecord]:
        """The workspaces that the caller belongs to; a token belongs to one."""
        found = await self._access.workspaces(caller.user_id)
        if caller.token_id is None:
            return found
        return [each for each in found if each.id == self._workspace.id]

    @operation(
        "GET /workspaces/{workspace_id}", needs="read", caller={"caller": "itself"},
        raises=(WorkspaceNotFound,), example={"workspace_id": "default"},
    )  # fmt: skip
    async def get(self, workspace_id: str, caller: Caller) -> WorkspaceRecord:
        """A workspace that the caller belongs to."""
        for each in await self.list(caller):
            if each.id == workspace_id:
                return each
        raise _not_found(workspace_id)

    @operation(
        "POST /workspaces", needs="own", status=201, caller={"owner_id": "user_id"},
        raises=(WorkspaceExists,), example={"id": "team-7", "title": "Team 7"},
    )  # fmt: skip
    async def create(
        self, id: str, title: str | None = None, *, owner_id: str | None = None
    ) -> WorkspaceRecord:
        """Make a workspace that the caller owns."""
        title = check_workspace_id(id) if title is None else check_text(title, "A title")
        if owner_id is None:
            raise InvalidInput(
                "A workspace has an owner, and whoever has the store is no user of it. Make it at "
                "a server, where you are one: name it with STEPWELL_URL."
            )
        made = WorkspaceRecord(id, title, self._workspace.clock.now())
        try:
            await self._access.add_workspace(made, owner_id)
        except Overtaken:
            raise WorkspaceExists(f"The workspace {id!r} is there already.", id=id) from None
        return made

    @operation(
        "PUT /workspaces/{workspace_id}", needs="own", raises=(WorkspaceNotFound,),
        example={"workspace_id": "default", "title": "Production"},
    )  # fmt: skip
    async def rename(self, workspace_id: str, title: str) -> WorkspaceRecord:
        """Give the workspace that the caller is in another title."""
        check_text(title, "A title")
        here = workspace_id == self._workspace.id
        if not here or not await self._access.rename_workspace(workspace_id, title):
            raise _not_found(workspace_id)
        found = await self._access.workspace(workspace_id)
        assert found is not None, "workspaces are never deleted"
        return found


def _not_found(workspace_id: str) -> WorkspaceNotFound:
    message = f"There is no workspace {workspace_id!r} here."
    return WorkspaceNotFound(message, workspace_id=workspace_id)

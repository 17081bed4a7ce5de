"""The audit log: who changed what in the workspace."""

from __future__ import annotations

import builtins
from typing import Annotated

import msgspec
from msgspec import Meta

from stepwell.kernel.access import AuditRecord
from stepwell.kernel.cursors import digest_of, read_cursor, write_cursor
from stepwell.operation import Noun, Workspace, operation

MAX_PAGE = 1000


class AuditPage(msgspec.Struct, frozen=True):
    """Some rows of the audit log, the newest first, and a cursor for those before them."""

    items: builtins.list[AuditRecord]
    next_cursor: str | None


class Audit(Noun):
    """The audit log of a workspace; it only grows."""

    noun = "audit"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._access = workspace.store.access

    @operation("GET /audit", needs="own")
    async def list(
        self, *, limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 50, cursor: str | None = None
    ) -> AuditPage:
        """Who changed what, the newest first."""
        limit = min(max(limit, 1), MAX_PAGE)
        digest = digest_of([self._workspace.id, "audit"])
        before = None if cursor is None else read_cursor(cursor, digest)
        found = builtins.list(await self._access.audit(self._workspace.id, before, limit + 1))
        more = write_cursor(found[limit - 1].id, digest) if len(found) > limit else None
        return AuditPage(found[:limit], more)

"""Events: what happened in the workspace, as it was emitted."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import msgspec

from stepwell.kernel.clock import to_datetime
from stepwell.kernel.cursors import digest_of, read_cursor, write_cursor
from stepwell.kernel.names import check_count, check_text
from stepwell.kernel.records import EventRecord
from stepwell.operation import Count, Noun, Workspace, operation

MAX_PAGE = 1000


class EventPage(msgspec.Struct, frozen=True):
    """Some events, the newest first, and a cursor for those before them."""

    items: builtins.list[EventRecord]
    next_cursor: str | None


class Events(Noun):
    """The events of a workspace, as far back as they are kept: 7 days."""

    noun = "events"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    @operation(
        "POST /events", needs="run", status=202, result="emitted", subject="type",
        example={"type": "order.paid", "payload": {"order": 7}},
    )  # fmt: skip
    async def emit(
        self, type: str, payload: Any = None, *, key: str | None = None, once: bool = False,
        idempotency_key: str | None = None,
    ) -> bool:  # fmt: skip
        """Emit an event; false if an earlier one that was to be `once` of its type and key won.

        False also if one of its type has had the same `idempotency_key`: it is not emitted again.
        """
        return await self._workspace.engine.emit(
            type, payload, key=key, once=once, idempotency_key=idempotency_key
        )

    @operation("GET /events", needs="read")
    async def list(
        self, type: str | None = None, *, limit: Count = 50, cursor: str | None = None
    ) -> EventPage:
        """Events, or those of a type, the newest first."""
        if type is not None:
            check_text(type, "An event's type")
        limit = min(check_count(limit, "limit"), MAX_PAGE)
        digest = digest_of([self._workspace.id, "events", type])
        before = None if cursor is None else read_cursor(cursor, digest)
        found = await self._workspace.store.triggers.events(
            self._workspace.id, type, before, limit + 1
        )
        more = write_cursor(found[limit - 1].id, digest) if len(found) > limit else None
        return EventPage(found[:limit], more)

    def cloudevents(self, events: Iterable[EventRecord]) -> builtins.list[dict[str, Any]]:
        """Events as CloudEvents 1.0 in JSON: what other systems take, one or a batch of them."""
        return [
            {
                "specversion": "1.0", "id": each.id, "type": each.type,
                "source": f"/stepwell/{quote(self._workspace.id)}",
                **({} if each.key is None else {"subject": each.key}),
                "time": to_datetime(each.created_at), "datacontenttype": "application/json",
                "data": each.payload,
            }
            for each in events
        ]  # fmt: skip

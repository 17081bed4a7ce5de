"""Pages for people: who visits them, how they look, and what is said of errors there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import msgspec

from stepwell.api.exchange import Answer, Request
from stepwell.api.gatehouse import Gatehouse
from stepwell.api.problems import status_of
from stepwell.app.doorkeeper import Admission
from stepwell.app.performing import Performer
from stepwell.catalog import operations
from stepwell.errors import RouteNotFound, StepwellError, Unauthenticated, WorkspaceNotFound
from stepwell.kernel.presenting import present

# Without a referrer a browser would not say where a form comes from, and it would be refused.
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Stepwell</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<meta name="referrer" content="same-origin">
<body><h1><a href="/">Stepwell</a></h1>
{content}
</body></html>
"""
STRANGER = (
    "<p>You are not logged in. Open the login link that <code>stepwell serve</code> prints.</p>"
)


@dataclass(frozen=True, slots=True)
class Visit:
    """Somebody who was let in, with what they ask for."""

    request: Request
    admission: Admission
    values: Mapping[str, str]
    _performer: Performer

    async def call(self, operation: str, /, **arguments: Any) -> Any:
        """What an operation returns; nothing is looked at or done in another way."""
        found = operations()[operation]
        return await self._performer.perform(self.admission, found, arguments, self.request.id)

    def path(self, *parts: str) -> str:
        """Where a page of the same workspace is, as it can stand in an attribute."""
        at = self.values.get("at")
        return "".join(f"/{escape(part)}" for part in (*([] if at is None else [at]), *parts))


class Page:
    """Answers with a page, for whoever is logged in.

    Below `/@workspace` it is one of that workspace: who belongs to several has no other way to say.
    """

    def __init__(
        self, name: str, show: Callable[[Visit], Awaitable[Answer]],
        performer: Performer, gatehouse: Gatehouse,
    ) -> None:  # fmt: skip
        self.name = name
        self._show = show
        self._performer = performer
        self._gatehouse = gatehouse

    async def __call__(self, request: Request, values: Mapping[str, str]) -> Answer:
        try:
            admission = await self._admitted(request, values.get("at"))
            return await self._show(Visit(request, admission, values, self._performer))
        except Unauthenticated:
            return page(STRANGER, 401)
        except StepwellError as error:
            status = status_of(error)
            if status >= 500:
                raise
            return page(f"<p>{escape(error.message)}</p>", status)

    async def _admitted(self, request: Request, at: str | None) -> Admission:
        if at is None:
            return await self._gatehouse.admit(request)
        if not at.startswith("@"):
            raise RouteNotFound(f"There is nothing at {request.path!r:.200}.")
        admission = await self._gatehouse.admit(request, at[1:])
        if admission.workspace_id != at[1:]:  # that of a token is another one
            raise WorkspaceNotFound(f"There is no workspace {at[1:]!r:.200}.")
        return admission


def page(content: str, status: int = 200) -> Answer:
    """An answer that is a page."""
    return Answer(status, _PAGE.format(content=content).encode(), "text/html; charset=utf-8")


def shown_data(value: Any, most: int | None = None) -> str:
    """Data as text of a page, perhaps only its beginning."""
    text = msgspec.json.format(msgspec.json.encode(present(value), enc_hook=str)).decode()
    cut = text if most is None or len(text) <= most else f"{text[:most]}…"
    return f"<pre>{escape(cut)}</pre>"

"""What all parts of a client share: to call an operation, and to have its result as a record."""

from __future__ import annotations

from typing import Any, TypeVar

from stepwell.kernel.presenting import restore
from stepwell.sdk.blocking import Waits
from stepwell.sdk.connection import Connection

T = TypeVar("T")


class Calling(Waits):
    """Calls operations of a server."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def _call(self, route: str, **arguments: Any) -> Any:
        """The result as plain data."""
        return await self.connection.call(route, arguments)

    async def _record(self, kind: type[T], route: str, **arguments: Any) -> T:
        found: T = restore(await self.connection.call(route, arguments), kind)
        return found

    async def _records(self, kind: type[T], route: str, **arguments: Any) -> list[T]:
        shown = await self.connection.call(route, arguments)
        found: list[T] = restore(shown["items"], list[kind])  # type: ignore[valid-type]
        return found

"""Who uses the tools, where, and how much they may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stepwell.catalog import operations
from stepwell.operation import Caller, Operation, Permission, Place, allows

# What no agent is given, unless somebody says so: to decide who may do what.
HIGHEST: Permission = "build"


Record = Callable[[Operation, Mapping[str, Any], Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Manner:
    """How a server answers, whoever asks."""

    # How long a call that starts a run waits for its end.
    wait_seconds: float = 10.0
    # Where people can look at runs and gates, if there is such a place.
    url: str | None = None

    def at(self, url: str | None) -> Manner:
        """The same for a caller to whom the place has that address."""
        return self if url is None else replace(self, url=url)

    def link(self, *parts: str) -> str | None:
        """Where people find it."""
        return None if self.url is None else "/".join((self.url.rstrip("/"), *parts))


@dataclass(frozen=True, slots=True)
class Seat:
    """A caller with the tools of one workspace."""

    place: Place
    caller: Caller
    # What they want to be offered; never more than they may.
    level: Permission = HIGHEST
    # Writes down what they have done, where that is wanted.
    record: Record | None = None
    # Where people can look at its runs and gates, if that depends on how the caller came here.
    url: str | None = None
    # Says whether they are answered any longer; None if they always are.
    stays: Callable[[], Awaitable[bool]] | None = None

    async def kept(self) -> bool:
        """Whether somebody who waits here may go on waiting."""
        return self.stays is None or await self.stays()

    def may(self, needed: Permission) -> bool:
        """Whether tools are offered here that need this."""
        return allows(self.level, needed) and allows(self.caller.permission, needed)

    async def call(self, operation: str, /, **arguments: Any) -> Any:
        """What an operation returns; nothing is called in another way."""
        found = operations()[operation]
        result = await found.call(self.place, self.caller, arguments)
        if self.record is not None and found.is_recorded:
            await self.record(found, arguments, result)
        return result

"""What was read from the provider, kept for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from stepwell.errors import ProviderUnavailable
from stepwell.kernel.clock import SECOND, Clock

KEPT = 3600 * SECOND
# After a failure, so that not everybody who wants to log in asks a provider that is away.
PAUSE = 5 * SECOND

T = TypeVar("T")


class Kept(Generic[T]):
    """One thing, read when it is first asked for and again when it has become old."""

    def __init__(self, read: Callable[[], Awaitable[T]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._reading = asyncio.Lock()
        self._value: T | None = None
        self._old_at = 0
        self._again_at = 0

    async def get(self, anew: bool = False) -> T:
        """The thing; raises ProviderUnavailable."""
        async with self._reading:
            now = self._clock.now()
            if self._value is not None and now < self._old_at and not anew:
                return self._value
            if now < self._again_at:
                wait = (self._again_at - now) / SECOND
                raise ProviderUnavailable(
                    "The provider could not be asked a moment ago. Try again soon.",
                    retry_after=wait,
                )
            try:
                self._value = await self._read()
            except ProviderUnavailable:
                self._again_at = self._clock.now() + PAUSE
                raise
            self._old_at = self._clock.now() + KEPT
            return self._value

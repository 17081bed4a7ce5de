"""Time: microseconds since the epoch as integers, from one clock object."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Protocol

from stepwell.errors import InvalidInput

SECOND = 1_000_000
# The end of the year 9999, after which there are no dates.
LAST = 253_402_300_800 * SECOND - 1


class Timer(Protocol):
    """A callback that has been put off and can be called off."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Where the engine learns the time and leaves callbacks for later."""

    def now(self) -> int:
        """Microseconds since the epoch."""
        ...

    def call_at(self, at: int, callback: Callable[[], object]) -> Timer:
        """Call back on the running loop once `now()` has reached `at`."""
        ...

    def sync(self, now: int) -> None:
        """Follow another clock, the database's, which just said `now`."""
        ...


class SystemClock:
    """The host's clock; once synced, the database's clock as carried on by the monotonic one."""

    def __init__(self) -> None:
        self._offset: int | None = None

    def now(self) -> int:
        if self._offset is None:
            return time.time_ns() // 1000
        return time.monotonic_ns() // 1000 + self._offset

    def sync(self, now: int) -> None:
        self._offset = now - time.monotonic_ns() // 1000

    def call_at(self, at: int, callback: Callable[[], object]) -> Timer:
        return _SystemTimer(self, at, callback)


class _SystemTimer:
    """A timer that looks at the clock at least daily: the host's clock may be set meanwhile."""

    def __init__(self, clock: SystemClock, at: int, callback: Callable[[], object]) -> None:
        self._clock = clock
        self._at = at
        self._callback = callback
        self._arm()

    def _arm(self) -> None:
        delay = max(0, self._at - self._clock.now()) / SECOND
        loop = asyncio.get_running_loop()
        if delay > 86_400:
            self._handle = loop.call_later(86_400, self._arm)
        else:
            self._handle = loop.call_later(delay, self._callback)

    def cancel(self) -> None:
        self._handle.cancel()


async def sleep(clock: Clock, seconds: float) -> None:
    """Sleep on that clock."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not done.done():
            done.set_result(None)

    timer = clock.call_at(clock.now() + int(seconds * SECOND), wake)
    try:
        await done
    finally:
        timer.cancel()


class TimeLimit:
    """`async with TimeLimit(clock, seconds) as limit`: TimeoutError once that time has passed.

    With `unless` it is asked then, and every second from then on, whether there is more time.
    """

    def __init__(
        self, clock: Clock, seconds: float | None, unless: Callable[[], bool] | None = None
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._unless = unless
        self._limit = asyncio.timeout(None)
        self._timer: Timer | None = None

    async def __aenter__(self) -> TimeLimit:
        await self._limit.__aenter__()
        if self._seconds is not None:
            self._expire_in(self._seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        # It refers to this: both would wait for the garbage collector.
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def _expire_in(self, seconds: float) -> None:
        at = self._clock.now() + int(seconds * SECOND)
        self._timer = self._clock.call_at(at, self._expire)

    def _expire(self) -> None:
        if self._unless is not None and self._unless():
            self._expire_in(1)
        else:
            self._limit.reschedule(asyncio.get_running_loop().time())

    @property
    def passed(self) -> bool:
        """Whether a TimeoutError is this limit's."""
        return self._limit.expired()


async def wait_by(clock: Clock, at: int, event: asyncio.Event) -> None:
    """Wait for an event, but no longer than until then."""
    if (left := at - clock.now()) > 0:
        with suppress(TimeoutError):
            async with TimeLimit(clock, left / SECOND):
                await event.wait()


def moment(at: int) -> datetime:
    """Microseconds as a datetime in UTC, exactly."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)


def to_datetime(at: int | None) -> datetime | None:
    return None if at is None else moment(at)


def shown(at: int) -> str:
    """A time for people, to the second."""
    return moment(at).strftime("%Y-%m-%d %H:%M:%SZ")


def to_micros(at: datetime) -> int:
    """An aware datetime as microseconds; a naive one is taken as UTC."""
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    delta = at - datetime(1970, 1, 1, tzinfo=UTC)
    micros = (delta.days * 86_400 + delta.seconds) * SECOND + delta.microseconds
    if not 0 <= micros <= LAST:
        raise InvalidInput(f"{at} does not lie between the years 1970 and 9999 of UTC.")
    return micros

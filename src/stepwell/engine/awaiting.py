"""What a program may wait for: time, events and people; and the events that it emits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from stepwell.engine.failures import place_of
from stepwell.engine.journaling import Journaling, value_of
from stepwell.engine.stepcall import entry_of
from stepwell.errors import WaitTimedOut
from stepwell.kernel.changes import OpenWait, RecordStep, WaitRow
from stepwell.kernel.clock import SECOND, to_micros
from stepwell.kernel.codec import encode
from stepwell.kernel.durations import Duration, seconds
from stepwell.kernel.matching import check_match, term_of
from stepwell.kernel.names import check_text, check_time
from stepwell.kernel.tracing import step_span

# What people are asked for: a decision, or to do something.
Asked = Literal["gate", "task"]


class Awaiting(Journaling):
    """Durable waits of one run."""

    # -- time ----------------------------------------------------------------------------

    async def sleep(self, name: str, duration: Duration) -> None:
        """Sleep durably; no process is held meanwhile."""
        wanted = seconds(duration, f"The duration of sleep {name!r}")
        await self._sleep(name, self._execution.clock.now() + int(wanted * SECOND))

    async def sleep_until(self, name: str, at: datetime) -> None:
        """Sleep until a moment; a naive datetime is taken as UTC."""
        await self._sleep(name, to_micros(check_time(at, f"The time of sleep_until {name!r}")))

    async def _sleep(self, name: str, due_at: int) -> None:
        key, seq = self._begin(name)
        execution = self._execution
        entry = execution.entry(key, "sleep")
        if entry is None:
            opening = OpenWait(
                execution.held, key, seq, "sleep", execution.clock.now(), due_at=due_at
            )
            with self._giving_up(key, seq, "sleep"):
                entry = await self._wait(opening, lambda row: ("completed", None, None))
                await self._settled(entry, waited=True)
        else:
            await self._replay(entry)

    # -- events --------------------------------------------------------------------------

    async def wait_for_event(
        self, name: str, event: str | None = None, *, match: Mapping[str, Any] | None = None,
        timeout: Duration | None = None, lookback: Duration | None = None,
        raise_on_timeout: bool = False,
    ) -> Any:  # fmt: skip
        """Wait for a signal or event; its payload, or None after the timeout.

        `event` is the type to wait for, the name of the wait unless said. Events of the workspace
        count from the moment of the wait on, with `lookback` also from so long before, up to
        7 days; signals to this run are kept until a wait takes them. As a payload may be None
        too, `raise_on_timeout` raises WaitTimedOut instead.
        """
        key, seq = self._begin(name)
        execution = self._execution
        entry = execution.entry(key, "event")
        if entry is None:
            now = execution.clock.now()
            wanted = None if match is None else check_match(match, f"The match of {key!r}")
            opening = OpenWait(
                execution.held, key, seq, "event", now,
                due_at=_later(now, timeout, f"The timeout of {key!r}"),
                event=check_text(event if event is not None else name, "An event's type"),
                match=None if wanted is None else encode(wanted, "A match"),
                term=term_of(wanted) if wanted is not None else "",
                since=None
                if lookback is None
                else now - int(seconds(lookback, f"The lookback of {key!r}") * SECOND),
            )  # fmt: skip
            with self._giving_up(key, seq, "event"):
                entry = await self._wait(opening, _event_outcome)
                await self._settled(entry, waited=True)
        else:
            await self._replay(entry)
        if entry.status == "timed_out":
            if raise_on_timeout:
                late = WaitTimedOut(f"No event came for {key!r} in time.", step=key)
                late.journaled = place_of(entry)
                raise late
            return None
        return value_of(entry)

    async def emit(
        self, type: str, payload: Any = None, *, key: str | None = None, once: bool = False
    ) -> None:
        """Emit an event of the workspace; with `once`, the first of that type and key wins."""
        check_text(type, "An event's type")
        await self.emit_as(f"emit:{type}", type, payload, key=key, once=once)

    async def emit_as(
        self, name: str, type: str, payload: Any = None, *, key: str | None = None,
        once: bool = False,
    ) -> None:  # fmt: skip
        """The same under a name in the journal that somebody else has chosen."""
        journal_key, seq = self._begin_own(name)
        execution = self._execution
        entry = execution.entry(journal_key, "emit")
        if entry is not None:
            await self._replay(entry)
            return
        with self._giving_up(journal_key, seq, "emit"):
            trace = self._traceparent(step_span(self.claimed.id, journal_key, 1))
            change = self._starter.event(type, payload, key, once, traceparent=trace)
            await execution.caught_up()
            with self._at_work():
                change.held = execution.held
                now = execution.clock.now()
                record = RecordStep(
                    execution.held, journal_key, seq, "emit", "completed", 1, None, None, now, now
                )
                await execution.record(change, record)
                await self._settled(entry_of(record))

    # -- people --------------------------------------------------------------------------

    async def ask(
        self, name: str, kind: Asked, event: str, about: Any, timeout: Duration | None = None
    ) -> tuple[bool, Any]:
        """Wait until somebody answers with the signal `event`: whether one did, and the answer.

        `about` says what is wanted; it can be seen while the run waits.
        """
        key, seq = self._begin_own(name)
        execution = self._execution
        entry = execution.entry(key, kind)
        if entry is None:
            now = execution.clock.now()
            opening = OpenWait(
                execution.held, key, seq, kind, now,
                due_at=_later(now, timeout, f"The timeout of {key!r}"), event=event,
                about=encode(about, "What is asked"),
            )  # fmt: skip
            with self._giving_up(key, seq, kind):
                entry = await self._wait(opening, _event_outcome)
                await self._settled(entry, waited=True)
        else:
            await self._replay(entry)
        return entry.status != "timed_out", value_of(entry)

    async def answer(self, name: str, kind: Asked, value: Any) -> None:
        """Record an answer to what nobody is asked, as if somebody had given it."""
        key, seq = self._begin_own(name)
        execution = self._execution
        entry = execution.entry(key, kind)
        if entry is not None:
            await self._replay(entry)
            return
        with self._giving_up(key, seq, kind), self._at_work():
            now = execution.clock.now()
            record = RecordStep(
                execution.held, key, seq, kind, "completed", 1, encode(value, "An answer"), None,
                now, now,
            )  # fmt: skip
            await execution.record(record)
            await self._settled(entry_of(record))


def _event_outcome(row: WaitRow) -> tuple[str, str | None, str | None]:
    return ("timed_out" if row.result is None else "completed", row.result, None)


def _later(now: int, duration: Duration | None, what: str) -> int | None:
    return None if duration is None else now + int(seconds(duration, what) * SECOND)

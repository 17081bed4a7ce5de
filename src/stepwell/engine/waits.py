"""What one program waits for: the rows the store told of, and the operations that wait on them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from stepwell.kernel.changes import OpenWait, WaitRow

# Waits that end by the clock alone.
_TIMED = ("sleep", "retry")


class Waits:
    """The waits of one execution."""

    def __init__(self, rows: Iterable[WaitRow]) -> None:
        self.rows = {row.key: row for row in rows}
        # Rows that the program has not come to yet.
        self.unseen = len(self.rows)
        self._futures: dict[str, asyncio.Future[WaitRow]] = {}
        self._due = {row.key: (row.kind, row.due_at) for row in self.rows.values()}
        # Those in which the program itself rests, not just some branch of it.
        self._resting: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._futures)

    def begin(self, opening: OpenWait, *, resting: bool) -> asyncio.Future[WaitRow]:
        """An operation waits; the future has the row once the wait has ended."""
        if opening.key not in self.rows:
            self._due[opening.key] = (opening.kind, opening.due_at)
        future: asyncio.Future[WaitRow] = asyncio.get_running_loop().create_future()
        self._futures[opening.key] = future
        if resting:
            self._resting.add(opening.key)
        return future

    def over(self, key: str) -> None:
        """The operation waits no longer, however that came."""
        self._futures.pop(key, None)
        self.rows.pop(key, None)
        self._due.pop(key, None)
        self._resting.discard(key)

    def news(self, rows: Iterable[WaitRow]) -> None:
        """The store says how the waits stand."""
        for row in rows:
            future = self._futures.get(row.key)
            if future is None and row.key not in self.rows:
                continue  # it has served already, and only its row is still there
            self.rows[row.key] = row
            if row.ended_at is not None and future is not None and not future.done():
                future.set_result(row)

    @property
    def open_keys(self) -> list[str]:
        """The keys of waits that have not ended."""
        return [key for key, future in self._futures.items() if not future.done()]

    @property
    def all_open(self) -> bool:
        return not any(future.done() for future in self._futures.values())

    @property
    def rests(self) -> bool:
        """Whether the program itself waits, so that nothing is lost when it leaves memory."""
        return bool(self._resting)

    @property
    def next_due_at(self) -> int | None:
        """When the first of the current waits runs out, if any does."""
        due = [self._due[key][1] for key in self._futures if key in self._due]
        return min((at for at in due if at is not None), default=None)

    @property
    def sleeps_until(self) -> int | None:
        """When the program goes on if it only waits for time; None if it may go on any moment."""
        if all(self._due[key][0] in _TIMED for key in self._futures if key in self._due):
            return self.next_due_at
        return None

    def refuse(self, error: BaseException, keys: Iterable[str]) -> None:
        """End these waits of the program's with this error."""
        for key in keys:
            future = self._futures.get(key)
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # nobody need be left who looks at it

    def cancel(self) -> None:
        for future in self._futures.values():
            future.cancel()

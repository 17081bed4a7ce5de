"""What a run notes down on the way, to be written along with whatever it records next."""

from __future__ import annotations

import asyncio
from typing import Any

from stepwell.engine.writer import Writer, fenced
from stepwell.kernel.changes import Change, RecordStep


class Notes:
    """Journal entries that need no commit of their own, and when the last of them is durable."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._entries: list[RecordStep] = []
        # Whether one of them is a decision that nothing durable tells of.
        self.decided = False
        # The last changes that took such a decision along; it is durable once they are.
        self.deciding: asyncio.Future[list[Any]] | None = None

    def add(self, entry: RecordStep) -> None:
        """Record this along with whatever is recorded next."""
        self._entries.append(entry)

    def decide(self, entry: RecordStep) -> None:
        """The same for what only the program knows: it is durable before another step is begun."""
        self._entries.append(entry)
        self.decided = True

    @property
    def undecided(self) -> bool:
        """Whether the program has decided something that is not durable yet."""
        return self.decided or (self.deciding is not None and not self.deciding.done())

    @property
    def lost(self) -> bool:
        """Whether what was decided last did not become durable."""
        if self.deciding is None or not self.deciding.done() or self.deciding.cancelled():
            return False
        return self.deciding.exception() is not None or fenced(self.deciding.result())

    def submit(self, *changes: Change) -> asyncio.Future[list[Any]]:
        """Ask for changes, along with what was noted."""
        entries, self._entries = self._entries, []
        submitted = self._writer.submit(*entries, *changes)
        if not self.decided:
            return submitted
        self.decided = False
        self.deciding = submitted
        return asyncio.shield(submitted)  # who gives up its own change still leaves the decision

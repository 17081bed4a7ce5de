"""What a run notes down on the way, to be written along with whatever it records next."""

from __future__ import annotations

import asyncio
from typing import Any

from stepwell.engine.writer import Writer, fenced, ignore_outcome
from stepwell.errors import Fenced, NotOpen, StoreUnavailable
from stepwell.kernel.changes import Change, RecordStep


class Notes:
    """Journal entries that need no commit of their own, and when the last of them is durable."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._entries: list[Change] = []
        # Whether one of them is a decision that nothing durable tells of.
        self.decided = False
        # The last of such decisions on their way.
        self.deciding: asyncio.Future[list[Any]] | None = None
        # Why one of them did not become durable.
        self.lost: BaseException | None = None

    def add(self, entry: Change) -> None:
        """Make this durable along with whatever is recorded next."""
        self._entries.append(entry)

    def decide(self, entry: RecordStep) -> None:
        """The same for what only the program knows: it is durable before another step is begun."""
        self._entries.append(entry)
        self.decided = True

    @property
    def undecided(self) -> bool:
        """Whether the program has decided something that is not durable yet."""
        return self.decided or (self.deciding is not None and not self.deciding.done())

    def submit(self, *changes: Change) -> asyncio.Future[list[Any]]:
        """Ask for changes, and before that for what was noted.

        Most often they share a commit. But changes that are refused, or given up by whoever wants
        them, do not take along what was noted.
        """
        entries, self._entries = self._entries, []
        if not entries:
            return self._writer.submit(*changes)
        noted = self._writer.submit(*entries)
        noted.add_done_callback(self._on_decided if self.decided else ignore_outcome)
        if self.decided:
            self.decided, self.deciding = False, noted
        return self._writer.submit(*changes) if changes else asyncio.shield(noted)

    def _on_decided(self, done: asyncio.Future[list[Any]]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, StoreUnavailable | NotOpen) or (not error and fenced(done.result())):
            self.lost = Fenced()  # nothing more can be recorded
        else:
            self.lost = self.lost or error

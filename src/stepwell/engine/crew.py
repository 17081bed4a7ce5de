"""A crew: who works for one workspace in this process, and who watches it."""

from __future__ import annotations

from stepwell.engine.feed import Feed
from stepwell.engine.housekeeping import Housekeeping
from stepwell.engine.worker import Worker


class Crew:
    """The workers, the housekeeping and the listeners of one workspace."""

    def __init__(self, workspace_id: str, feed: Feed) -> None:
        self.workspace_id = workspace_id
        self.feed = feed
        self.workers: list[Worker] = []
        self.housekeeping: Housekeeping | None = None

    def fire_soon(self) -> None:
        """Some trigger may have to fire."""
        if self.housekeeping is not None:
            self.housekeeping.wake()

    def claim_soon(self) -> None:
        for worker in self.workers:
            worker.claim_soon()

"""What others may observe of a Stepwell that is open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from stepwell.catalog import opentelemetry
from stepwell.engine.crew import Crew
from stepwell.settings import Settings
from stepwell.store import Store
from stepwell.telemetry import Telemetry


def tracing_of(settings: Settings, given: Sequence[Telemetry]) -> list[Telemetry]:
    """What makes spans, if the operator wants any and nobody has brought it along."""
    if settings.otlp_endpoint is None or any(part.traces for part in given):
        return []
    return [opentelemetry(settings.otlp_endpoint)]


class Observing:
    """One workspace in this process, as telemetry sees it."""

    def __init__(self, store: Store, crew: Crew) -> None:
        self._store = store
        self._crew = crew
        self.workspace = crew.workspace_id

    def in_flight(self) -> Mapping[str, int]:
        """How many runs of each definition are being executed here."""
        return Counter(name for worker in self._crew.workers for name in worker.definitions)

    async def queue_depth(self) -> int:
        """How many runs are due and taken up by nobody."""
        now = self._store.clock.now()
        return (await self._store.unclaimed(self.workspace, now))[0]

"""Who keeps a run in memory, as the run sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stepwell.engine.turns import Turns
from stepwell.engine.unwinding import Losses
from stepwell.telemetry import Telemetry

if TYPE_CHECKING:
    from stepwell.engine.execution import Execution


class Keeper(Protocol):
    """Who is told when a run begins to wait, by itself or beside other work, and goes on."""

    turns: Turns
    losses: Losses
    telemetry: Telemetry

    def parking(self, execution: Execution) -> None:
        """The run is about to be parked."""
        ...

    def opened(self, execution: Execution, parks: bool) -> None:
        """The run's waits are open; it is parked, or works on beside them."""
        ...

    def resumed(self, execution: Execution) -> None:
        """The run goes on though it was parked, or was about to be."""
        ...

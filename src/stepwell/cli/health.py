"""Whether anybody works: living workers, their last heartbeat, and runs that nobody claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from stepwell.cli.output import count, span
from stepwell.cli.session import WORKSPACE
from stepwell.kernel.clock import SECOND, to_datetime
from stepwell.kernel.run import WorkerInfo

if TYPE_CHECKING:
    from stepwell.app import Stepwell

OLD_HEARTBEAT_SECONDS = 90
UNCLAIMED_SECONDS = 10


class Alert(msgspec.Struct):
    """Something an operator should look at."""

    code: str
    message: str


class Health(msgspec.Struct):
    """How the workers of a store are."""

    alive: int
    last_heartbeat_seconds: float | None
    unclaimed: int
    oldest_unclaimed: str | None
    warnings: list[Alert]

    def lines(self) -> list[str]:
        """What a list of runs, triggers or workers begins with."""
        beat = (
            "none has reported"
            if self.last_heartbeat_seconds is None
            else f"last heartbeat {span(self.last_heartbeat_seconds)} ago"
        )
        return [f"{count(self.alive, 'worker')} alive, {beat}.", *self.warned(), ""]

    def warned(self, *codes: str) -> list[str]:
        """The warnings as lines, or only those with these codes."""
        return [
            f"Warning: {warning.message}"
            for warning in self.warnings
            if not codes or warning.code in codes
        ]


async def health_of(stepwell: Stepwell, workers: list[WorkerInfo]) -> Health:
    """The health of these workers, all there are, and of the queue before them."""
    now = to_datetime(stepwell.store.clock.now())
    assert now is not None
    last = max((worker.heartbeat_at for worker in workers), default=None)
    age = None if last is None else max((now - last).total_seconds(), 0.0)
    before = stepwell.store.clock.now() - UNCLAIMED_SECONDS * SECOND
    unclaimed, oldest = await stepwell.store.unclaimed(WORKSPACE, before)
    health = Health(sum(worker.alive for worker in workers), age, unclaimed, oldest, [])
    health.warnings.extend(_warnings(health))
    return health


async def warn_without_worker(stepwell: Stepwell) -> None:
    """Say on standard error that what was just asked for waits until there is a worker."""
    health = await health_of(stepwell, await stepwell.workers())
    for line in health.warned("no_worker"):
        click.echo(line, err=True)


def _warnings(health: Health) -> list[Alert]:
    found = []
    age = health.last_heartbeat_seconds
    if health.alive == 0:
        found.append(
            Alert("no_worker", "No worker is alive. Start one: stepwell worker [MODULE:NAME …]")
        )
    if age is not None and age > OLD_HEARTBEAT_SECONDS:
        found.append(Alert("old_heartbeat", f"The last heartbeat is {span(age)} old."))
    if health.unclaimed:
        runs = count(health.unclaimed, "runnable run")
        found.append(
            Alert(
                "unclaimed_runs",
                f"{runs} unclaimed for more than {UNCLAIMED_SECONDS} s; "
                f"see: stepwell runs explain {health.oldest_unclaimed}",
            )
        )
    return found

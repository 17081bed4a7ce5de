"""Whether anybody works: living workers, their last heartbeat, and runs that nobody claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click
import msgspec

from stepwell.cli.output import count, span
from stepwell.operations.workers import UNCLAIMED_SECONDS, WorkerHealth, Workers

if TYPE_CHECKING:
    from stepwell.app import Stepwell

OLD_HEARTBEAT_SECONDS = 90


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


async def looked(stepwell: Stepwell) -> WorkerHealth:
    """How the workers are now, and when that is: the time is where the runs are."""
    return await cast("Workers", stepwell.noun("workers")).health()


async def health_of(stepwell: Stepwell) -> Health:
    """The health of the workers, and of the queue before them."""
    return judged(await looked(stepwell))


def judged(found: WorkerHealth) -> Health:
    """What to think of it."""
    last, age = found.last_heartbeat_at, None
    if last is not None:
        age = max((found.looked_at - last).total_seconds(), 0.0)
    health = Health(found.alive, age, found.unclaimed, found.oldest_unclaimed, [])
    health.warnings.extend(_warnings(health))
    return health


async def warn_without_worker(stepwell: Stepwell) -> None:
    """Say on standard error that what was just asked for waits until there is a worker."""
    health = await health_of(stepwell)
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

"""Whether anybody works: living workers, their last heartbeat, and runs that nobody claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import click
import msgspec

from stepwell.cli.output import count, span
from stepwell.operations.workers import UNCLAIMED_SECONDS, WorkerHealth, Workers

if TYPE_CHECKING:
    from stepwell.app import Stepwell

OLD_HEARTBEAT_SECONDS = 90
# How long a run may take to be begun before whoever waits for it is told that nobody can.
PATIENCE_SECONDS = 2


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


@asynccontextmanager
async def warned_if_unclaimed(stepwell: Stepwell, run_id: str) -> AsyncIterator[None]:
    """Say on standard error, while a run is waited for, if it waits until somebody acts."""
    await warn_without_worker(stepwell)
    warning = asyncio.create_task(_warn_of_lack(stepwell, run_id))
    try:
        yield
    finally:
        warning.cancel()
        # What goes wrong with a hint is no failure of waiting.
        await asyncio.gather(warning, return_exceptions=True)


async def _warn_of_lack(stepwell: Stepwell, run_id: str) -> None:
    """Living workers lack what the run needs: no waiting helps, until one starts that has it."""
    await asyncio.sleep(PATIENCE_SECONDS)
    explanation = await stepwell.explain(run_id)
    if explanation.code.startswith("unknown_"):
        click.echo(f"Warning: {explanation.code}: {explanation.message}", err=True)


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

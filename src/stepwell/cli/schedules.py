"""`stepwell schedules`: what a schedule means, before anything depends on it."""

from __future__ import annotations

from typing import Any

import click

from stepwell.cli.arguments import as_json, read_duration
from stepwell.cli.output import emit, fire_lines
from stepwell.errors import InvalidInput
from stepwell.kernel.clock import SECOND, SystemClock
from stepwell.kernel.schedules import Schedule
from stepwell.kernel.zones import local, read_local, zone_named

MOST_SHOWN = 1000


@click.group()
def schedules() -> None:
    """Schedules of definitions.

    \b
    Example:
      stepwell schedules preview "@daily" --tz Europe/Berlin
    """


@schedules.command()
@click.argument("words", metavar="[CRON]", nargs=-1)
@click.option("--every", metavar="DURATION", help="Even steps beginning at --from, not CRON.")
@click.option("--tz", "zone", metavar="ZONE", default="UTC", help="The time zone; else UTC.")
@click.option(
    "--from", "begin", metavar="TIME",
    help="Show what comes after it: ISO 8601, in ZONE unless it has an offset; else now.",
)  # fmt: skip
@click.option(
    "--count", type=click.IntRange(1, MOST_SHOWN), default=5, metavar="N",
    help=f"How many times to show: 5, at most {MOST_SHOWN}.",
)  # fmt: skip
@as_json
def preview(
    words: tuple[str, ...],
    every: str | None,
    zone: str,
    begin: str | None,
    count: int,
    as_json: bool,
) -> None:
    """Say in words what a schedule means, and when it fires next. It needs no store.

    CRON has five fields, or is a name like "@daily".

    \b
    Example:
      stepwell schedules preview "0 2 * * 1-5" --tz Europe/Berlin --from 2026-03-27
    """
    if len(words) > 1:
        raise click.UsageError(
            'Put the cron expression into quotes, like "0 2 * * 1-5": it is one argument, and '
            "without them the shell makes names of files of each *."
        )
    cron = words[0] if words else None
    if (cron is None) == (every is None):
        raise click.UsageError("Give a cron expression or --every, one of the two.")
    after = _begin(begin, zone)
    way: dict[str, Any] = {"cron": cron} if every is None else {"every": read_duration(every)}
    schedule = Schedule.read(way, zone, after)
    clock = zone_named(zone)
    fires = [local(at, clock) for at in schedule.next_fires(after, count)]
    described = schedule.described()
    if as_json:
        shown = {"timezone": zone, "description": described}
        emit({"cron": cron, **way, **shown, "next": [at.isoformat() for at in fires]})
        return
    lines = fire_lines(fires, local(after, clock)) or ["  It does not fire any more."]
    click.echo("\n".join([described, *lines]))


def _begin(text: str | None, zone: str) -> int:
    if text is None:
        return SystemClock().now() // SECOND * SECOND
    try:
        return read_local(text, zone_named(zone))
    except ValueError as error:
        raise InvalidInput(
            f"--from: {text!r} is no time: {error}. Write one like 2026-01-31T12:00."
        ) from error

"""`stepwell runs watch`: what happens to a run, line by line, as it happens."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.arguments import common, run_id
from stepwell.cli.output import brief, emit
from stepwell.cli.session import connected

if TYPE_CHECKING:
    from stepwell.app import Stepwell
    from stepwell.kernel.feed import RunEvent

_SIGNS = {
    "run.started": "▶", "run.waiting": "…", "run.resumed": "▶", "run.finished": "■",
    "step.started": "·", "step.completed": "✓", "step.failed": "✗", "step.retrying": "↻",
    "step.cancelled": "–", "step.skipped": "–", "gate.required": "?", "gate.approved": "✓",
    "gate.denied": "✗", "gate.expired": "✗",
}  # fmt: skip


@click.command("watch")
@run_id
@click.option("--after", metavar="ID", help="Go on behind the event with this id.")
@common
def watch(run_id: str, after: str | None, store: str | None, as_json: bool) -> None:
    """Tell what happens to a run, as it happens, until it has ended.

    With --json every event is a document of its own, on a line of its own; whoever was interrupted
    goes on with the id of the last one. That the run ends badly is no error of watching it.

    \b
    Examples:
      stepwell runs watch RUN
      stepwell runs watch RUN --json --after ID
    """

    async def work(stepwell: Stepwell) -> None:
        if (await stepwell.get_run(run_id)).status == "pending":
            click.echo(f"  {(await stepwell.explain(run_id)).message}", err=True)
        last = after
        try:
            async with aclosing(stepwell.watch(run_id, after)) as events:
                async for event in events:
                    last = event.id
                    if as_json:
                        emit(event)
                    else:
                        click.echo(_line(event))
        except asyncio.CancelledError:
            behind = "" if last is None else f" --after {last}"
            click.echo(f"To go on: stepwell runs watch {run_id}{behind}", err=True)
            raise

    connected(store, work)


def _line(event: RunEvent) -> str:
    said = " ".join(" ".join(_details(event.data)).split())  # messages may have several lines
    return f"{event.at:%H:%M:%S} {_SIGNS[event.type]} {event.type} {said:.200}".rstrip()


def _details(data: dict[str, Any]) -> list[str]:
    """What an event says beside its type, for people."""
    error = data.get("error")
    waits = [f"{each['step']} ({each['kind']})" for each in data.get("waits", ())]
    return [
        data.get("step", ""),
        data.get("status", ""),
        f"(attempt {data['attempt']})" if data.get("attempt", 1) > 1 else "",
        ", ".join(waits),
        data.get("prompt", ""),
        f"by {', '.join(data['by'])}" if data.get("by") else "",
        f"{error['type']}: {error['message']}" if error else "",
        brief(data["output"]) if data.get("output") is not None else "",
    ]

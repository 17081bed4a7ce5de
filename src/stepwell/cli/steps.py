"""`stepwell steps`: what a run waits for somebody to do, and saying that it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from stepwell.cli.arguments import common, read_json, run_id
from stepwell.cli.output import emit
from stepwell.cli.session import connected

if TYPE_CHECKING:
    from stepwell.app import Stepwell
    from stepwell.operations.steps import Steps, Task


@click.group()
def steps() -> None:
    """Tasks of runs: what is to be done, and that it was done.

    \b
    Example:
      stepwell steps current RUN
    """


@steps.command()
@run_id
@common
def current(run_id: str, store: str | None, as_json: bool) -> None:
    """Show the tasks that a run waits for.

    \b
    Example:
      stepwell steps current RUN
    """

    async def work(stepwell: Stepwell) -> tuple[str, list[Task]]:
        run = await stepwell.get_run(run_id)
        return run.status, await cast("Steps", stepwell.noun("steps")).tasks(run_id)

    status, tasks = connected(store, work)
    if as_json:
        emit({"run_id": run_id, "status": status, "items": tasks})
        return
    if not tasks:
        click.echo(f"Run {run_id} is {status} and waits for no task.")
    for task in tasks:
        click.echo(f"{task.step}: {task.title}")
        for field in ("instructions", "acceptance", "assignee"):
            if said := getattr(task, field):
                click.echo(f"  {field}: {said}")


@steps.command()
@run_id
@click.argument("step", metavar="STEP")
@click.option("--summary", default="", metavar="TEXT", help="What was done.")
@click.option("--output", metavar="JSON", help="What later steps may need of it.")
@click.option("--failed", is_flag=True, help="It could not be done; the summary says why.")
@common
def advance(
    run_id: str, step: str, summary: str, output: str | None, failed: bool, store: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Say that a task was done; its run goes on.

    STEP is the id of the task as `steps current` shows it. A worker takes the run up, or
    `stepwell resume RUN` does.

    \b
    Example:
      stepwell steps advance RUN build --summary 'built 1.4.2' --output '{"size": 12}'
    """
    value = None if output is None else read_json(output, "--output")

    async def work(stepwell: Stepwell) -> None:
        await stepwell.advance(run_id, step, summary=summary, output=value, failed=failed)

    connected(store, work)
    if as_json:
        emit({"run_id": run_id, "step": step, "advanced": True})
    else:
        click.echo(f"Advanced. If no worker is alive: stepwell resume {run_id}")

"""`stepwell demo`: kill a worker in the middle of a step, and see the run finish anyway."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from stepwell.cli.arguments import as_json
from stepwell.cli.demo_workflow import DOOR, LOG, order
from stepwell.cli.exits import FAILURE
from stepwell.cli.output import compact, emit, span, table
from stepwell.cli.session import stepwell_at

INTERRUPTED = "charge-card"
STEPS = ("reserve-stock", INTERRUPTED, "send-receipt")
OUTPUT = {"reservation": 7, "receipt": 42, "mail": "receipt 42 sent"}
PATIENCE_SECONDS = 15.0

Say = Callable[[str], None]


class Report(msgspec.Struct):
    """What happened, and whether it was what was promised."""

    held: bool
    promises: dict[str, bool]
    executions: dict[str, int]
    recorded_before_the_kill: list[str]
    run_id: str
    status: str
    output: Any
    seconds: float


@click.command()
@as_json
def demo(as_json: bool) -> None:
    """Kill a worker in the middle of a step, and see the run finish anyway.

    Uses a store of its own in a temporary folder, and leaves nothing behind. Exits with 40
    if a promise was not kept.

    \b
    Examples:
      stepwell demo
      stepwell demo --json
    """
    say: Say = (lambda _: None) if as_json else click.echo
    with tempfile.TemporaryDirectory(prefix="stepwell-demo-") as folder:
        report = asyncio.run(_perform(folder, say))
    if as_json:
        emit(report)
    else:
        click.echo("\n".join(_summary(report)))
    if not report.held:
        sys.exit(FAILURE)


async def _perform(folder: str, say: Say) -> Report:
    began = asyncio.get_running_loop().time()
    url = f"sqlite:///{folder}/demo.db"
    async with stepwell_at(url, [order]) as stepwell:
        handle = await stepwell.start(order.name, {"folder": folder})
        say(f"1. Started run {handle.id}: reserve-stock, a sleep, charge-card, send-receipt.")
        async with _worker(url) as first:
            await _until(lambda: INTERRUPTED in _executions(folder), "charge-card to begin", first)
            before = [step.key for step in await stepwell.steps(handle.id) if step.completed_at]
            say(f"2. Worker process {first.pid} has recorded {', '.join(before)}")
            say(f"   and is in the middle of {INTERRUPTED}. Killing it with SIGKILL.")
            first.kill()
            await first.wait()
        _open_the_door(folder)
        async with _worker(url) as second:
            say(f"3. Started worker process {second.pid}, which finds the run and goes on.")
            output = await handle.result(PATIENCE_SECONDS)
        run = await stepwell.get_run(handle.id)
        journal = {step.key: step for step in await stepwell.steps(handle.id)}
    counts = _executions(folder)
    promises = {
        "the run completed, with the output of an undisturbed run": output == OUTPUT,
        "every step is recorded as completed": all(
            key in journal and journal[key].status == "completed" for key in STEPS
        ),
        "what was recorded before the kill was not executed again": "reserve-stock" in before
        and all(counts[key] == 1 for key in before if key in STEPS),
        "the interrupted step, which was not recorded, was executed again": counts[INTERRUPTED]
        == 2,
        "the step after it was executed once": counts["send-receipt"] == 1,
    }
    return Report(
        held=all(promises.values()),
        promises=promises,
        executions=dict(counts),
        recorded_before_the_kill=before,
        run_id=run.id,
        status=run.status,
        output=output,
        seconds=round(asyncio.get_running_loop().time() - began, 3),
    )


def _summary(report: Report) -> list[str]:
    counts = [(key, report.executions.get(key, 0)) for key in STEPS]
    return [
        f"4. The run is {report.status} after {span(report.seconds)}: {compact(report.output)}",
        "",
        *table(("step", "executions"), counts),
        "",
        *(f"{'held' if held else 'BROKEN'}: {what}" for what, held in report.promises.items()),
    ]


def _open_the_door(folder: str) -> None:
    """Let the slow service of charge-card answer from now on."""
    Path(folder, DOOR).touch()


def _executions(folder: str) -> Counter[str]:
    log = Path(folder, LOG)
    return Counter(log.read_text("utf-8").split() if log.exists() else ())


@asynccontextmanager
async def _worker(url: str) -> AsyncIterator[Process]:
    """A worker process; whatever is left of it at the end is stopped."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "stepwell.cli", "worker", "stepwell.cli.demo_workflow:order",
        "--store", url, "--grace", "0s", stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def _until(condition: Callable[[], bool], what: str, process: Process) -> None:
    clock = asyncio.get_running_loop().time
    latest = clock() + PATIENCE_SECONDS
    while not condition():
        if process.returncode is not None:
            raise TimeoutError(f"The worker process ended with {process.returncode}.")
        if clock() > latest:
            raise TimeoutError(f"Waited {PATIENCE_SECONDS:g} s in vain for {what}.")
        await asyncio.sleep(0.01)

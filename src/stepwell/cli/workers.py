"""`stepwell worker` executes runs; `stepwell workers` shows who does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.arguments import as_json, common, read_duration, store_alone
from stepwell.cli.exposing import HIGHEST_PORT, Showing, shown
from stepwell.cli.health import Health, health_of
from stepwell.cli.output import emit, moment, table
from stepwell.cli.session import connected, stepwell_at, store_url
from stepwell.cli.supervisor import (
    Document,
    Supervisor,
    Tie,
    catch_signals,
    keep_what_is_there,
)
from stepwell.cli.targets import Targets, load_targets
from stepwell.kernel.durations import lease_seconds, seconds
from stepwell.kernel.names import check_count
from stepwell.kernel.programs import shown_program
from stepwell.kernel.run import WorkerInfo
from stepwell.kernel.urls import shown_url
from stepwell.settings import Settings

if TYPE_CHECKING:
    from stepwell.app import Stepwell

log = logging.getLogger("stepwell.worker")


@click.command()
@click.argument("targets", metavar="[MODULE[:NAME]]...", nargs=-1)
@click.option("--processes", type=int, default=1, show_default=True, help="So many processes.")
@click.option(
    "--concurrency", type=int, default=100, show_default=True, help="Runs at a time, per process."
)
@click.option(
    "--lease",
    default="15s",
    show_default=True,
    metavar="DURATION",
    help="Without a sign of life for this long, others take the runs over.",
)
@click.option(
    "--grace",
    default="5s",
    show_default=True,
    metavar="DURATION",
    help="When stopped, time for steps in progress to finish.",
)
@click.option(
    "--metrics-port", type=click.IntRange(0, HIGHEST_PORT),
    help="Show /metrics and /healthz there; each further process takes the next port.",
)  # fmt: skip
@click.option(
    "--metrics-host", default="127.0.0.1", show_default=True, help="The address to show them at."
)
@click.option("--supervised", type=int, hidden=True)
@store_alone
@as_json
def worker(
    targets: tuple[str, ...], processes: int, concurrency: int, lease: str, grace: str,
    metrics_port: int | None, metrics_host: str, supervised: int | None, store: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Execute runs until stopped by SIGTERM or Ctrl-C.

    A worker works on a store, never through a server. Runs of graphs are executed by every
    worker. MODULE:NAME names a workflow, a function that nodes call, or a list of them; MODULE
    alone means all that are in it. Modules are looked for in the working directory first. With
    several processes, one that crashes is replaced after a pause.

    \b
    Examples:
      stepwell worker examples.onboarding:onboard
      stepwell worker app.jobs app.billing:ALL --processes 4 --store postgresql://host/db
      stepwell worker app.jobs --processes 4 --metrics-port 9100
    """
    from stepwell.app.logs import configure_logs

    configure_logs(Settings.read().log_format, sys.stderr)
    loaded = load_targets(targets)
    check_count(processes, "--processes")
    shape = {
        "concurrency": check_count(concurrency, "--concurrency"),
        "lease": lease_seconds(read_duration(lease), "--lease"),
        "grace": seconds(read_duration(grace), "--grace"),
    }

    def ready(found: list[Document]) -> None:
        with contextlib.suppress(OSError):  # nobody reads it, but there is work to do
            say_ready(found)

    def say_ready(found: list[Document]) -> None:
        definitions = [{"name": each.name, "version": each.version} for each in loaded.workflows]
        where = shown_url(store_url(store))
        if as_json:
            emit({"store": where, "definitions": definitions, "workers": found})
            return
        named = [f"{each['name']} v{each['version']}" for each in definitions]
        names = ", ".join([*named, "graphs"])
        for each in found:
            click.echo(f"Worker {each['id']} is ready (process {each['pid']}).")
            if each["metrics"] is not None:
                click.echo(f"Its metrics are at {each['metrics']}")
        click.echo(f"Executing {names} from {where}. Stop with Ctrl-C.")

    showing = Showing(metrics_host, metrics_port)
    if processes == 1:
        with showing.listening() as listening:
            asyncio.run(_work_until_stopped(store, loaded, shape, listening, supervised, ready))
        _leave()
    # Whatever is wrong with ports, store or definitions shows here, before processes multiply it.
    showing.check(processes)
    asyncio.run(_open_once(store, loaded))
    command = [
        sys.executable, "-m", "stepwell.cli", "worker", *targets,
        "--concurrency", str(concurrency), "--lease", lease, "--grace", grace,
        *(() if store is None else ("--store", store)),
    ]  # fmt: skip
    # One that replaces another shows its metrics where that one did.
    commands = [[*command, *showing.of_process(number).words] for number in range(processes)]
    asyncio.run(Supervisor(commands, shape["grace"], ready).run())


async def _open_once(store: str | None, loaded: Targets) -> None:
    async with stepwell_at(store, *loaded):
        pass


async def _work_until_stopped(
    store: str | None, loaded: Targets, shape: dict[str, Any], listening: socket.socket | None,
    supervised: int | None, ready: Callable[[list[Document]], None],
) -> None:  # fmt: skip
    stop = asyncio.Event()
    tie = None if supervised is None else Tie(supervised, stop)
    catch_signals(stop)
    up = asyncio.Event()

    async def work() -> None:
        from stepwell.app.hosting import Host, Shape

        whole = Shape(tuple(loaded.workflows), tuple(loaded.functions), shape)
        host = Host(store_url(store), whole, Settings.read())
        # Shown until the last step has ended.
        async with shown(host.metrics, listening) as metrics, host:
            up.set()
            worker_id = host.workers[host.first_id].id
            found = {"id": worker_id, "pid": os.getpid(), "metrics": metrics}
            if tie is None:
                ready([found])
            else:
                tie.say(found)
            keep_what_is_there()
            await stop.wait()
            if tie is None:
                log.info("Stopping; steps in progress are given a moment.")

    working = asyncio.create_task(work())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if up.is_set() or working.done():
        await working
    else:
        working.cancel()  # the store did not let us in yet; there is nothing to give back


def _leave() -> None:
    """End the process even if a step function still blocks one of its threads."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):  # closed from the start, or by now
            stream.flush()
    this = threading.current_thread()
    if any(thread is not this and not thread.daemon for thread in threading.enumerate()):
        os._exit(0)
    sys.exit(0)


@click.command()
@common
def workers(store: str | None, as_json: bool) -> None:
    """Show the workers of the store and their health.

    \b
    Example:
      stepwell workers --json
    """

    async def work(stepwell: Stepwell) -> tuple[Health, list[WorkerInfo]]:
        return await health_of(stepwell), await stepwell.workers()

    health, found = connected(store, work)
    if as_json:
        emit({"health": health, "items": found})
        return
    heads = ("worker", "host", "process", "alive", "runs at a time", "heartbeat", "definitions")
    rows = [
        (
            each.id,
            each.host.partition("/")[0],
            each.pid,
            "yes" if each.alive else "no",
            each.concurrency,
            moment(each.heartbeat_at),
            ", ".join(map(shown_program, each.programs)),
        )
        for each in found
    ]
    click.echo("\n".join([*health.lines(), *(table(heads, rows) if rows else [])]).rstrip())

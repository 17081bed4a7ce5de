"""`stepwell runs`: everything one can do with runs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.arguments import (
    common,
    read_deadline,
    read_duration,
    read_input,
    read_json,
    read_pairs,
    read_time,
    run_id,
    waiting,
)
from stepwell.cli.exits import StoppedWaiting
from stepwell.cli.gates import gate_document, gate_lines
from stepwell.cli.health import Health, judged, looked, warned_if_unclaimed
from stepwell.cli.output import compact, emit
from stepwell.cli.runtext import list_lines, show_lines
from stepwell.cli.session import by, connected
from stepwell.errors import SignalNotDelivered
from stepwell.kernel.durations import seconds
from stepwell.kernel.records import GateRecord
from stepwell.kernel.run import Explanation, Page, Run, Step
from stepwell.kernel.states import TRANSITIONS

if TYPE_CHECKING:
    from stepwell.app import RunHandle, Stepwell


@click.group(invoke_without_command=True)
@common
@click.pass_context
def runs(context: click.Context, store: str | None, as_json: bool) -> None:
    """Start runs, look at them, and act on them; by itself, the same as `runs list`.

    \b
    Examples:
      stepwell runs list --status failed --since 1h
      stepwell runs start onboard-user '{"email": "a@b.c"}' --wait
      stepwell runs show RUN
    """
    if context.invoked_subcommand is None:
        context.invoke(list_, store=store, as_json=as_json)
    else:  # `runs --json list` is `runs list --json`
        given = {"store": store, "as_json": as_json}
        context.default_map = {context.invoked_subcommand: given}


# -- looking -----------------------------------------------------------------------------


@runs.command("list")
@click.option(
    "--status",
    multiple=True,
    metavar="STATUS",
    help=f"One of {', '.join(TRANSITIONS)}; repeatable.",
)
@click.option("--definition", metavar="NAME", help="Only runs of this definition.")
@click.option(
    "--since", metavar="TIME", help="Created since then: ISO 8601, or how long ago (90m)."
)
@click.option("--until", metavar="TIME", help="Created before then.")
@click.option(
    "--input",
    "fields",
    multiple=True,
    metavar="K=V",
    help="Only runs whose input has this; a.b=1 looks inside; repeatable.",
)
@click.option(
    "--limit", type=int, default=50, show_default=True, help="At most so many, up to 1000."
)
@click.option("--cursor", metavar="CURSOR", help="Go on where the previous list ended.")
@common
def list_(
    status: tuple[str, ...], definition: str | None, since: str | None, until: str | None,
    fields: tuple[str, ...], limit: int, cursor: str | None, store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """List runs, newest first, led by the health of the workers.

    \b
    Examples:
      stepwell runs list
      stepwell runs list --status failed --status timed_out --since 24h
      stepwell runs list --definition onboard-user --input user.id=42 --json
    """

    async def work(stepwell: Stepwell) -> tuple[Health, Page]:
        found = await looked(stepwell)
        now = found.looked_at
        page = await stepwell.list_runs(
            status=list(status) or None,
            definition=definition,
            since=None if since is None else read_time(since, "--since", now),
            until=None if until is None else read_time(until, "--until", now),
            input=read_pairs(fields),
            limit=limit,
            cursor=cursor,
        )
        return judged(found), page

    health, page = connected(store, work)
    if as_json:
        emit({"health": health, "items": page.items, "next_cursor": page.next_cursor})
    else:
        click.echo("\n".join([*health.lines(), *list_lines(page)]))


@runs.command("show")
@run_id
@common
def show(run_id: str, store: str | None, as_json: bool) -> None:
    """Show a run, its steps with timings and failed attempts, and why it is where it is.

    \b
    Example:
      stepwell runs show RUN
    """

    async def work(stepwell: Stepwell) -> tuple[Run, list[Step], Explanation]:
        run = await stepwell.get_run(run_id)
        return run, await stepwell.steps(run_id), await stepwell.explain(run_id)

    run, steps, explanation = connected(store, work)
    if as_json:
        emit({"run": run, "steps": steps, "explanation": explanation})
    else:
        click.echo("\n".join(show_lines(run, steps, explanation)))


@runs.command("explain")
@run_id
@common
def explain(run_id: str, store: str | None, as_json: bool) -> None:
    """Say why a run is where it is: running, queued, waiting, or ended.

    \b
    Example:
      stepwell runs explain RUN
    """

    async def work(stepwell: Stepwell) -> tuple[Explanation, list[GateRecord]]:
        explanation = await stepwell.explain(run_id)
        waits = explanation.code in ("gate", "child")
        return explanation, await stepwell.gates.list(run_id) if waits else []

    explanation, gates = connected(store, work)
    if as_json:
        details = {"gates": [gate_document(each) for each in gates]} if gates else {}
        emit(dataclasses.replace(explanation, details=explanation.details | details))
        return
    click.echo(f"{explanation.code}: {explanation.message}")
    for line in gate_lines(run_id, gates):
        click.echo(line)


# -- starting ----------------------------------------------------------------------------


@runs.command("start")
@click.argument("definition", metavar="NAME")
@click.argument("argument", metavar="[INPUT]", required=False)
@click.option(
    "--input", "option", metavar="JSON", help="The input, instead of INPUT; - reads stdin."
)
@click.option(
    "--idempotency-key", metavar="KEY", help="A second start with this key gives the first run."
)
@click.option(
    "--version",
    metavar="VERSION",
    help="This version of the definition, not its highest: 2; of a graph also 1.1.0 or a hash.",
)
@click.option("--delay", metavar="DURATION", help="Start this much later.")
@click.option("--deadline", metavar="WHEN", help="Time out after this duration, or at this time.")
@click.option("--priority", type=int, help="Higher goes first; else as its policy says, or 0.")
@click.option("--concurrency-key", metavar="KEY", help="Runs with the same key take turns.")
@click.option(
    "--concurrency-limit",
    type=int,
    help="With --concurrency-key: so many at a time, 1 unless said.",
)
@click.option(
    "--max-queued-runs", type=int, help="Refuse it if so many wait for a slot and none is free."
)
@click.option("--retention", metavar="DURATION", help="Keep the run this long after its end.")
@click.option("--ttl", metavar="DURATION", help="Time out if pending so long after it may begin.")
@waiting
@common
def start(
    definition: str, argument: str | None, option: str | None, wait: bool, timeout: str | None,
    store: str | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Start a run of the definition NAME with INPUT, which is JSON.

    The store has to know the definition: a worker has brought it once, or, if it is data, it was
    published. No worker needs to be alive.

    \b
    Examples:
      stepwell runs start onboard-user '{"email": "a@b.c"}'
      stepwell runs start tidy-up --idempotency-key today --delay 10m
      echo '{"email": "a@b.c"}' | stepwell runs start onboard-user --input - --wait --timeout 30s
    """
    given = read_input(argument, option)
    chosen = {name: value for name, value in options.items() if value is not None}
    for name in {"delay", "retention", "ttl"} & chosen.keys():
        chosen[name] = read_duration(chosen[name])
    if "deadline" in chosen:
        chosen["deadline"] = read_deadline(chosen["deadline"])

    async def begin(stepwell: Stepwell) -> RunHandle:
        if "version" in chosen:
            chosen["version"] = await _number(stepwell, definition, chosen["version"])
        return await stepwell.start(
            definition, None if given is ... else given, **chosen, **by(stepwell)
        )

    _begin(begin, wait, timeout, store, as_json)


@runs.command("retry")
@run_id
@waiting
@common
def retry(run_id: str, wait: bool, timeout: str | None, store: str | None, as_json: bool) -> None:
    """Go on where a failed, cancelled or timed out run stopped, as a new run.

    \b
    Example:
      stepwell runs retry RUN --wait
    """
    _begin(lambda stepwell: stepwell.retry(run_id, **by(stepwell)), wait, timeout, store, as_json)


@runs.command("fork")
@run_id
@click.option("--from-step", required=True, metavar="STEP", help="The first step to execute anew.")
@click.option("--input", "option", metavar="JSON", help="Another input; - reads stdin.")
@click.option(
    "--version",
    metavar="VERSION",
    help="Another version of the definition: 2; of a graph also 1.1.0 or a hash.",
)
@waiting
@common
def fork(
    run_id: str, from_step: str, option: str | None, version: str | None, wait: bool,
    timeout: str | None, store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Start a new run that has the journal of RUN up to a step and goes on from there.

    \b
    Examples:
      stepwell runs fork RUN --from-step welcome
      stepwell runs fork RUN --from-step create-user --input '{"email": "b@b.c"}' --wait
    """
    given = read_input(None, option)

    async def begin(stepwell: Stepwell) -> RunHandle:
        number = None
        if version is not None:
            number = await _number(stepwell, (await stepwell.get_run(run_id)).definition, version)
        return await stepwell.fork(run_id, from_step, input=given, version=number, **by(stepwell))

    _begin(begin, wait, timeout, store, as_json)


async def _number(stepwell: Stepwell, definition: str, version: str) -> int:
    """The number of a version, by which runs know it."""
    if version.isascii() and version.isdigit():
        return int(version)
    return (await stepwell.definitions.revision(definition, version)).number


def _begin(begin: Any, wait: bool, timeout: str | None, store: str | None, as_json: bool) -> None:
    """Start a run and print its id; with --wait, print its output once there is one."""
    if timeout is not None and not wait:
        raise click.UsageError("--timeout belongs to --wait.")
    limit = None if timeout is None else seconds(read_duration(timeout), "--timeout")
    waited_for: list[str] = []

    async def work(stepwell: Stepwell) -> dict[str, Any]:
        handle: RunHandle = await begin(stepwell)
        started = {"id": handle.id, "created": handle.created}
        if not wait:
            return started
        waited_for.append(handle.id)
        if not as_json:
            click.echo(f"Run {handle.id} …", err=True)
        async with warned_if_unclaimed(stepwell, handle.id):
            return {**started, "output": await handle.result(limit)}

    try:
        done = connected(store, work)
    except (TimeoutError, KeyboardInterrupt) as error:
        if not waited_for:
            raise
        raise StoppedWaiting(waited_for[0], error) from error
    if as_json:
        emit(done)
    else:
        click.echo(compact(done["output"]) if wait else done["id"])


# -- acting ------------------------------------------------------------------------------


@runs.command("cancel")
@run_id
@common
def cancel(run_id: str, store: str | None, as_json: bool) -> None:
    """Cancel a run and its children, whatever they are doing.

    \b
    Example:
      stepwell runs cancel RUN
    """
    cancelled = connected(store, lambda stepwell: stepwell.cancel(run_id))
    if as_json:
        emit({"id": run_id, "cancelled": cancelled})
    else:
        click.echo("Cancelled." if cancelled else "Nothing to cancel: the run had already ended.")


@runs.command("signal")
@run_id
@click.argument("name")
@click.argument("payload", required=False)
@common
def signal(run_id: str, name: str, payload: str | None, store: str | None, as_json: bool) -> None:
    """Send a run the signal NAME with PAYLOAD, which is JSON; - reads stdin.

    A signal that comes before the run waits for it is kept until then.

    \b
    Examples:
      stepwell runs signal RUN verify '{"user_id": 42}'
      stepwell runs signal RUN approve true
    """
    given = None if payload is None else read_json(payload, "The payload")
    delivered = connected(store, lambda stepwell: stepwell.signal(run_id, name, given))
    if not delivered:
        raise SignalNotDelivered(
            f"Run {run_id} has already ended; the signal {name!r} was not sent.", run_id=run_id
        )
    if as_json:
        emit({"id": run_id, "delivered": True})
    else:
        click.echo("Sent.")

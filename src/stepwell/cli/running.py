"""`stepwell run` executes a definition from a file; `stepwell resume` lets a run go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from stepwell.catalog import node_types
from stepwell.cli.arguments import common, read_json, run_id
from stepwell.cli.documents import load, say_problems, sibling
from stepwell.cli.exits import FAILURE, OK
from stepwell.cli.gates import ROLES
from stepwell.cli.oneself import own_name
from stepwell.cli.output import emit
from stepwell.cli.progress import follow, say_end
from stepwell.cli.server_files import needs_store
from stepwell.cli.session import connected, named_server, naming, stepwell_at, store_url
from stepwell.cli.targets import Targets, load_targets
from stepwell.errors import FunctionUnknown, GateNotFound, InvalidInput
from stepwell.graph.documents import Checked, checked, valid
from stepwell.graph.plan import Plan
from stepwell.kernel.names import show
from stepwell.kernel.run import Run
from stepwell.sdk.function import functions_by_name

if TYPE_CHECKING:
    from stepwell.app import Stepwell

_modules = click.option(
    "--with",
    "targets",
    multiple=True,
    metavar="MODULE[:NAME]",
    help="Python functions and workflows that its nodes use; repeatable.",
)


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--input", "given", metavar="JSON", help="The input; - reads standard input.")
@click.option("--auto-advance", is_flag=True, help="Count every task as done at once.")
@_modules
@common
def run(
    file: str, given: str | None, auto_advance: bool, targets: tuple[str, ...],
    store: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Run a definition to its end, here and now.

    FILE is a definition in YAML or JSON, or anything that `stepwell import` understands; it need
    not be published. Progress goes to standard error, and one JSON document about the run to
    standard output. A run that comes to a gate or a task stops there with the status `waiting`;
    `stepwell resume` lets it go on, also one that was interrupted. Definitions that it runs and
    the store does not have are looked for beside FILE. Where no server is named, this works in
    place of a worker: while it lasts, it also executes whatever else is due in the store.

    \b
    Examples:
      stepwell run examples/diamond-continue.yaml
      stepwell run examples/release-approval.yaml --input '{"tag": "v1.2.3"}'
      stepwell run examples/dialects/shiny.formula.toml --input '{"feature": "x"}' --auto-advance
    """
    if file.endswith(".py"):
        raise InvalidInput(
            f"{show(file)} is Python; FILE is a definition in YAML or JSON. Workflows in Python "
            "are executed by `stepwell worker MODULE`, and started by `stepwell runs start NAME`."
        )
    document = load(
        file, f" To start a definition that is published: stepwell runs start {show(file)[1:-1]}"
    )
    say_problems(document.problems)
    definition, plan = valid(document), document.plan
    assert plan is not None
    input = None if given is None else read_json(given, "The input")
    trigger: dict[str, Any] = {"type": "manual"}
    if auto_advance:
        trigger["auto_advance"] = True

    there = named_server(store) is not None
    if there and auto_advance:
        raise needs_store("--auto-advance")
    loaded = _loaded(targets, there)
    if not there:
        _check_functions(plan, loaded)

    async def begin(stepwell: Stepwell) -> tuple[str, Plan]:
        await _publish_siblings(stepwell, file, definition.name, plan)
        if there:
            started = await stepwell.start_document(document.document, input)
        else:
            started = await stepwell.start_document(
                document.document, input, trigger=trigger, user=own_name()
            )
        click.echo(f"Run {started.id} of {definition.name} started.", err=True)
        return started.id, plan

    return _finish(store, loaded, begin)


@click.command()
@run_id
@click.option("--decision", type=click.Choice(["approve", "deny"]), help="About its gate.")
@click.option(
    "--gate", "gate_id", metavar="GATE", help="Its id or step, if the run waits at several."
)
@click.option("--token", metavar="TOKEN", help="The gate's token, of whoever was given one.")
@click.option("--note", default="", metavar="TEXT", help="Why.")
@click.option("--by", metavar="NAME", help="Who decides; else whoever is logged in here.")
@_modules
@common
def resume(
    run_id: str, decision: Any, gate_id: str | None, token: str | None, note: str,
    by: str | None, targets: tuple[str, ...], store: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Let a run go on to its end: with a decision about its gate, or after an interruption.

    What ran before does not run again. Where no server is named, this works in place of a worker:
    while it lasts, it also executes whatever else is due in the store.

    \b
    Examples:
      stepwell resume RUN --decision approve
      stepwell resume RUN --decision deny --note 'not on a Friday'
      stepwell resume RUN
    """
    if decision is None and (token or gate_id or note or by):
        raise click.UsageError("--gate, --token, --note and --by belong to a --decision.")

    there = named_server(store) is not None
    loaded = _loaded(targets, there)

    async def begin(stepwell: Stepwell) -> tuple[str, Plan]:
        run = await stepwell.get_run(run_id)
        if run.revision is None:
            raise InvalidInput(
                f"Run {run_id} is of Python code; a worker that has it lets it go on."
            )
        plan = await (_plan_there(stepwell, run_id) if there else stepwell.plan_of(run))
        if not run.ended and not there:
            _check_functions(plan, loaded)
        if decision is not None:
            gate = await _gate(stepwell, run, gate_id)
            await stepwell.gates.decide(
                gate, decision, by=by or own_name(), note=note, token=token,
                roles=ROLES,
            )  # fmt: skip
        return run_id, plan

    return _finish(store, loaded, begin)


def _loaded(targets: tuple[str, ...], there: bool) -> Targets:
    """What modules bring; a server has workers of its own, with what they bring."""
    if there and targets:
        raise needs_store("--with")
    return load_targets(targets)


async def _plan_there(stepwell: Stepwell, run_id: str) -> Plan:
    """The plan that a run of a server executes."""
    found = checked(await stepwell.runs.document(run_id), node_types())
    valid(found)
    assert found.plan is not None
    return found.plan


async def _gate(stepwell: Stepwell, run: Run, wanted: str | None) -> str:
    """The gate that is meant: by its id, by its step, or because there is no other."""
    gates = {gate.id: gate.key.rpartition("[")[0] for gate in await stepwell.gates.list(run.id)}
    if wanted is not None and wanted not in gates and wanted not in gates.values():
        return wanted  # one that is closed says so itself
    found = [each for each, step in gates.items() if wanted in (None, each, step)]
    listed = ", ".join(f"{step} ({each})" for each, step in gates.items())
    if not found:
        ended = f" It has ended: {run.status}." if run.ended else ""
        raise GateNotFound(f"Run {run.id} waits at no gate.{ended}", run_id=run.id)
    if len(found) > 1:
        raise InvalidInput(f"Run {run.id} waits at several gates; name one with --gate: {listed}.")
    return found[0]


def _finish(
    store: str | None, targets: Targets,
    begin: Callable[[Stepwell], Awaitable[tuple[str, Plan]]],
) -> int:  # fmt: skip
    """Execute a run, with a worker of our own unless a server has some; print what came of it."""

    async def watch(stepwell: Stepwell) -> dict[str, Any]:
        return await follow(stepwell, *await begin(stepwell))

    async def session() -> dict[str, Any]:
        async with stepwell_at(store, *targets) as stepwell:
            run_id, plan = await begin(stepwell)
            async with stepwell.worker():
                return await follow(stepwell, run_id, plan)

    if named_server(store) is not None:
        document = connected(store, watch)
    else:
        from stepwell.app.logs import quiet_below

        # What goes wrong in a step is part of the progress.
        with naming(store_url(store)), quiet_below(logging.ERROR):
            document = asyncio.run(session())
    say_end(document)
    emit(document)
    return OK if document["status"] in ("completed", "waiting") else FAILURE


async def _publish_siblings(stepwell: Stepwell, file: str, own: str, plan: Plan) -> None:
    """Make definitions known that are beside the file, and whatever those run in turn."""
    todo, seen = list(_children(plan)), {own}
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        known = await stepwell.definition_exists(name)
        if (beside := sibling(file, name)) is None:
            if not known:
                missing = f"{name!r}, which is neither in the store nor beside {file}"
                click.echo(f"warning: A node runs {missing}. [unknown_definition]", err=True)
            continue
        if known:
            await _warn_if_older(stepwell, name, beside)
            continue
        if valid(beside).name == name and beside.plan is not None:
            await stepwell.definitions.publish(beside.document, source="import", enabled=True)
            click.echo(f"Published {name} from beside {file}.", err=True)
            todo += _children(beside.plan)


async def _warn_if_older(stepwell: Stepwell, name: str, beside: Checked) -> None:
    """What is published counts; whoever has edited the file since should know."""
    current = {each.name: each for each in await stepwell.definitions.list()}.get(name)
    if current is not None and beside.ok and current.hash != beside.hash:
        click.echo(
            f"The file of {name} differs from {name} {current.version}, which is published and "
            "runs. To run the file: stepwell definitions publish.",
            err=True,
        )


def _children(plan: Plan) -> list[str]:
    """The definitions that a plan runs, as far as they are written down."""
    return _written(plan, "run", "definition")


def _check_functions(plan: Plan, targets: Targets) -> None:
    """Refuse a run whose nodes call functions that nobody here has: it would wait half-way."""
    known = functions_by_name(targets.functions)
    missing = sorted(set(_written(plan, "python", "function")) - known.keys())
    if missing:
        raise FunctionUnknown(
            f"Its nodes call {', '.join(missing)}, which nobody has brought along. "
            + (f"There are {', '.join(sorted(known))}. " if known else "")
            + "Name the module "
            "of these functions: --with MODULE."
        )


def _written(plan: Plan, kind: str, field: str) -> list[str]:
    """What a field says in all nodes of a type, where it is no reference."""
    found = [node.written(field) for node, _ in plan.all_nodes() if node.type == kind]
    return [each for each in found if isinstance(each, str)]

"""How a run is coming along, for whoever watches it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.gates import gate_document, gate_lines
from stepwell.cli.output import brief, took
from stepwell.errors import (
    FunctionUnknown,
    InvalidDefinition,
    NotAnApprover,
    PermissionDenied,
    RunEndedBadly,
)
from stepwell.graph.plan import Plan
from stepwell.kernel.run import Explanation, Run, Step
from stepwell.operations.run_document import node_steps, run_document

if TYPE_CHECKING:
    from stepwell.app import Stepwell

# How often a run is looked at, and at most for each step that it has.
LOOK_SECONDS = 0.1
LOOK_SECONDS_PER_STEP = 0.0005
_SIGNS = {
    "completed": "✓", "failed": "✗", "timed_out": "✗", "skipped": "–", "waiting": "…",
    "retrying": "↻",
}  # fmt: skip
_QUEUES = frozenset({"slot", "throttle", "debounce"})
_PEOPLE = frozenset({"gate", "task"})


class Progress:
    """Writes to standard error what has changed since it last looked."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._said: dict[str, tuple[str, int]] = {}
        self._why = ""

    def show(self, run: Run, journal: list[Step]) -> None:
        for each in node_steps(run, self._plan, journal):
            status = each["status"]
            now = status, each["attempts"]
            if status in _SIGNS and self._said.get(each["id"]) != now and each["started_at"]:
                self._said[each["id"]] = now
                click.echo(f"  {_SIGNS[status]} {each['id']}{_detail(each)}", err=True)

    def say_why(self, explanation: Explanation) -> None:
        """Say once why a run has not begun: it may take a while."""
        if explanation.code in _QUEUES and self._why != explanation.message:
            self._why = explanation.message
            click.echo(f"  … {explanation.message}", err=True)


def _detail(step: dict[str, Any]) -> str:
    if step["error"] is not None and step["status"] != "completed":
        attempt = f" (attempt {step['attempts']})" if step["status"] == "retrying" else ""
        said = step["error"].message.splitlines()[0]
        return f"{attempt}: {step['error'].type}: {said:.200}"
    if step["status"] == "completed":
        return f" ({took(step['started_at'], step['ended_at'])})"
    return f" ({step['reason'] or step['status']})"


async def follow(stepwell: Stepwell, run_id: str, plan: Plan) -> dict[str, Any]:
    """Watch a run until it ends, or until only people can make it go on; what came of it."""
    progress = Progress(plan)
    ending = asyncio.ensure_future(_end(stepwell, run_id))
    pause = LOOK_SECONDS
    journal: list[Step] = []
    try:
        while True:
            await asyncio.wait([ending], timeout=pause)
            # First the run: once that has ended, the journal says all there is to say.
            run = await stepwell.get_run(run_id)
            before, journal = journal, await stepwell.steps(run_id)
            progress.show(run, journal)
            if run.status == "pending":
                progress.say_why(await stepwell.explain(run_id))
            if run.ended:
                return run_document(run, plan, journal)
            if run.status == "waiting" and await _needs_people(stepwell, run_id, journal):
                return await _stopped(stepwell, run, plan, journal)
            if len(before) == len(journal):
                await _check_it_can_go_on(stepwell, run_id)
            pause = max(LOOK_SECONDS, LOOK_SECONDS_PER_STEP * len(journal))
    except asyncio.CancelledError:
        click.echo(f"Interrupted; `stepwell resume {run_id}` lets the run go on.", err=True)
        raise
    finally:
        ending.cancel()


async def _end(stepwell: Stepwell, run_id: str) -> None:
    with contextlib.suppress(RunEndedBadly):
        await stepwell.result(run_id)


async def _check_it_can_go_on(stepwell: Stepwell, run_id: str) -> None:
    """Raise if it has come to something that no worker has, itself or in a run below it."""
    found = await stepwell.explain(run_id)
    while found.code == "child":
        found = await stepwell.explain(found.details["child_run_id"])
    if found.code == "unknown_function":
        raise FunctionUnknown(
            f"{found.message} The run waits for one that has it: `stepwell resume {run_id} --with "
            "MODULE` with the module that brings it."
        )
    if found.code == "unknown_node_type":
        raise InvalidDefinition(
            f"{found.message} The run waits for one that has it: install the package that brings "
            f"it, then `stepwell resume {run_id}`."
        )


async def _needs_people(stepwell: Stepwell, run_id: str, journal: list[Step]) -> bool:
    """Whether the run does nothing and waits for people alone, or for a child that does."""
    kinds = {
        step.kind
        for step in journal
        if step.status in ("waiting", "running", "retrying") and not step.key.endswith(".timeout")
    }
    if "child" not in kinds:
        return bool(kinds) and kinds <= _PEOPLE
    return kinds <= _PEOPLE | {"child"} and bool(await stepwell.gates.list(run_id))


async def _stopped(stepwell: Stepwell, run: Run, plan: Plan, journal: list[Step]) -> dict[str, Any]:
    """What a run that waits for people says: who is asked what, and how to answer."""
    found = run_document(run, plan, journal)
    waiting = await stepwell.gates.list(run.id)
    gates = [gate_document(gate) | await _token(stepwell, gate.id) for gate in waiting]
    for line in gate_lines(run.id, waiting):
        click.echo(line, err=True)
    tasks = [step.about for step in journal if step.kind == "task" and step.status == "waiting"]
    for task in tasks:
        click.echo(f"Waiting for a task: {task['title']}", err=True)
        command = f"stepwell steps advance {run.id} {task['step']} --summary …"
        click.echo(f"  {command}, then stepwell resume {run.id}", err=True)
    if gates:
        found |= {"gate": gates[0], "gates": gates}
    if tasks:
        found["tasks"] = tasks
    return found


async def _token(stepwell: Stepwell, gate_id: str) -> dict[str, str]:
    """A token for whoever is to decide, if we may hand one out."""
    try:
        return {"token": await stepwell.gates.token(gate_id)}
    except (NotAnApprover, PermissionDenied):
        return {}


def say_end(document: dict[str, Any]) -> None:
    """The last line: how it ended."""
    error = document["error"]
    said = f": {error.type}: {error.message}" if error is not None else ""
    if document["status"] == "completed":
        said = f": {brief(document['output'])}"
    click.echo(f"Run {document['run_id']} {document['status']}{said}", err=True)
    if document["status"] in ("failed", "timed_out"):
        retry = f"stepwell runs retry {document['run_id']}"
        click.echo(
            f"To go on where it stopped: {retry}, then stepwell resume the new run. To go on with "
            "a mended definition: publish it, then stepwell runs fork --from-step … --version ….",
            err=True,
        )

"""The two tools of agents that speak the molecule protocol: what is to be done, and it is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import mcp_types as types
import msgspec
from msgspec import Meta

from stepwell.errors import StepNotFound
from stepwell.kernel.run import Run
from stepwell.mcp.answers import read, schema_of
from stepwell.mcp.following import Patience
from stepwell.mcp.offers import Offer
from stepwell.mcp.seat import Manner, Seat

# How many waiting runs are looked at when none is named.
MOST_RUNS = 20


class Current(msgspec.Struct, forbid_unknown_fields=True):
    """What `gt_mol_current` is given."""

    run_id: Annotated[str | None, Meta(description="A run; else all that wait for a task.")] = None


class Advance(msgspec.Struct, forbid_unknown_fields=True):
    """What `gt_mol_advance` is given."""

    run_id: Annotated[str, Meta(description="The run's id.")]
    step: Annotated[
        str | None, Meta(description="The step of the task; may be left out if there is but one.")
    ] = None
    summary: Annotated[str, Meta(description="What was done, or why it could not be.")] = ""
    output: Annotated[Any, Meta(description="What later steps may need of it.")] = None
    failed: Annotated[bool, Meta(description="Whether it could not be done.")] = False


def molecule_offers(manner: Manner) -> dict[str, Offer]:
    """Both tools, by their names."""

    async def advance(seat: Seat, given: Mapping[str, Any]) -> Any:
        return await _advance(seat, read(given, Advance), manner)

    current = types.Tool(
        name="gt_mol_current",
        description="The tasks that a run waits for somebody to do, or those of all waiting runs: "
        "title, instructions, acceptance, and the step to advance when it is done.",
        input_schema=schema_of(Current),
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )
    advancing = types.Tool(
        name="gt_mol_advance",
        description="Say that a task was done, or could not be. The run goes on; the answer has "
        "the tasks that it waits for next.",
        input_schema=schema_of(Advance),
        annotations=types.ToolAnnotations(
            read_only_hint=False, destructive_hint=False, idempotent_hint=False,
            open_world_hint=False,
        ),
    )  # fmt: skip
    return {
        current.name: Offer(current, "read", _current),
        advancing.name: Offer(advancing, "run", advance),
    }


async def _current(seat: Seat, given: Mapping[str, Any]) -> Any:
    wanted = read(given, Current).run_id
    runs: list[Run]
    if wanted is not None:
        runs = [await seat.call("runs.get", run_id=wanted)]
    else:
        runs = (await seat.call("runs.list", status=["waiting"], limit=MOST_RUNS)).items
    return {"items": [task for run in runs for task in await _tasks(seat, run)]}


async def _advance(seat: Seat, given: Advance, manner: Manner) -> Any:
    run: Run = await seat.call("runs.get", run_id=given.run_id)
    before = [task["step"] for task in await _tasks(seat, run)]
    step = given.step
    if step is None:
        if len(before) != 1:
            raise StepNotFound(
                f"Run {run.id} is {run.status} and waits for {len(before)} tasks; say which step "
                f"is meant: {', '.join(before) or 'there is none'}.",
                run_id=run.id,
            )
        step = before[0]
    await seat.call(
        "steps.advance", run_id=run.id, step=step, summary=given.summary, output=given.output,
        failed=given.failed,
    )  # fmt: skip
    patience, tasks = Patience(seat, manner.wait_seconds), []
    while True:
        run = await seat.call("runs.get", run_id=run.id)
        tasks = await _tasks(seat, run)
        taken = step not in [task["step"] for task in tasks]
        if run.ended or (tasks and taken) or not await patience.wait():
            break
    return {"run_id": run.id, "advanced": step, "status": run.status, "items": tasks}


async def _tasks(seat: Seat, run: Run) -> list[dict[str, Any]]:
    found = await seat.call("steps.tasks", run_id=run.id)
    return [
        {"run_id": run.id, "definition": run.definition, **msgspec.structs.asdict(task)}
        for task in found
    ]

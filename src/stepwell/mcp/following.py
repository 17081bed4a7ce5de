"""Following a run on behalf of whoever started it: until it ends, needs somebody, or takes long."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from stepwell.kernel.gates import progress
from stepwell.kernel.outcomes import run_failure
from stepwell.kernel.presenting import present
from stepwell.kernel.records import GateRecord
from stepwell.kernel.run import Run
from stepwell.mcp.seat import Manner, Seat

# The longer a run has been waited for, the less often it is looked at.
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5


class Patience:
    """Somebody who looks now and then, for so long."""

    def __init__(self, seat: Seat, seconds: float) -> None:
        self._seat = seat
        self._clock = asyncio.get_running_loop().time
        self._until = self._clock() + seconds
        self._pause = FIRST_PAUSE

    async def wait(self) -> bool:
        """Wait before the next look; False if there is none: the time is up."""
        left = self._until - self._clock()
        if left <= 0 or not await self._seat.kept():
            return False
        await asyncio.sleep(min(self._pause, left))
        self._pause = min(self._pause * 1.3, LONGEST_PAUSE)
        return True


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run is, and for whom it waits."""

    run: Run
    gates: list[GateRecord] = field(default_factory=list)
    tasks: list[Any] = field(default_factory=list)


async def follow(seat: Seat, run_id: str, seconds: float) -> Standing:
    """Where a run is once it has ended or needs somebody, or after so long."""
    patience = Patience(seat, seconds)
    while True:
        run: Run = await seat.call("runs.get", run_id=run_id)
        if run.ended:
            return Standing(run)
        if run.status != "pending":
            gates = await seat.call("gates.list", run_id=run_id)
            tasks = await seat.call("steps.tasks", run_id=run_id)
            if gates or tasks:
                return Standing(run, gates, tasks)
        if not await patience.wait():
            return Standing(run)


async def report(seat: Seat, found: Standing, manner: Manner) -> dict[str, Any]:
    """What is said of a run: its output, or how to get at it later; raises if it ended badly."""
    run = found.run
    if run.status == "completed":
        return {"run_id": run.id, "status": run.status, "output": run.output}
    if run.ended:
        raise run_failure(run.status, run.id, run.error)
    said: dict[str, Any] = {"run_id": run.id, "status": run.status}
    if link := manner.link("runs", run.id):
        said["link"] = link
    if found.gates:
        said["gates"] = [_gate(each, manner) for each in found.gates]
        said["next"] = (
            "The run waits for a decision. Ask whoever may decide, then call gates_decide with "
            "gate_id, decision (approve or deny) and seen_hash (its subject_hash)."
        )
    elif found.tasks:
        said["tasks"] = present(found.tasks)
        said["next"] = (
            "The run waits for a task. Do it, then call gt_mol_advance with run_id, step and a "
            "summary."
        )
    else:
        said["why"] = (await seat.call("runs.explain", run_id=run.id)).message
        said["next"] = (
            "The run goes on by itself. Call runs_get with run_id for its status and output, "
            "runs_explain for what it waits for."
        )
    return said


def _gate(gate: GateRecord, manner: Manner) -> dict[str, Any]:
    said: dict[str, Any] = {
        "id": gate.id, "prompt": gate.prompt, "subject": gate.subject,
        "subject_hash": gate.subject_hash, "who": progress(gate) or "Anybody may decide.",
    }  # fmt: skip
    if link := manner.link("gates", gate.id):
        said["link"] = link
    return said

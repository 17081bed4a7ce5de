"""Steps: the journal of a run, and the tasks in it that wait for somebody."""

from __future__ import annotations

import builtins
from typing import Any

import msgspec

from stepwell.errors import RunNotFound, StepNotFound
from stepwell.kernel.run import Step
from stepwell.operation import Noun, Workspace, operation
from stepwell.operations.runs import RunId


class Task(msgspec.Struct, frozen=True):
    """What a run waits for somebody to do."""

    # The key of the step that waits.
    step: str
    title: str = ""
    instructions: str = ""
    acceptance: str = ""
    # Who is to do it, if that is said.
    assignee: str | None = None


class Steps(Noun):
    """The steps of runs."""

    noun = "steps"

    def __init__(self, workspace: Workspace) -> None:
        self._engine = workspace.engine

    @operation("GET /runs/{run_id}/steps", needs="read", raises=(RunNotFound,))
    async def list(self, run_id: RunId) -> builtins.list[Step]:
        """The journal of a run, in order of call."""
        return await self._engine.steps(run_id)

    @operation("GET /runs/{run_id}/tasks", needs="read", raises=(RunNotFound,))
    async def tasks(self, run_id: RunId) -> builtins.list[Task]:
        """What a run waits for somebody to do."""
        names = Task.__struct_fields__
        return [
            Task(**{name: str(value) for name, value in each.items() if name in names})
            for each in await self._engine.tasks(run_id)
        ]

    @operation(
        "POST /runs/{run_id}/steps/{step}/advance", needs="run",
        raises=(RunNotFound, StepNotFound), example={"step": "build", "summary": "Built."},
    )  # fmt: skip
    async def advance(
        self, run_id: RunId, step: str, *, summary: str = "", output: Any = None,
        failed: bool = False,
    ) -> None:  # fmt: skip
        """Say that a task was done, or could not be; its run goes on."""
        await self._engine.advance(run_id, step, summary=summary, output=output, failed=failed)

"""Runs of random graphs in a simulation: started, looked after, and judged by the model."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from stepwell.app import Stepwell
from stepwell.catalog import node_types
from stepwell.engine.surroundings import current_step
from stepwell.errors import GateClosed, StepNotFound, StoreUnavailable
from stepwell.graph.documents import checked
from stepwell.kernel.run import Run, Step
from stepwell.testing.simulation.graphs import LEFT_ALONE, SIGNAL, SIGNALLED, random_document
from stepwell.testing.simulation.model import Model

REASONS = ("branch_not_taken", "upstream_failed")
# What may be said of a node that somebody did not wait for: nothing, or that.
GIVEN_UP = (None, "skipped")
# More signals than any of the graphs has waits for.
SIGNALS = 60


def make_act(perform: Callable[[str, str, int], Any]) -> Callable[..., Any]:
    """The function that nodes call; `perform(run, step, attempt)` is told of it."""

    async def act(value: Any = None, fails: int = 0, hangs: bool = False) -> Any:
        step = current_step.get()
        assert step is not None
        await perform(step.run_id, step.key, step.attempt)
        if hangs:
            await asyncio.Event().wait()
        if step.attempt <= fails:
            raise ValueError(f"attempt {step.attempt} fails")
        return value

    return act


class GraphRuns:
    """The graphs of one simulation."""

    def __init__(self, rng: random.Random, count: int, problems: list[str]) -> None:
        self._rng = rng
        self._problems = problems
        self._documents = {
            name: random_document(rng, name) for name in (f"graph-{n}" for n in range(count))
        }
        self._signalled: set[str] = set()

    async def start(self, stepwell: Stepwell) -> None:
        """Start one run of each, now and then twice under the same key."""
        for name, document in self._documents.items():
            input = {"n": self._rng.randint(0, 5), "depth": 1}
            for _ in range(self._rng.choice([1, 1, 2])):
                await self._begin(stepwell, name, document, input)
                await asyncio.sleep(self._rng.random())

    async def _begin(self, stepwell: Stepwell, name: str, document: Any, input: Any) -> None:
        trigger = {"type": "manual", "auto_advance": len(document["nodes"]) % 2 == 0}
        while True:
            try:
                await stepwell.start_document(
                    document, input, trigger=trigger, idempotency_key=name
                )
                return
            except StoreUnavailable:
                await asyncio.sleep(0.5)

    async def tend(self, stepwell: Stepwell) -> None:
        """Do what people do: approve, advance, send signals; over and over."""
        while self._documents:
            await asyncio.sleep(self._rng.random() * 4)
            try:
                for run in await self._runs(stepwell):
                    await self._attend(stepwell, run)
            except (StoreUnavailable, GateClosed, StepNotFound):
                pass  # the next look will show how things are

    async def _attend(self, stepwell: Stepwell, run: Run) -> None:
        if run.ended:
            return
        if run.id not in self._signalled:
            self._signalled.add(run.id)
            for _ in range(SIGNALS):
                await stepwell.signal(run.id, SIGNAL, SIGNALLED)
        for gate in await stepwell.gates.list(run.id):
            if gate.prompt != LEFT_ALONE:
                await stepwell.gates.decide(gate.id, "approve", by="somebody")
        for task in await stepwell.tasks(run.id):
            await stepwell.advance(run.id, task["step"], summary="done")

    async def _runs(self, stepwell: Stepwell) -> list[Run]:
        pages = [await stepwell.list_runs(definition=name) for name in self._documents]
        return [run for page in pages for run in page.items]

    async def judge(self, stepwell: Stepwell) -> None:
        """Compare every run with what the model makes of its input."""
        for run in await self._runs(stepwell):
            found = checked(self._documents[run.definition], node_types())
            assert found.plan is not None
            model = Model(found.plan, (await stepwell.get_run(run.id)).input)
            await self._compare(stepwell, run, model)

    async def _compare(self, stepwell: Stepwell, run: Run, model: Model) -> None:
        what = f"{run.definition} {run.id}"
        whole = await stepwell.get_run(run.id)
        if model.undecided:
            return
        if whole.status != model.status or whole.output != model.output:
            self._problems.append(
                f"{what} ended {whole.status} with {whole.output!r} {whole.error}, not "
                f"{model.status} with {model.output!r}"
            )
        journal = {step.key: step for step in await stepwell.steps(run.id)}
        for key, step in journal.items():
            if step.status in ("running", "retrying", "waiting"):
                self._problems.append(f"{what}: {key} was left {step.status}")
        for key, wanted in model.shown.items():
            shown = _shown(journal.get(key))
            if shown != wanted and not (key in model.loose and shown in GIVEN_UP):
                self._problems.append(f"{what}: {key} is {shown}, not {wanted}")


def _shown(step: Step | None) -> str | None:
    if step is None:
        return None
    return step.output if step.output in REASONS else step.status

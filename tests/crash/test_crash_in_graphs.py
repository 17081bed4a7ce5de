"""The same over graphs: a crash after any commit changes neither the end nor how nodes ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stepwell import Stepwell
from stepwell.catalog import store_for
from stepwell.engine.surroundings import current_step
from stepwell.errors import GateClosed, StepNotFound
from stepwell.testing.clock import FakeClock
from tests.crash.graphs import EXPECTED, GRAPHS
from tests.crash.process import doomed
from tests.engine.support import flowing

executed: Counter[tuple[str, str]] = Counter()


async def act(value: Any = None, fails: int = 0) -> Any:
    step = current_step.get()
    assert step is not None
    executed[step.run_id, step.key] += 1
    if step.attempt <= fails:
        raise ValueError(f"attempt {step.attempt}")
    return value


def opened(url: str, clock: FakeClock) -> Stepwell:
    return Stepwell(store=store_for(url, clock), functions=[act])


async def start(sw: Stepwell, name: str, number: int) -> str:
    document = {"name": name, **GRAPHS[name]}
    run = await sw.start_document(document, {"depth": 1}, idempotency_key=f"{name}-{number}")
    if name == "people-and-events":
        await sw.signal(run.id, "mail", {"n": 1})
    return run.id


@asynccontextmanager
async def somebody(sw: Stepwell, run_id: str) -> AsyncIterator[None]:
    """Somebody is there who approves, and does what is to be done."""

    async def attend() -> None:
        while True:
            try:
                for gate in await sw.gates.list(run_id):
                    if gate.deadline_at is None:
                        await sw.gates.decide(gate.id, "approve", by="somebody")
                for task in await sw.tasks(run_id):
                    await sw.advance(run_id, task["step"], summary="done")
            except (GateClosed, StepNotFound):
                pass
            await asyncio.sleep(0.002)

    task = asyncio.create_task(attend())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def nobody(sw: Stepwell, run_id: str) -> AsyncIterator[None]:
    yield


async def finished(sw: Stepwell, clock: FakeClock, run_id: str) -> tuple[str, Any, dict[str, Any]]:
    """Let the run come to its end; its status and output, and how its nodes ended."""
    async with sw.worker(lease="1h"), flowing(clock, "0.1s"), somebody(sw, run_id):
        while not await sw.store.ended([run_id]):
            await asyncio.sleep(0.001)
    run = await sw.get_run(run_id)
    journal = await sw.steps(run_id)
    for step in journal:
        times = executed[run_id, step.key]
        # One more than recorded at most: what was in flight when the process stopped.
        assert times == 0 or step.attempts <= times <= step.attempts + 1, (step.key, times)
    nodes = {
        step.key: (step.kind, step.status, step.output if step.status == "skipped" else None)
        for step in journal
        if step.kind != "now"
    }
    return run.status, run.output, nodes


@pytest.mark.parametrize("name", list(GRAPHS))
@pytest.mark.parametrize("lose", [False, True], ids=["before", "unacknowledged"])
async def test_a_crash_after_any_commit_changes_nothing(
    store_url: str, clock: FakeClock, name: str, lose: bool
) -> None:
    async with opened(store_url, clock) as calm:
        undisturbed = await finished(calm, clock, await start(calm, name, 0))
        assert undisturbed[:2] == EXPECTED[name]
        helping = nobody if name == "gate-approved-later" else somebody
        after, crashed = 0, True
        while crashed:
            after += 1
            executed.clear()
            run_id = await start(calm, name, after)
            async with helping(calm, run_id):
                crashed = await doomed(
                    opened(store_url, clock), clock, run_id, after, lose, is_stuck(calm, name)
                )
            assert await finished(calm, clock, run_id) == undisturbed, f"after commit {after}"
    assert after > 1, "the graph was never interrupted"


def is_stuck(sw: Stepwell, name: str) -> Any:
    """Whether a run waits for somebody who is not there."""

    async def stuck(run_id: str) -> bool:
        return name == "gate-approved-later" and bool(await sw.gates.list(run_id))

    return stuck

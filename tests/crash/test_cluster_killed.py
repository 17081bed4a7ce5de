"""Two servers and four workers on one PostgreSQL, killed one after the other under load."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stepwell import Stepwell
from tests.conftest import new_database

pytestmark = pytest.mark.anyio

STARTS = 400
AT_ONCE = 16
# One process is killed after so many starts have been answered.
KILL_EVERY = 25
JOBS = """
from stepwell import workflow

@workflow(name="double")
async def double(ctx, input):
    half = await ctx.step("half", lambda: input["n"])
    return await ctx.step("whole", lambda: half * 2)
"""


class Process:
    """A command that can be killed, and started again."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._folder = folder
        self._words = words
        self._process: asyncio.subprocess.Process
        # What it said of itself when it was ready.
        self.ready: dict[str, Any] = {}

    async def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "stepwell.cli", *self._words, "--json",
                cwd=self._folder, stdout=asyncio.subprocess.PIPE, stderr=log,
                env={**os.environ, "PYTHONPATH": str(self._folder)},
            )  # fmt: skip
        assert self._process.stdout is not None
        self.ready = json.loads(await self._process.stdout.readline())

    async def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()


async def test_clients_that_try_again_lose_and_double_no_run(
    postgres_server: str, tmp_path: Path
) -> None:
    store = await new_database(postgres_server)
    (tmp_path / "jobs.py").write_text(JOBS)
    targets = ("jobs:double", "--store", store)
    servers = [Process(tmp_path, "serve", "--no-worker", "--port", "0", *targets) for _ in range(2)]
    workers = [Process(tmp_path, "worker", "--lease", "2s", *targets) for _ in range(4)]
    async with Stepwell(store):
        pass  # an empty store is given its tables
    await asyncio.gather(*(each.start() for each in (*servers, *workers)))
    token = (tmp_path / ".stepwell" / "token").read_text().strip()
    victims = itertools.cycle([servers[0], workers[0], servers[1], workers[1], *workers[2:]])
    answered = itertools.count(1)
    kills = 0

    async def start(http: httpx2.AsyncClient, number: int) -> str:
        """Start a run, however often it takes."""
        nonlocal kills
        for server in itertools.cycle(servers):
            try:
                answer = await http.post(
                    f"{server.ready['url']}/api/definitions/double/runs",
                    json={"input": {"n": number}},
                    headers={"Idempotency-Key": f"n-{number}", "Authorization": f"Bearer {token}"},
                )
            except httpx2.TransportError:
                continue
            if answer.status_code >= 500:
                continue
            assert answer.is_success, answer.text
            if next(answered) % KILL_EVERY == 0:
                kills += 1
                victim = next(victims)
                await victim.kill()
                await victim.start()
            return str(answer.json()["id"])
        raise AssertionError

    numbers = iter(range(STARTS))
    found: dict[int, str] = {}

    async def load() -> None:
        async with httpx2.AsyncClient(timeout=30) as http:
            for number in numbers:
                found[number] = await start(http, number)

    try:
        await asyncio.gather(*(load() for _ in range(AT_ONCE)))
        async with Stepwell(store) as sw:
            for number, run_id in found.items():
                assert await sw.result(run_id, timeout=120) == number * 2
            assert (await sw.count_runs())["double"] == {"completed": STARTS}
    finally:
        for each in (*servers, *workers):
            await each.stop()
    assert kills == STARTS // KILL_EVERY
    assert len(set(found.values())) == STARTS

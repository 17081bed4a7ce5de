"""Who takes part in the comparison, and how one of them does one workload on a fresh store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import environments, process, server

TIMEOUT_SECONDS = 240
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Contender:
    """An engine on a store. `sizes` are smaller sizes it is given, said so in the table."""

    name: str
    engine: str
    store: str
    sizes: dict[str, Any] = field(default_factory=dict)

    @property
    def is_peer(self) -> bool:
        return self.engine != "stepwell"


CONTENDERS = (
    Contender("stepwell-sqlite", "stepwell", "sqlite"),
    Contender("stepwell-postgres", "stepwell", "postgres"),
    Contender("dbos-sqlite", "dbos", "sqlite", {"sleepers": 2_000}),
    Contender("dbos-postgres", "dbos", "postgres", {"sleepers": 2_000}),
    Contender("absurd", "absurd", "postgres"),
    Contender("restate", "restate", "restate"),
)


class Ring:
    """Where contenders meet: the shared PostgreSQL and a folder on a real disk."""

    def __init__(self, folder: Path, postgres: server.Postgres) -> None:
        self._folder = folder
        self._postgres = postgres
        self._count = 0

    async def measure(
        self, contender: Contender, workload: str, concurrency: int, sizes: dict[str, Any]
    ) -> dict[str, Any]:
        """The figures of one workload, or its `error`."""
        async with self.store(contender, workload, concurrency) as (dsn, folder):
            return self.run(contender, workload, concurrency, sizes, dsn, folder / "trace")

    @asynccontextmanager
    async def store(
        self, contender: Contender, workload: str, concurrency: int
    ) -> AsyncIterator[tuple[str, Path]]:
        """An empty store of the contender's kind, and a folder beside it."""
        self._count += 1
        name = f"{contender.name}-{workload}-{self._count}"
        folder = self._folder / name
        folder.mkdir()
        try:
            if contender.store == "sqlite":
                yield f"sqlite:///{folder}/store.db", folder
            elif contender.store == "postgres":
                try:
                    yield await self._postgres.create(name), folder
                finally:
                    await self._postgres.drop(name)
            else:
                binary = environments.restate_server()
                # Only where runs compete for the worker does a limit help it; elsewhere it blocks.
                limit = concurrency if workload in ("w1", "w7") else 1_000
                with server.restate(binary, folder / "restate", limit) as dsn:
                    yield dsn, folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def run(
        self,
        contender: Contender,
        workload: str,
        concurrency: int,
        sizes: dict[str, Any],
        dsn: str,
        trace: Path,
    ) -> dict[str, Any]:
        command = [
            environments.interpreter(contender.engine),
            "-m", f"benchmarks.engines.{contender.engine}",
            "--store", contender.store, "--dsn", dsn, "--workload", workload,
            "--concurrency", str(concurrency), "--trace", str(trace),
            "--sizes", json.dumps(sizes),
        ]  # fmt: skip
        paths = f"{self._postgres.bin_path}{os.pathsep}{os.environ['PATH']}"  # psql, for absurdctl
        child = process.spawn(
            command,
            cwd=ROOT,
            env=os.environ | {"PATH": paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            out, err = child.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return {"error": f"not done within {TIMEOUT_SECONDS} s"}
        finally:
            process.kill(child)
        try:
            return json.loads(out.splitlines()[-1])
        except (IndexError, ValueError):
            return {"error": err.decode(errors="replace").strip()[-2_000:] or "no output"}

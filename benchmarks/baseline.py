"""What one durable commit costs on each store, with nothing around it."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import apsw
import asyncpg

COMMITS = 500
TABLE = "CREATE TABLE bare (id INTEGER PRIMARY KEY, payload TEXT NOT NULL)"
PAYLOAD = '{"result": 1}'


def sqlite_commit_ms(path: Path) -> float:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.execute(TABLE)
    samples = []
    for number in range(COMMITS):
        began = time.perf_counter()
        connection.execute("INSERT INTO bare VALUES (?, ?)", (number, PAYLOAD))
        samples.append(time.perf_counter() - began)
    connection.close()
    return statistics.median(samples) * 1000


async def postgres_commit_ms(url: str) -> float:
    connection = await asyncpg.connect(url)
    await connection.execute(TABLE)
    insert = await connection.prepare("INSERT INTO bare VALUES ($1, $2)")
    samples = []
    for number in range(COMMITS):
        began = time.perf_counter()
        await insert.fetch(number, PAYLOAD)
        samples.append(time.perf_counter() - began)
    await connection.close()
    return statistics.median(samples) * 1000

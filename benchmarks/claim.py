"""W1 beside a million finished runs: the same speed, and no plan that walks through them."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import re
import statistics
from typing import Any

import apsw
import asyncpg

from benchmarks.contender import Contender, Ring

REPETITIONS = 3
LIVE_INDEX = "runs_live"
COPIED = {"runs": "id", "payloads": "run_id", "steps": "run_id"}


async def measure(
    ring: Ring, contender: Contender, concurrency: int, sizes: dict[str, Any], finished: int
) -> dict[str, Any]:
    """The speed of W1 on an empty store and on a full one, alternating, and the plans."""
    empty, full = [], []
    async with ring.store(contender, "claim", concurrency) as (dsn, folder):
        # The one finished run that is copied is a real one.
        ring.run(contender, "w2", concurrency, {"samples": 1}, dsn, folder / "trace")
        store = await _open(contender.store, dsn)
        await store.seed_finished(finished)
        await store.forget()
        for _ in range(REPETITIONS):
            figures = await ring.measure(contender, "w1", concurrency, sizes)
            empty.append(figures.get("steps_per_second", 0.0))
            figures = ring.run(contender, "w1", concurrency, sizes, dsn, folder / "trace")
            full.append(figures.get("steps_per_second", 0.0))
        plans = await store.plans()
        await store.close()
    scanned = any(re.match(r"Seq Scan|SCAN (?!.* USING )", line) for line in plans)
    return {
        "finished": finished,
        "empty_steps_per_second": statistics.median(empty),
        "full_steps_per_second": statistics.median(full),
        "plan_lines": plans,
        "uses_live_index": any(LIVE_INDEX in line for line in plans) and not scanned,
    }


async def _open(store: str, dsn: str) -> _Sqlite | _Postgres:
    if store == "sqlite":
        return _Sqlite(apsw.Connection(dsn.removeprefix("sqlite:///")))
    return _Postgres(await asyncpg.connect(dsn, server_settings={"search_path": "stepwell"}))


class _Sqlite:
    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection

    async def seed_finished(self, count: int) -> None:
        """Copy the oldest finished run, with payloads and journal, `count` times."""
        template = self._db.execute("SELECT min(id) FROM runs WHERE status = 'completed'").get
        numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        with self._db:
            for table, key in COPIED.items():
                columns = [row[1] for row in self._db.execute(f"PRAGMA table_info({table})")]
                select = ", ".join("printf('old%010d', i)" if c == key else c for c in columns)
                rows = f"SELECT {select} FROM n, {table} WHERE {key} = ?"
                self._db.execute(f"{numbers} INSERT INTO {table} {rows}", (count, template))

    async def forget(self) -> None:
        """Plans are not counted here."""

    async def plans(self) -> list[str]:
        """How the statements that claim find runs."""
        lines = [line for sql in _statements() for line in self._plan(sql)]
        return [line for line in lines if re.search(r"runs_|SCAN (runs|r)\b", line)]

    def _plan(self, sql: str) -> list[str]:
        numbers = re.findall(r"\?(\d*)", sql)
        nulls = (None,) * max([int(number) for number in numbers if number] or [len(numbers)])
        return [row[3] for row in self._db.execute(f"EXPLAIN QUERY PLAN {sql}", nulls)]

    async def close(self) -> None:
        self._db.close()


class _Postgres:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._db = connection

    async def seed_finished(self, count: int) -> None:
        """Copy the oldest finished run, with payloads and journal, `count` times."""
        template = await self._db.fetchval("SELECT min(id) FROM runs WHERE status = 'completed'")
        for table, key in COPIED.items():
            columns = await self._db.fetch(
                "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1)"
                " AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                table,
            )
            names = [row[0] for row in columns]
            select = ", ".join("'old' || lpad(i::text, 10, '0')" if c == key else c for c in names)
            await self._db.execute(
                f"INSERT INTO {table} ({', '.join(names)}) SELECT {select}"
                f" FROM generate_series(1, $1::int) i, {table} WHERE {key} = $2",
                count,
                template,
                timeout=200,
            )
        await self._db.execute("VACUUM ANALYZE", timeout=200)
        await self._db.execute("CHECKPOINT", timeout=200)

    async def forget(self) -> None:
        await self._db.execute("SELECT pg_stat_reset()")

    async def plans(self) -> list[str]:
        """How the server found runs since `forget`, by its own count.

        It plans each call by its arguments, so what EXPLAIN says without them is not what it does.
        """
        await asyncio.sleep(1)  # until ended sessions have reported
        tables = await self._db.fetch(
            "SELECT relname, seq_scan FROM pg_stat_user_tables"
            " WHERE schemaname = 'stepwell' AND relname = ANY($1) AND seq_scan > 0",
            list(COPIED),
        )
        indexes = await self._db.fetch(
            "SELECT indexrelname, idx_scan, idx_tup_read FROM pg_stat_user_indexes"
            " WHERE relname = 'runs' AND idx_scan > 0 ORDER BY indexrelname"
        )
        scans = [f"Seq Scan on {name}: {count:,} times" for name, count in tables]
        return scans + [
            f"Index Scan using {name}: {count:,} times, {rows:,} entries read"
            for name, count, rows in indexes
        ]

    async def close(self) -> None:
        await self._db.close()


def _statements() -> list[str]:
    """Every query for due runs in the module that claims them on SQLite, from its source."""
    source = inspect.getsource(importlib.import_module("stepwell.stores.sqlite.claim"))
    texts = (
        node.value.lstrip()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return [
        text
        for text in texts
        if text.startswith(("SELECT", "WITH")) and "FROM runs" in text and "due_at" in text
    ]

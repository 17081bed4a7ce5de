"""W1 beside a million finished runs: the same speed, and no plan that walks through them."""

from __future__ import annotations

import ast
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
        for _ in range(REPETITIONS):
            figures = await ring.measure(contender, "w1", concurrency, sizes)
            empty.append(figures.get("steps_per_second", 0.0))
            figures = ring.run(contender, "w1", concurrency, sizes, dsn, folder / "trace")
            full.append(figures.get("steps_per_second", 0.0))
        plans = [line for sql in _statements(contender.store) for line in await store.plan(sql)]
        await store.close()
    scans = [line for line in plans if _is_scan(line)]
    return {
        "finished": finished,
        "empty_steps_per_second": statistics.median(empty),
        "full_steps_per_second": statistics.median(full),
        "plan_lines": [line.strip() for line in plans if "runs_" in line] + scans,
        "uses_live_index": any(LIVE_INDEX in line for line in plans) and not scans,
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

    async def plan(self, sql: str) -> list[str]:
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

    async def plan(self, sql: str) -> list[str]:
        explain = await self._db.prepare(f"EXPLAIN (GENERIC_PLAN, COSTS OFF) {sql}")
        rows = await explain.fetch(*(None for _ in explain.get_parameters()))
        return [row[0] for row in rows]

    async def close(self) -> None:
        await self._db.close()


def _statements(store: str) -> list[str]:
    """Every query for due runs in the module that claims them, taken from its source."""
    module = importlib.import_module(f"stepwell.stores.{store}.claim")
    tree = ast.parse(inspect.getsource(module))
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    fragments = {id(part) for text in texts for part in text.values}
    texts += [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and id(node) not in fragments
    ]
    found = []
    for text in texts:
        # An f-string is put together from constants of the module, as the module does it.
        value = eval(compile(ast.Expression(text), "sql", "eval"), vars(module))
        if isinstance(value, str) and value.lstrip().startswith(("SELECT", "WITH")):
            found.append(value)
    return [text for text in found if "FROM runs" in text and "due_at" in text]


def _is_scan(line: str) -> bool:
    """A plan line that walks through the whole table or a whole index that holds ended runs."""
    return line.strip().startswith(("SCAN runs", "SCAN r ", "Seq Scan on runs")) and (
        LIVE_INDEX not in line
    )

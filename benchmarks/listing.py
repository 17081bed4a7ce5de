"""W13: lists of runs over HTTP beside a million of them, by every filter that there is."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import apsw
import asyncpg

from benchmarks.engine import Options
from benchmarks.http import serving
from stepwell import Stepwell
from stepwell.kernel.clock import to_micros
from stepwell.kernel.ids import Ids
from stepwell.kernel.matching import filed_under
from stepwell.testing.clock import FakeClock

SPAN = timedelta(days=30)
DEFINITIONS = 20
CUSTOMERS = 50_000
# Of a thousand runs, how many ended otherwise than well.
STATUSES = {**dict.fromkeys(range(20), "failed"), 20: "cancelled", 21: "timed_out"}
RUN_COLUMNS = (
    "id", "workspace_id", "definition", "version", "program", "status", "priority", "created_at",
    "started_at", "completed_at", "retention_seconds",
)  # fmt: skip
CHUNK = 20_000


def w13(options: Options) -> dict[str, Any]:
    """How long a page takes, at the 95th percentile, by the filter that takes longest."""
    until = datetime.now(UTC)
    asyncio.run(_fill(options, until))
    with serving(options, "--no-worker") as (url, own):
        taken = {name: _p95(url, own, query) for name, query in _queries(until)}
    return {"list_p95_ms": max(taken.values()), **taken}


def _queries(until: datetime) -> Iterator[tuple[str, str]]:
    """Every filter, alone and with others, as a query; `{n}` is another number each time."""
    hour, month = (quote((until - ago).isoformat()) for ago in (timedelta(hours=1), SPAN))
    middle = quote((until - SPAN / 2).isoformat())
    yield "all", ""
    yield "status", "status=failed"
    yield "a rare status", "status=timed_out"
    yield "completed", "status=completed"
    yield "two statuses", "status=failed,cancelled"
    yield "a status that nothing has", "status=running"
    yield "definition", "definition=job-7"
    yield "status of a definition", "definition=job-7&status=cancelled"
    yield "since", f"since={hour}"
    yield "until", f"until={middle}"
    yield "since and until", f"since={month}&until={middle}"
    yield "failed until", f"status=failed&until={middle}"
    yield "input", "input.order.id={n}"
    yield "an input that many have", "input.region=eu"
    yield "an input that nothing has", "input.region=mars"
    yield "two inputs", "input.customer={n}&input.region=eu"
    yield "input of a definition", "definition=job-7&input.customer={n}"
    yield "input and status", "status=failed&input.customer={n}"


def _p95(url: str, own: dict[str, str], query: str, samples: int = 60) -> float:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    taken = []
    for number in range(samples):
        path = "/api/runs?" + query.replace("{n}", str(number * 7_919 % CUSTOMERS))
        began = time.perf_counter()
        connection.request("GET", path, headers=own)
        answer = connection.getresponse()
        body = answer.read()
        taken.append((time.perf_counter() - began) * 1000)
        assert answer.status == 200, body
    connection.close()
    return sorted(taken)[samples * 95 // 100]


async def _fill(options: Options, until: datetime) -> None:
    """Runs that have ended in the last month, evenly."""
    async with Stepwell(options.dsn):
        pass
    clock = FakeClock(to_micros(until - SPAN))
    ids, step = Ids(clock), SPAN / options.sizes.listed
    store = _Sqlite(options.dsn) if options.store == "sqlite" else await _postgres(options.dsn)
    for first in range(0, options.sizes.listed, CHUNK):
        runs, payloads, terms = [], [], []
        for number in range(first, min(first + CHUNK, options.sizes.listed)):
            clock.advance(step)
            run_id, now = ids.new(), clock.now()
            status = STATUSES.get(number % 1000, "completed")
            name = f"job-{number // 7 % DEFINITIONS}"
            runs.append((run_id, "default", name, 1, f"code:{name}@1", status, 0, now, now, now,
                         365 * 86_400))  # fmt: skip
            body = json.dumps({
                "order": {"id": number}, "customer": number % CUSTOMERS,
                "region": ("eu", "us")[number % 2],
            })  # fmt: skip
            payloads += [(run_id, "input", body), (run_id, "output", '"done"')]
            terms += [(run_id, "default", term) for term in filed_under(body)]
        await store.add("runs", RUN_COLUMNS, runs)
        await store.add("payloads", ("run_id", "kind", "body"), payloads)
        await store.add("terms", ("run_id", "workspace_id", "term"), terms)
    await store.close()


class _Sqlite:
    def __init__(self, dsn: str) -> None:
        self._db = apsw.Connection(dsn.removeprefix("sqlite:///"))

    async def add(self, table: str, columns: tuple[str, ...], rows: list[Any]) -> None:
        values = ", ".join("?" * len(columns))
        with self._db:
            self._db.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})",
                                 rows)  # fmt: skip

    async def close(self) -> None:
        self._db.close()


async def _postgres(dsn: str) -> _Postgres:
    return _Postgres(await asyncpg.connect(dsn, server_settings={"search_path": "stepwell"}))


class _Postgres:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._db = connection

    async def add(self, table: str, columns: tuple[str, ...], rows: list[Any]) -> None:
        await self._db.copy_records_to_table(table, records=rows, columns=columns, timeout=200)

    async def close(self) -> None:
        # As the server does by itself, within a minute.
        await self._db.execute("VACUUM ANALYZE", timeout=200)
        await self._db.close()

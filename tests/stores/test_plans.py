"""A million finished runs cost the claim nothing: it reads the live ones through their index."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from stepwell.kernel.changes import ClaimRuns, EndRun, Held
from stepwell.kernel.clock import SECOND
from stepwell.store import Store
from stepwell.stores.postgres import PostgresStore
from stepwell.stores.sqlite import SqliteStore
from stepwell.testing.clock import FakeClock
from stepwell.testing.samples import (
    PROGRAM,
    WORKSPACE,
    claim,
    commit,
    enlist,
    record,
    start,
)
from tests.conftest import new_database

FINISHED = 1500


async def fill(store: Store) -> None:
    """Many runs that have ended, and three that are due."""
    await enlist(store, "w0")
    await commit(store, *(start(store, f"r{n:05}") for n in range(FINISHED)))
    held = [
        Held(run.id, "w0", run.fence) for run in (await claim(store, "w0", limit=FINISHED)).runs
    ]
    assert len(held) == FINISHED
    now = store.clock.now()
    await commit(store, *(EndRun(one, "completed", "1", None, now) for one in held))
    await commit(store, *(start(store, f"s{n}") for n in range(3)))


async def claim_three(store: Store) -> None:
    await enlist(store, "w1")
    claimed = await claim(store, "w1", sweep=True)
    runs = claimed.runs or (await claim(store, "w1")).runs
    assert [run.id for run in runs] == ["s0", "s1", "s2"]


async def start_and_end_one(store: Store) -> None:
    """A start that is taken at once, beside a run that sleeps; then its end."""
    now = store.clock.now()
    await commit(store, start(store, "later", due_at=now + 3600 * SECOND))
    ask = ClaimRuns(WORKSPACE, "w1", [PROGRAM], 10, now)
    _, claimed = await commit(store, start(store, "now"), ask)
    assert [run.id for run in claimed.runs] == ["now"]
    assert claimed.next_at == now + 3600 * SECOND
    held = Held("now", "w1", claimed.runs[0].fence)
    await commit(store, record(store, held, "a"), EndRun(held, "completed", "1", None, now))


async def test_a_claim_on_sqlite_uses_the_index_of_live_runs(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = str(tmp_path / "stepwell.db")
    store = SqliteStore(path, clock)
    await store.open()
    await fill(store)
    await store.close()
    statements: dict[str, Any] = {}

    def listen(connection: apsw.Connection) -> None:
        def heard(cursor: apsw.Cursor, sql: str, bindings: Any) -> bool:
            statements[sql] = bindings
            return True

        connection.exec_trace = heard

    apsw.connection_hooks.append(listen)
    try:
        store = SqliteStore(path, clock)
        await store.open()
        statements.clear()
        await claim_three(store)
        await start_and_end_one(store)
        await store.close()
    finally:
        apsw.connection_hooks.remove(listen)
    plans: list[str] = []
    console = apsw.Connection(path)
    for sql, bindings in statements.items():
        if sql.lstrip().startswith(("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")):
            plans += [row[3] for row in console.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
    console.close()
    assert any("runs_live" in plan for plan in plans)
    tables = r"SCAN (runs|r|steps|waits|payloads|limits|events)\b"
    scans = [plan for plan in plans if re.match(tables, plan) and "INDEX" not in plan]
    assert scans == []
    # An index that also holds what has ended would be as long as the table.
    assert not [plan for plan in plans if "runs_by_" in plan]


async def test_a_claim_on_postgres_uses_the_index_of_live_runs(
    postgres_server: str, clock: FakeClock
) -> None:
    url = await new_database(postgres_server)
    store = PostgresStore(url, clock)
    await store.open()
    await fill(store)
    await store.close()
    console = await asyncpg.connect(url)
    await console.execute("VACUUM ANALYZE")
    before = await _read(console)
    assert before["rows"] > FINISHED
    store = PostgresStore(url, clock)
    await store.open()
    await claim_three(store)
    await start_and_end_one(store)
    await store.close()
    after = await _read(console)
    assert after["live"] > before["live"]
    assert after["rows"] - before["rows"] < FINISHED / 10
    await console.close()


async def _read(console: asyncpg.Connection) -> dict[str, int]:
    """How often the index of live runs was used, and how many rows of runs were read at all."""
    # The server counts what a connection read when that connection is gone, at the latest.
    while await console.fetchval(
        """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
              AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""
    ):
        await asyncio.sleep(0.001)
    row = await console.fetchrow(
        """SELECT (SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'runs_live'),
                  seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables
           WHERE schemaname = 'stepwell' AND relname = 'runs'"""
    )
    assert row is not None
    return {"live": row[0], "rows": row[1]}

"""Durability is not traded for speed, whatever the file or the database was set to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import asyncpg
import pytest

from stepwell.errors import StoreUnavailable, StoreUrlInvalid
from stepwell.kernel.changes import EndRun
from stepwell.stores.postgres import PostgresStore
from stepwell.stores.postgres.address import Address
from stepwell.stores.sqlite import SqliteStore
from stepwell.testing.clock import FakeClock
from stepwell.testing.samples import WORKSPACE, claim_one, commit, enlist, record, start
from tests.conftest import new_database

FULL = 2


@pytest.fixture
def connections() -> Iterator[list[apsw.Connection]]:
    """Every connection to SQLite that is made meanwhile."""
    made: list[apsw.Connection] = []
    apsw.connection_hooks.append(made.append)
    yield made
    apsw.connection_hooks.remove(made.append)


async def test_sqlite_writes_through_on_every_connection(
    tmp_path: Path, clock: FakeClock, connections: list[apsw.Connection]
) -> None:
    path = tmp_path / "stepwell.db"
    store = SqliteStore(str(path), clock)
    await store.open()
    await commit(store, start(store, "r1"))
    assert await store.get_run(WORKSPACE, "r1") is not None
    assert len(connections) >= 2  # one to write with, one to read
    for connection in connections:
        assert connection.pragma("synchronous") == FULL
        assert connection.pragma("journal_mode") == "wal"
    await store.close()


async def test_postgres_commits_durably_though_the_database_says_otherwise(
    postgres_server: str, clock: FakeClock
) -> None:
    url = await new_database(postgres_server)
    store = PostgresStore(url, clock)
    await store.open()
    await store.close()
    console = await asyncpg.connect(url)
    database = await console.fetchval("SELECT current_database()")
    await console.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    await console.execute(
        """CREATE TABLE seen (what text, setting text);
           CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               INSERT INTO public.seen
               VALUES (TG_TABLE_NAME, current_setting('synchronous_commit'));
               RETURN NULL;
           END $$;"""
    )
    tables = ("runs", "steps", "payloads", "workers")
    for table in tables:  # looked at when the transaction commits
        await console.execute(
            f"""CREATE CONSTRAINT TRIGGER see AFTER INSERT OR UPDATE ON stepwell.{table}
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()"""
        )
    store = PostgresStore(url, clock)
    await store.open()
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    await commit(store, record(store, held, "a"))
    await commit(store, EndRun(held, "completed", "1", None, clock.now()))
    await store.close()
    rows = await console.fetch("SELECT DISTINCT what, setting FROM seen ORDER BY what")
    assert [(row[0], row[1]) for row in rows] == [(table, "on") for table in sorted(tables)]
    await console.close()


@pytest.mark.parametrize("fate", ["deleted", "moved", "replaced"])
async def test_sqlite_acknowledges_nothing_once_its_file_is_gone(
    tmp_path: Path, clock: FakeClock, fate: str
) -> None:
    path, away = tmp_path / "stepwell.db", tmp_path / "away.db"
    store = SqliteStore(str(path), clock)
    await store.open()
    await commit(store, start(store, "r1"))
    if fate == "deleted":
        path.unlink()
    else:
        path.rename(away)
    if fate == "replaced":
        path.write_bytes(away.read_bytes())
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="file"):
            await commit(store, start(store, "r2"))
    if fate == "moved":
        with pytest.raises(StoreUnavailable, match="file"):
            await store.get_run(WORKSPACE, "r1")  # the first to read, which takes a new connection
        assert not path.exists()
        away.rename(path)
        await commit(store, start(store, "r2"))
        assert await store.get_run(WORKSPACE, "r2") is not None
    await store.close()


async def test_sqlite_stays_with_its_file_when_the_working_directory_changes(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("stepwell.db", clock)
    await store.open()
    await commit(store, start(store, "r1"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert await store.get_run(WORKSPACE, "r1") is not None
    assert list(Path().iterdir()) == []
    await store.close()


async def test_postgres_reads_what_is_committed_though_the_database_says_otherwise(
    postgres_server: str, clock: FakeClock
) -> None:
    url = await new_database(postgres_server)
    console = await asyncpg.connect(url)
    database = await console.fetchval("SELECT current_database()")
    for setting in ("default_transaction_isolation = 'serializable'", "array_nulls = off"):
        await console.execute(f"ALTER DATABASE {database} SET {setting}")
    await console.close()
    for asked in (url, f"{url}&default_transaction_isolation=serializable"):
        db = await Address(asked).connect()
        async with db.transaction():
            assert await db.fetchval("SHOW transaction_isolation") == "read committed"
        await db.close()
    store = PostgresStore(url, clock)
    await store.open()
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    assert (await claim_one(store, "w1"))[0].id == "r1"
    await store.close()


async def test_a_database_that_cannot_hold_all_text_is_refused(
    postgres_server: str, clock: FakeClock
) -> None:
    console = await asyncpg.connect(postgres_server)
    name = f"latin_{clock.now()}"
    await console.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    store = PostgresStore(postgres_server.replace("/postgres?", f"/{name}?"), clock)
    with pytest.raises(StoreUrlInvalid, match="LATIN1"):
        await store.open()
    await store.close()
    await console.execute(f"DROP DATABASE {name}")
    await console.close()

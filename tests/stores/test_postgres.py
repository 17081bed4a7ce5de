"""What is particular to PostgreSQL: opening, refusals, roles, notices, others' transactions."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from stepwell import Stepwell, workflow
from stepwell.errors import (
    InvalidInput,
    StoreUnavailable,
    StoreUrlInvalid,
)
from stepwell.kernel.changes import Claimed, ClaimRuns, StartRun
from stepwell.kernel.clock import SystemClock
from stepwell.stores.postgres import PostgresStore
from stepwell.stores.postgres.address import Address
from stepwell.stores.postgres.immediate import start_and_take
from stepwell.testing.clock import FakeClock
from stepwell.testing.samples import PROGRAM, WORKSPACE, commit, enlist, start
from tests.conftest import new_database
from tests.engine.support import eventually, until
from tests.stores.support import alone, doubling, execute, named


@pytest.fixture
async def url(postgres_server: str) -> str:
    """An empty database."""
    return await new_database(postgres_server)


# -- opening -----------------------------------------------------------------------------------


async def test_many_may_open_an_empty_database_at_once(url: str) -> None:
    stores = [PostgresStore(url, SystemClock()) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    assert [await store.migrate() for store in stores] == [[]] * 8
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_store_that_was_closed_can_be_opened_again(url: str) -> None:
    store = PostgresStore(url, SystemClock())
    for _ in range(2):
        await store.open()
        assert await store.count_runs("default") == {}
        await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.count_runs("default")


async def test_the_clock_follows_the_database(url: str) -> None:
    clock = SystemClock()
    clock.sync(0)
    store = PostgresStore(url, clock)
    await store.open()
    await store.close()
    assert abs(clock.now() - SystemClock().now()) < 60_000_000


async def test_whoever_gives_up_connecting_leaves_no_connection(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[asyncpg.Connection] = []

    async def hang(self: asyncpg.Connection, *_: Any) -> Any:
        made.append(self)
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncpg.Connection, "fetch", hang)
    connecting = asyncio.create_task(Address(url).connect())
    await eventually(lambda: made)
    connecting.cancel()
    await asyncio.wait([connecting])
    assert made[0].is_closed()


# -- refusals ----------------------------------------------------------------------------------


async def rules_apply(url: str) -> None:
    """Return once the server refuses this URL: it takes a moment to read its rules."""
    with contextlib.suppress(asyncpg.InvalidPasswordError):
        while True:
            await execute(url)


async def test_a_wrong_password_is_refused_at_once(url: str) -> None:
    (folder,) = parse_qs(urlsplit(url).query)["host"]
    rules = Path(folder, "pg_hba.conf")
    rules.write_text("local all locked scram-sha-256\n" + rules.read_text())
    await execute(url, "CREATE ROLE locked LOGIN PASSWORD 'right'", "SELECT pg_reload_conf()")
    await rules_apply(named(url, "locked", "wrong"))
    with pytest.raises(StoreUnavailable) as refused:
        await PostgresStore(named(url, "locked", "wrong"), SystemClock()).open()
    assert "password authentication failed" in refused.value.message
    assert "wrong" not in refused.value.message


async def test_an_unknown_database_is_refused_at_once(postgres_server: str) -> None:
    url = postgres_server.replace("/postgres?", "/nowhere?")
    with pytest.raises(StoreUnavailable, match=r"nowhere.*Check user, password and database"):
        await PostgresStore(url, SystemClock()).open()


async def test_an_unreachable_server_is_tried_again_and_then_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = []
    connect = Address.connect

    async def counted(self: Address, **settings: str) -> asyncpg.Connection:
        tries.append(self)
        return await connect(self, **settings)

    monkeypatch.setattr(Address, "connect", counted)
    monkeypatch.setattr("stepwell.stores.postgres.store.OPEN_SECONDS", 0.2)
    with pytest.raises(StoreUnavailable) as away:
        await PostgresStore("postgresql://me:secret@127.0.0.1:1/work", SystemClock()).open()
    assert len(tries) > 1
    assert "work on 127.0.0.1:1" in away.value.message
    assert "secret" not in away.value.message


@pytest.mark.parametrize(
    "change",
    ["nonsense=1", "port=many", "sslmode=perhaps"],
)
async def test_a_url_that_cannot_be_used_is_refused(url: str, change: str) -> None:
    with pytest.raises(StoreUrlInvalid):
        await PostgresStore(f"{url}&{change}", SystemClock()).open()


async def test_a_pooler_is_told_from_a_server_that_is_away() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What PgBouncer answers to the settings of Stepwell's sessions."""
        while (length := int.from_bytes(await reader.readexactly(4))) == 8:
            await reader.readexactly(4)
            writer.write(b"N")  # no TLS here
        await reader.readexactly(length - 4)
        text = b"unsupported startup parameter: plan_cache_mode"
        fields = b"SFATAL\0VFATAL\0C08P01\0M" + text + b"\0\0"
        writer.write(b"E" + (len(fields) + 4).to_bytes(4) + fields)
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(StoreUrlInvalid, match="names a connection pooler"):
            await PostgresStore(f"postgresql://me@127.0.0.1:{port}/work", SystemClock()).open()


async def test_what_cannot_be_an_id_is_not_found(url: str) -> None:
    store = PostgresStore(url, SystemClock())
    await store.open()
    for impossible in ("", "\x00", "a\x1fb", "\ud800"):
        assert await store.get_run("default", impossible) is None
    await store.close()


# -- starting inside somebody's transaction ----------------------------------------------------


async def test_a_start_shares_the_fate_of_the_callers_transaction(
    url: str, clock: FakeClock
) -> None:
    async with Stepwell(workflows=[doubling], store=PostgresStore(url, clock)) as sw:
        async with sw.worker():
            connection = await asyncpg.connect(url)
            transaction = connection.transaction()
            await transaction.start()
            lost = await sw.start("doubling", 1, connection=connection)
            await transaction.rollback()
            async with connection.transaction():
                await connection.execute("CREATE TABLE orders (run_id text)")
                kept = await sw.start("doubling", 4, connection=connection)
                await connection.execute("INSERT INTO orders VALUES ($1)", kept.id)
                assert kept.created
                assert [run.id for run in (await sw.list_runs()).items] == []
            # The clock stands still: only the notice of that commit can wake the worker.
            run = await until(sw, kept.id, "completed")
            assert run.output == 8
            assert [run.id for run in (await sw.list_runs()).items] == [kept.id]
            assert lost.id != kept.id
            await connection.close()


async def test_a_start_in_a_transaction_is_idempotent(url: str, clock: FakeClock) -> None:
    async with Stepwell(workflows=[doubling], store=PostgresStore(url, clock)) as sw:
        first = await sw.start("doubling", 1, idempotency_key="k")
        pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
        async with pool.acquire() as connection, connection.transaction():
            again = await sw.start("doubling", 2, idempotency_key="k", connection=connection)
            other = await sw.start("doubling", 3, idempotency_key="l", connection=connection)
        await pool.close()
        assert (again.id, again.created, other.created) == (first.id, False, True)
        assert [run.input for run in (await sw.list_runs()).items] == [3, 1]


async def test_a_start_in_a_transaction_keeps_to_limits(url: str, clock: FakeClock) -> None:
    async with Stepwell(workflows=[alone], store=PostgresStore(url, clock)) as sw:
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            runs = [await sw.start("alone", connection=connection) for _ in range(3)]
        async with sw.worker():
            for run in runs:
                await until(sw, run.id, "waiting")
                others = [(await sw.get_run(other.id)).status for other in runs if other is not run]
                assert "waiting" not in others
                await sw.signal(run.id, "go", 1)
                assert await run.result() == 1
        await connection.close()


async def test_a_start_needs_the_right_connection(url: str, postgres_server: str) -> None:
    async with Stepwell(url, workflows=[doubling]) as sw:
        with pytest.raises(InvalidInput, match="asyncpg"):
            await sw.start("doubling", 1, connection=object())
        elsewhere = await asyncpg.connect(postgres_server)
        async with elsewhere.transaction():
            with pytest.raises(InvalidInput, match="no schema `stepwell`"):
                await sw.start("doubling", 1, connection=elsewhere)
            assert await elsewhere.fetchval("SELECT 1") == 1  # the transaction goes on
        await elsewhere.close()


# -- notices -----------------------------------------------------------------------------------


async def test_a_start_wakes_a_worker_in_another_process(url: str, clock: FakeClock) -> None:
    # The clocks stand still, so that nobody looks by himself.
    async with (
        Stepwell(workflows=[doubling], store=PostgresStore(url, clock)) as here,
        Stepwell(workflows=[doubling], store=PostgresStore(url, FakeClock())) as there,
        there.worker(),
    ):
        for number in range(3):
            run = await here.start("doubling", number)
            assert (await until(here, run.id, "completed")).output == number * 2


async def somebody_listens(url: str) -> None:
    """Return when some process does."""
    db = await asyncpg.connect(url)
    listening = """SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND query LIKE 'LISTEN%'"""
    while not await db.fetchval(listening):
        await asyncio.sleep(0.01)
    await db.close()


async def test_a_cancellation_reaches_a_worker_in_another_process(
    url: str, clock: FakeClock
) -> None:
    started, interrupted = asyncio.Event(), asyncio.Event()

    async def forever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()

    @workflow
    async def endless(ctx: Any, input: Any) -> Any:
        await ctx.step("forever", forever)

    async with (
        Stepwell(workflows=[endless], store=PostgresStore(url, clock)) as here,
        Stepwell(workflows=[endless], store=PostgresStore(url, FakeClock())) as there,
        there.worker(),
    ):
        run = await here.start("endless")
        await started.wait()
        await somebody_listens(url)  # time stands still, so nobody looks for what was not heard
        assert await here.cancel(run.id) is True
        await interrupted.wait()


async def test_a_listener_that_was_cut_off_listens_again(url: str, clock: FakeClock) -> None:
    async with (
        Stepwell(workflows=[doubling], store=PostgresStore(url, clock)) as here,
        Stepwell(workflows=[doubling], store=PostgresStore(url, FakeClock())) as there,
        there.worker(),
    ):
        run = await here.start("doubling", 1)
        await until(here, run.id, "completed")
        await execute(
            url,
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND query LIKE 'LISTEN%'""",
        )
        run = await here.start("doubling", 2)
        assert (await until(here, run.id, "completed")).output == 4


async def test_what_is_said_last_is_heard_although_the_speaker_leaves(
    url: str, clock: FakeClock
) -> None:
    async with Stepwell(workflows=[doubling], store=PostgresStore(url, clock)) as sw, sw.worker():
        await eventually(lambda: sw.store._notices._listener is not None)
        async with Stepwell(store=PostgresStore(url, FakeClock())) as leaving:
            run = await leaving.start("doubling", 5)
        assert (await until(sw, run.id, "completed")).output == 10


# -- a start that shares its batch with a claim ------------------------------------------------


async def start_and_claim(
    store: PostgresStore, change: StartRun, **options: Any
) -> tuple[Any, Claimed]:
    ask = ClaimRuns(WORKSPACE, "w1", [PROGRAM], 1, store.clock.now(), **options)
    started, claimed = await commit(store, change, ask)
    return started, claimed


async def test_a_start_may_be_taken_in_the_same_statement(url: str, clock: FakeClock) -> None:
    store = PostgresStore(url, clock)
    await store.open()
    await enlist(store, "w1")
    deadline = clock.now() + 5_000_000
    first = start(store, "r1", idempotency_key="k", deadline_at=deadline, ttl_at=clock.now() + 1)
    started, claimed = await start_and_claim(store, first)
    assert started == ("r1", True)
    assert [(run.id, run.fence, run.input) for run in claimed.runs] == [("r1", 1, first.input)]
    assert claimed.next_at == deadline  # no longer its time to live in the queue
    run = await store.get_run(WORKSPACE, "r1")
    assert run is not None
    assert (run.status, run.attempt) == ("running", 1)
    # Sent again because the acknowledgement was lost: the same run, claimed again.
    started, claimed = await start_and_claim(store, first, resent=True)
    assert started == ("r1", True)
    assert [(run.id, run.fence) for run in claimed.runs] == [("r1", 2)]
    # The same idempotency key: nothing new, and nothing to be claimed.
    started, claimed = await start_and_claim(
        store, start(store, "r2", idempotency_key="k"), known=["r1"]
    )
    assert (started, claimed.runs) == (("r1", False), [])
    await store.close()


async def test_a_start_waits_its_turn_behind_what_is_due(url: str, clock: FakeClock) -> None:
    store = PostgresStore(url, clock)
    await store.open()
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    started, claimed = await start_and_claim(store, start(store, "r2"))
    assert started == ("r2", True)
    assert ([run.id for run in claimed.runs], claimed.more) == (["r1"], True)
    clock.advance("1m")
    started, claimed = await start_and_claim(store, start(store, "r3"))
    assert (started, claimed.runs, claimed.lease_lost) == (("r3", True), [], True)
    assert (await store.count_runs(WORKSPACE))["work"] == {"running": 1, "pending": 2}
    await store.close()


async def test_a_start_that_is_repeated_writes_nothing_of_its_own(url: str) -> None:
    store = PostgresStore(url, SystemClock())
    await store.open()
    await enlist(store, "w1")
    again = start(store, "r2", idempotency_key="k")
    await commit(store, start(store, "r1", idempotency_key="k"))
    db = await asyncpg.connect(url, server_settings={"search_path": "stepwell"})
    # Whoever is killed right after this has left nothing behind that no run will take with it.
    ask = ClaimRuns(WORKSPACE, "w1", [PROGRAM], 10, store.clock.now())
    assert await start_and_take(db, again, ask) == (False, None)
    for table in ("payloads", "terms"):
        assert await db.fetchval(f"SELECT count(*) FROM {table} WHERE run_id = 'r2'") == 0
    await db.close()
    await store.close()

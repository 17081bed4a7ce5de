"""The sweep on PostgreSQL, and what others do to the same runs while it is at work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from stepwell.kernel.changes import Committed, EndRun, Held
from stepwell.stores.postgres import PostgresStore, sweep
from stepwell.testing.clock import FakeClock
from stepwell.testing.samples import claim, claim_one, commit, enlist, start, wait
from tests.conftest import new_database

ONE_AT_A_TIME = [("definition:down", 1)]
WAITING_FOR_LOCKS = """SELECT count(*) FROM pg_locks WHERE NOT granted AND database =
    (SELECT oid FROM pg_database WHERE datname = current_database())"""
SLOTS = """SELECT count(DISTINCT slot) FROM stepwell.limits
    WHERE admitted AND capacity IS NOT NULL"""


@pytest.fixture
async def url(postgres_server: str) -> str:
    return await new_database(postgres_server)


@pytest.fixture
async def stores(url: str, clock: FakeClock) -> AsyncIterator[list[PostgresStore]]:
    opened = [PostgresStore(url, clock) for _ in range(3)]
    for store in opened:
        await store.open()
    yield opened
    for store in opened:
        await store.close()


async def starve(store: PostgresStore) -> Held:
    """A run that has the only slot and waits, by way of another one, for one in the queue."""
    await enlist(store, "w1")
    await commit(store, start(store, "down", limits=ONE_AT_A_TIME))
    _, down = await claim_one(store, "w1")
    await commit(store, start(store, "between", parent_run_id="down", held=down))
    _, between = await claim_one(store, "w1")
    await commit(store, EndRun(down, "failed", None, None, store.clock.now()))
    await commit(store, start(store, "again", limits=ONE_AT_A_TIME))
    _, again = await claim_one(store, "w1")
    await commit(store, wait(store, again, "between", kind="child", child_run_id="between"))
    below = start(store, "below", parent_run_id="between", held=between, limits=ONE_AT_A_TIME)
    waiting = wait(store, between, "below", kind="child", child_run_id="below")
    await commit(store, below, waiting, start(store, "beside", limits=ONE_AT_A_TIME))
    return again


async def test_a_slot_whose_holder_ends_is_not_shared_and_given_away_too(
    url: str, stores: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, sweeping_store, third = stores
    again = await starve(store)
    await enlist(sweeping_store, "w2")
    fed, go_on = asyncio.Event(), asyncio.Event()
    feed = sweep._feed

    async def feed_and_linger(*args: Any) -> None:
        await feed(*args)
        fed.set()
        await go_on.wait()

    monkeypatch.setattr(sweep, "_feed", feed_and_linger)
    sweeping = asyncio.create_task(claim(sweeping_store, "w2", limit=0, sweep=True))
    await fed.wait()
    ending = asyncio.create_task(
        commit(store, EndRun(again, "failed", None, None, store.clock.now()))
    )
    connection = await asyncpg.connect(url)
    while not (ending.done() or await connection.fetchval(WAITING_FOR_LOCKS)):
        await asyncio.sleep(0)
    known = ["again", "between"]
    known += [run.id for run in (await claim(third, "w1", known=known)).runs]
    go_on.set()
    await asyncio.gather(sweeping, ending)
    await claim(third, "w1", known=known)
    assert await connection.fetchval(SLOTS) == 1
    await connection.close()


async def test_a_sweep_that_finds_nothing_is_one_query_also_without_any_worker(
    url: str, stores: list[PostgresStore]
) -> None:
    asked: list[str] = []
    db = await asyncpg.connect(url, server_settings={"search_path": "stepwell"})
    try:
        with db.query_logger(lambda query: asked.append(query.query)):
            assert await sweep.sweep(db, stores[0].clock.now(), Committed([]))
    finally:
        await db.close()
    assert len(asked) == 1

"""Events on PostgreSQL that are handed over in one statement, and what comes in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from stepwell.kernel.changes import Claimed, ClaimRuns, EmitEvent, Held, ParkRun
from stepwell.stores.postgres import PostgresStore, apply, waking
from stepwell.testing.clock import FakeClock
from stepwell.testing.samples import PROGRAM, WORKSPACE, claim, commit, enlist, start, wait
from tests.conftest import new_database
from tests.stores.support import execute


@pytest.fixture
async def url(postgres_server: str) -> str:
    return await new_database(postgres_server)


@pytest.fixture
async def stores(url: str, clock: FakeClock) -> AsyncIterator[list[PostgresStore]]:
    """Two, as two processes have them."""
    opened = [PostgresStore(url, clock) for _ in range(2)]
    for store in opened:
        await store.open()
    await enlist(opened[0], "w1")
    yield opened
    for store in opened:
        await store.close()


async def held(store: PostgresStore, *run_ids: str) -> list[Held]:
    await commit(store, *(start(store, run_id) for run_id in run_ids))
    return [Held(run.id, "w1", run.fence) for run in (await claim(store, "w1")).runs]


async def park(store: PostgresStore, run: Held) -> None:
    await commit(store, wait(store, run, "a"))
    await commit(store, ParkRun(run, ["a"]))


def mail(store: PostgresStore, id: str = "e1") -> EmitEvent:
    return EmitEvent(id, WORKSPACE, "mail", '{"n": 1}', store.clock.now())


def ask(store: PostgresStore, **options: Any) -> ClaimRuns:
    return ClaimRuns(WORKSPACE, "w1", [PROGRAM], 10, store.clock.now(), **options)


async def test_who_begins_to_wait_while_an_event_looks_is_found(
    stores: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = stores
    first, second = await held(here, "r1", "r2")
    await park(here, first)
    call = waking._call

    async def late(*values: Any) -> Any:
        await park(there, second)
        return await call(*values)

    monkeypatch.setattr(waking, "_call", late)
    new, claimed = await commit(here, mail(here), ask(here))
    assert new
    assert {run.id for run in claimed.runs} == {"r1", "r2"}


async def test_several_events_that_many_wait_for_each_wake_their_own(
    url: str, stores: list[PostgresStore]
) -> None:
    store, count = stores[0], 60
    await commit(store, *(start(store, f"r{number:02}") for number in range(count)))
    found = (await claim(store, "w1", limit=count)).runs
    runs = [Held(run.id, "w1", run.fence) for run in found]
    for number, run in enumerate(runs):
        tag = "ab"[number % 2]
        # Lists are not filed under what is in them: each event has to look at all of these.
        await commit(store, wait(store, run, "a", match=f'{{"tags": ["{tag}"]}}', term=""))
    await commit(store, *(ParkRun(run, ["a"]) for run in runs))
    now = store.clock.now()
    events = [EmitEvent(tag, WORKSPACE, "mail", f'{{"tags": ["{tag}"]}}', now) for tag in "ab"]
    assert await commit(store, *events) == [True, True]
    assert len((await claim(store, "w1", limit=count)).runs) == count


async def test_an_event_whose_claim_fails_is_still_told_of(
    url: str, stores: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores[0]
    (run,) = await held(store, "r1")
    await park(store, run)
    await execute(
        url,
        f"""INSERT INTO stepwell.triggers (workspace_id, id, definition, name, type, origin, serial,
                enabled, config, timezone, created_at, updated_at, since, event, failures)
            VALUES ('{WORKSPACE}', 't1', 'd', 't', 'event', 'hand', 1, true, '{{}}', 'UTC', 0, 0, 0,
                'mail', 0)""",
    )
    real, failures = apply.claim, [asyncpg.DeadlockDetectedError("another batch")]

    async def claim_later(*values: Any) -> Claimed:
        if failures:
            raise failures.pop()
        return await real(*values)

    monkeypatch.setattr(apply, "claim", claim_later)
    done = await store.commit([mail(store), ask(store, sweep=True)])
    assert not failures
    assert done.outcomes[0] is True
    assert (done.due, done.firing) == (True, True)

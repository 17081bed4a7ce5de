"""Several processes at once on one PostgreSQL: nothing is lost, doubled, or waited for in turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from stepwell import Stepwell
from stepwell.kernel.changes import (
    FENCED,
    CancelRun,
    Change,
    ClaimedRun,
    EmitEvent,
    EndRun,
    Held,
    OpenWait,
    SendSignal,
)
from stepwell.kernel.states import quoted
from stepwell.stores.postgres import PostgresStore
from stepwell.testing.clock import FakeClock
from stepwell.testing.samples import WORKSPACE, claim, commit, enlist, record, start, wait
from tests.conftest import new_database

STORES = 4
ROUNDS = 8
RUNS = 6  # of each store


@pytest.fixture
async def url(postgres_server: str) -> str:
    return await new_database(postgres_server)


@pytest.fixture
async def stores(
    url: str, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[list[PostgresStore]]:
    """As many stores as there might be processes; no batch of theirs may run into a deadlock."""
    opened = [PostgresStore(url, clock) for _ in range(STORES)]
    for store in opened:
        await store.open()
    yield opened
    for store in opened:
        await store.close()
    logged = caplog.get_records("call")
    assert [log.message for log in logged if log.name == "stepwell.postgres"] == []


async def value(url: str, query: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def hold_some(stores: list[PostgresStore]) -> list[list[Held]]:
    """Give each store runs of its own; their ids are interleaved, so that locks may cross."""
    ids = [f"r{number:03}" for number in range(RUNS * len(stores))]
    await commit(stores[0], *(start(stores[0], run_id) for run_id in ids))
    held: list[list[Held]] = [[] for _ in stores]
    for number, store in enumerate(stores):
        await enlist(store, f"w{number}")
    for _ in range(RUNS):
        for number, store in enumerate(stores):
            known = [run.run_id for run in held[number]]
            (run,) = (await claim(store, f"w{number}", limit=1, known=known)).runs
            held[number].append(Held(run.id, f"w{number}", run.fence))
    return held


async def all_at_once(stores: list[PostgresStore], batches: list[list[Change]]) -> list[list[Any]]:
    """Commit a batch on each store at the same time."""
    return await asyncio.gather(
        *(commit(store, *batch) for store, batch in zip(stores, batches, strict=True))
    )


def awaiting(store: PostgresStore, run: Held, key: str, event: str) -> OpenWait:
    """A wait for an event that names the run, also if it came before."""
    match, term = f'{{"to": "{run.run_id}"}}', f'["to"]="{run.run_id}"'
    return wait(store, run, key, event=event, match=match, term=term, since=0)


def emitted(store: PostgresStore, event: str, to: Held, by: Held | None = None) -> EmitEvent:
    payload, now = f'{{"to": "{to.run_id}"}}', store.clock.now()
    return EmitEvent(f"{event}-{to.run_id}", WORKSPACE, event, payload, now, held=by)


async def test_events_and_waits_always_meet(url: str, stores: list[PostgresStore]) -> None:
    held = await hold_some(stores)
    waiting = [run for runs in held[:2] for run in runs]
    for turn in range(ROUNDS):
        # Two stores wait, two emit, all at once: whoever comes second must find the first.
        first, second, third, fourth = stores
        await all_at_once(
            stores,
            [
                [awaiting(first, run, f"w{turn}", f"ball-{turn}") for run in held[0]],
                [awaiting(second, run, f"w{turn}", f"ball-{turn}") for run in held[1]],
                [emitted(third, f"ball-{turn}", run) for run in waiting[::2]],
                [emitted(fourth, f"ball-{turn}", run) for run in waiting[1::2]],
            ],
        )
    assert await value(url, "SELECT count(ended_at) FROM stepwell.waits") == ROUNDS * 2 * RUNS


async def test_events_that_cross_do_not_wait_for_each_other(
    url: str, stores: list[PostgresStore]
) -> None:
    held = await hold_some(stores)
    for turn in range(ROUNDS):
        names = [f"ball-{turn}-{number}" for number in range(STORES)]
        await all_at_once(
            stores,
            [
                [awaiting(store, run, f"w{turn}", names[number]) for run in held[number]]
                for number, store in enumerate(stores)
            ],
        )
        # Each store's runs emit what the runs of the next store wait for.
        nexts = [(number + 1) % STORES for number in range(STORES)]
        await all_at_once(
            stores,
            [
                [
                    emitted(store, names[nexts[number]], to, by)
                    for to, by in zip(held[nexts[number]], held[number], strict=True)
                ]
                for number, store in enumerate(stores)
            ],
        )
    ended = await value(url, "SELECT count(ended_at) FROM stepwell.waits")
    assert ended == ROUNDS * RUNS * STORES


async def test_signals_and_waits_always_meet(url: str, stores: list[PostgresStore]) -> None:
    held = await hold_some(stores)
    for turn in range(ROUNDS):
        batches: list[list[Change]] = []
        for number, store in enumerate(stores):
            opened: list[Change] = [wait(store, run, f"w{turn}") for run in held[number]]
            sent: list[Change] = [
                SendSignal(f"{turn}-{to.run_id}", WORKSPACE, to.run_id, "mail", "1", turn)
                for to in reversed(held[(number + 1) % STORES])
            ]
            batches.append([*opened, *sent])
        await all_at_once(stores, batches)
    waits, signals = ROUNDS * RUNS * STORES, ROUNDS * RUNS * STORES
    assert await value(url, "SELECT count(ended_at) FROM stepwell.waits") == waits
    assert await value(url, "SELECT count(consumed_by) FROM stepwell.events") == signals


async def test_children_that_end_are_always_noticed(url: str, stores: list[PostgresStore]) -> None:
    parents = await hold_some(stores)
    everyone = [run for held in parents for run in held]
    children = [start(stores[0], f"{run.run_id}-c", parent_run_id=run.run_id) for run in everyone]
    await commit(stores[0], *children)
    claimed: list[list[ClaimedRun]] = [
        (
            await claim(
                store, f"w{number}", limit=RUNS, known=[run.run_id for run in parents[number]]
            )
        ).runs
        for number, store in enumerate(stores)
    ]
    # Every store waits for children that others hold, and ends children that others wait for.
    now = stores[0].clock.now()
    await all_at_once(
        stores,
        [
            [
                *(
                    wait(store, run, "child", kind="child", child_run_id=f"{run.run_id}-c")
                    for run in parents[number]
                ),
                *(
                    EndRun(Held(run.id, f"w{number}", run.fence), "completed", "1", None, now)
                    for run in claimed[number]
                ),
            ]
            for number, store in enumerate(stores)
        ],
    )
    assert await value(url, "SELECT count(ended_at) FROM stepwell.waits") == len(everyone)


async def test_a_run_is_claimed_once(stores: list[PostgresStore]) -> None:
    total = 200
    await commit(stores[0], *(start(stores[0], f"r{n:03}", priority=n % 3) for n in range(total)))
    taken: Counter[str] = Counter()

    async def work(store: PostgresStore, worker_id: str) -> None:
        await enlist(store, worker_id)
        known: list[str] = []
        while sum(taken.values()) < total:
            found = (await claim(store, worker_id, limit=7, known=known)).runs
            known += [run.id for run in found]
            taken.update(run.id for run in found)

    await asyncio.gather(*(work(store, f"w{n}") for n, store in enumerate(stores)))
    assert set(taken.values()) == {1}


async def test_limits_are_exact_among_many(
    url: str, stores: list[PostgresStore], clock: FakeClock
) -> None:
    total, capacity = 40, 2

    def key_of(run_id: str) -> str:
        # Two keys in turn: whoever ends a run of one of them starts a run of the other.
        return "key:a" if (int(run_id[1:4]) + run_id.endswith("x")) % 2 else "key:b"

    ids = [f"r{number:03}" for number in range(total)]
    later = clock.now() + 1
    await commit(
        stores[0],
        *(
            start(stores[0], run_id, limits=[(key_of(run_id), capacity)], due_at=later)
            for run_id in ids
        ),
    )
    clock.advance(1)  # all of them are due at once, and nobody has been called up
    done: list[str] = []

    async def work(store: PostgresStore, worker_id: str) -> None:
        await enlist(store, worker_id)
        while len(done) < 2 * total:
            runs = (await claim(store, worker_id, limit=3, sweep=True)).runs
            assert await value(url, most_at_once) <= capacity
            for run in runs:
                end = EndRun(Held(run.id, worker_id, run.fence), "completed", "1", None, 1)
                follower = f"{run.id}x"
                following = start(store, follower, limits=[(key_of(follower), capacity)])
                await commit(store, *([] if run.id.endswith("x") else [following]), end)
                done.append(run.id)

    most_at_once = """SELECT coalesce(max(n), 0) FROM (
        SELECT count(*) AS n FROM stepwell.limits WHERE admitted GROUP BY limit_key) counts"""
    await asyncio.gather(*(work(store, f"w{n}") for n, store in enumerate(stores)))
    assert len(set(done)) == len(done) == 2 * total


async def test_a_zombie_records_nothing_after_its_runs_were_taken(
    url: str, stores: list[PostgresStore]
) -> None:
    zombie, *others = stores
    await commit(zombie, *(start(zombie, f"r{n:03}") for n in range(300)))
    await enlist(zombie, "zombie")
    held = [Held(run.id, "zombie", run.fence) for run in (await claim(zombie, "zombie", 300)).runs]
    accepted: Counter[str] = Counter()
    taken: dict[str, int] = {}

    async def haunt() -> None:
        turn = 0
        while len(taken) < len(held):
            turn += 1
            changes = [record(zombie, run, f"s{turn}") for run in held]
            for run, outcome in zip(held, await commit(zombie, *changes), strict=True):
                accepted[run.run_id] += outcome != FENCED

    async def take(store: PostgresStore, worker_id: str) -> None:
        await enlist(store, worker_id)
        known: list[str] = []
        while len(taken) < len(held):
            for run in (await claim(store, worker_id, sweep=True, known=known)).runs:
                taken[run.id] = len(run.journal)
                known.append(run.id)

    await zombie.retire(["zombie"])
    await asyncio.gather(haunt(), *(take(store, f"w{n}") for n, store in enumerate(others)))
    assert dict(accepted) == taken
    assert await value(url, "SELECT count(*) FROM stepwell.steps") == sum(taken.values())


async def test_starts_with_the_same_keys_make_one_run_each(stores: list[PostgresStore]) -> None:
    outcomes = await all_at_once(
        stores,
        [
            [
                start(store, f"r{number}-{n:03}", idempotency_key=f"k{n}")
                for n in (range(300) if number % 2 else reversed(range(300)))
            ]
            for number, store in enumerate(stores)
        ],
    )
    created = [run_id for found in outcomes for run_id, new in found if new]
    assert len(created) == 300
    assert {run_id for found in outcomes for run_id, _ in found} == set(created)


async def test_cancellations_and_ends_decide_each_run_once(
    url: str, stores: list[PostgresStore]
) -> None:
    held = await hold_some(stores)
    now = stores[0].clock.now()
    everyone = [run.run_id for runs in held for run in runs]
    outcomes = await all_at_once(
        stores,
        [
            [
                *(EndRun(run, "completed", "1", None, now) for run in held[number]),
                *(CancelRun(run_id, WORKSPACE, now) for run_id in reversed(everyone)),
            ]
            for number, store in enumerate(stores)
        ],
    )
    ended = sum(outcome is None for found in outcomes for outcome in found[:RUNS])
    cancelled = sum(outcome is True for found in outcomes for outcome in found[RUNS:])
    assert ended + cancelled == len(everyone)
    query = "SELECT count(*) FROM stepwell.runs WHERE status = 'completed'"
    assert await value(url, query) == ended


async def test_retries_and_the_children_they_adopt_do_not_wait_for_each_other(
    url: str, stores: list[PostgresStore]
) -> None:
    held = await hold_some(stores)
    for turn in range(ROUNDS):
        # What each store records for its runs, the retries of another adopt at the same moment.
        batches: list[list[Change]] = []
        for number, store in enumerate(stores):
            children = held[(number + 1) % STORES]
            origins = {child.run_id: f"origin-{turn}-{child.run_id}" for child in children}
            await commit(store, *(start(store, origin) for origin in origins.values()))
            await value(
                url,
                f"""UPDATE stepwell.runs SET parent_run_id = 'origin-{turn}-' || id
                    WHERE id IN ({quoted(origins)})""",
            )
            retries = [
                start(store, f"retry-{turn}-{run_id}", forked_from=origin, fork_for_retry=True)
                for run_id, origin in origins.items()
            ]
            own = [record(store, run, f"s{turn}") for run in reversed(held[number])]
            batches.append([*retries, *own])
        await all_at_once(stores, batches)
        adopted = await value(
            url,
            f"""SELECT count(*) FROM stepwell.runs
                WHERE parent_run_id LIKE 'retry-{turn}-%' AND completed_at IS NULL""",
        )
        assert adopted == STORES * RUNS


async def test_a_claim_does_not_wait_for_what_is_published(url: str, clock: FakeClock) -> None:
    def document(limit: int) -> dict[str, Any]:
        policy = {"max_concurrent_runs": 9, "concurrency": {"key": "@input.k", "limit": limit}}
        node = {"id": "a", "type": "transform", "config": {"value": 1}}
        return {"name": "g", "policy": policy, "nodes": [node]}

    claiming = await asyncpg.connect(url)
    async with Stepwell(store=PostgresStore(url, clock)) as sw:
        await sw.definitions.publish(document(1))
        run = await sw.start("g", {"k": 1})
        async with claiming.transaction():
            # As a claim does it: the run, its limits if that is possible at once, then their rows.
            await claiming.execute("SET LOCAL deadlock_timeout = '50ms'")
            await claiming.execute("SELECT FROM stepwell.runs WHERE id = $1 FOR UPDATE", run.id)
            name = "stepwell:limit:definition:default/g"
            sql = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))"
            assert await claiming.fetchval(sql, name)
            publishing = asyncio.create_task(sw.definitions.publish(document(3)))
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while not await claiming.fetchval(waiting):
                await asyncio.sleep(0.001)
            sql = "UPDATE stepwell.limits SET admitted = true WHERE run_id = $1"
            await claiming.execute(sql, run.id)
        await publishing
    await claiming.close()

"""What a call costs does not grow with what its run, or the store, has behind it.

Costs are counted, not timed: instructions that SQLite executes, rows that PostgreSQL reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import apsw
import asyncpg
import pytest

from stepwell.catalog import store_for
from stepwell.kernel.changes import CancelRun, Change, EmitEvent, EndRun, Held, SendSignal
from stepwell.kernel.clock import SECOND
from stepwell.kernel.codec import encode
from stepwell.kernel.ids import Ids
from stepwell.kernel.matching import term_of
from stepwell.kernel.pacing import Debounce, Throttle
from stepwell.store import RunFilter, Store
from stepwell.testing.clock import FakeClock
from stepwell.testing.samples import (
    WORKSPACE,
    claim,
    claim_one,
    commit,
    enlist,
    record,
    start,
    wait,
)
from tests.stores.support import execute

MANY = 1000

Cost = Callable[[Callable[[Store], Awaitable[object]]], Awaitable[int]]


@pytest.fixture
def cost(store_url: str, clock: FakeClock) -> Cost:
    """What some work costs a store that was opened just for it."""
    on_sqlite = store_url.startswith("sqlite:")

    async def measure(work: Callable[[Store], Awaitable[object]]) -> int:
        executed = 0

        def count() -> bool:
            nonlocal executed
            executed += 1
            return False

        def listen(connection: apsw.Connection) -> None:
            connection.set_progress_handler(count, 1)

        before = 0 if on_sqlite else await rows_read(store_url)
        store = store_for(store_url, clock)
        apsw.connection_hooks.append(listen)
        try:
            await store.open()
            executed = 0
            await work(store)
        finally:
            apsw.connection_hooks.remove(listen)
            await store.close()
        return executed if on_sqlite else await rows_read(store_url) - before

    return measure


async def rows_read(url: str) -> int:
    """How many rows of its tables the server has read so far."""
    console = await asyncpg.connect(url)
    try:
        # It counts what a connection read when that connection is gone, at the latest.
        while await console.fetchval(
            """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                  AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""
        ):
            await asyncio.sleep(0.001)
        read: int = await console.fetchval(
            """SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint
               FROM pg_stat_user_tables WHERE schemaname = 'stepwell'"""
        )
        return read
    finally:
        await console.close()


@pytest.fixture
async def store(store_url: str, clock: FakeClock) -> AsyncIterator[Store]:
    """A store to fill; a test closes it before it counts."""
    store = store_for(store_url, clock)
    await store.open()
    await enlist(store, "w1")
    yield store
    await store.close()


def signals(run_id: str, numbers: range) -> list[Change]:
    return [
        SendSignal(f"{run_id}-{n:05}", WORKSPACE, run_id, "mail", f'{{"n": {n}}}', 0)
        for n in numbers
    ]


async def run_with_signals(store: Store, run_id: str, consumed: int, buffered: int) -> Held:
    """A run that has taken so many signals, and has so many more that nobody took."""
    await commit(store, start(store, run_id))
    _, held = await claim_one(store, "w1")
    keys = [f"k{n}" for n in range(consumed)]
    batches: list[list[Change]] = [
        signals(run_id, range(consumed)),
        [wait(store, held, key) for key in keys],
        [record(store, held, key, kind="event", settles=True) for key in keys],
        signals(run_id, range(consumed, consumed + buffered)),
    ]
    for batch in filter(None, batches):
        await store.commit(batch)
    return held


@pytest.mark.parametrize(("consumed", "buffered"), [(MANY, 0), (MANY, 1), (0, MANY)])
@pytest.mark.parametrize("choosy", [False, True])
async def test_a_wait_reads_no_more_signals_than_it_takes(
    store: Store, cost: Cost, consumed: int, buffered: int, choosy: bool
) -> None:
    new = await run_with_signals(store, "new", 0, min(buffered, 1))
    old = await run_with_signals(store, "old", consumed, buffered)
    await store.close()

    async def cost_of_a_wait(held: Held, first: int) -> int:
        match = f'{{"n": {first}}}' if choosy else None
        return await cost(lambda store: commit(store, wait(store, held, "a", match=match)))

    assert await cost_of_a_wait(old, consumed) <= 2 * await cost_of_a_wait(new, 0)


async def test_a_signal_is_given_back_without_a_look_at_the_others(
    store: Store, cost: Cost
) -> None:
    new = await run_with_signals(store, "new", 0, 0)
    old = await run_with_signals(store, "old", MANY, 0)
    for held in (new, old):
        await commit(store, wait(store, held, "a"), wait(store, held, "b", seq=2))
        await commit(store, *signals(held.run_id, range(MANY, MANY + 1)))
    await store.close()

    async def cost_of_giving_up(held: Held) -> int:
        return await cost(
            lambda store: commit(
                store, record(store, held, "a", None, kind="event", status="skipped", settles=True)
            )
        )

    assert await cost_of_giving_up(old) <= 2 * await cost_of_giving_up(new)


async def test_an_event_finds_its_run_without_a_look_at_the_others_who_wait(
    store: Store, store_url: str, clock: FakeClock, cost: Cost
) -> None:
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    matches = [{"order": number} for number in range(MANY)]
    await commit(
        store,
        *(
            wait(store, held, f"k{number}", seq=number, event="many", term=term_of(match),
                 match=encode(match, "match"))
            for number, match in enumerate(matches)
        ),
        wait(store, held, "only", seq=MANY, event="few", term=term_of(matches[0]),
             match=encode(matches[0], "match")),
    )  # fmt: skip
    await store.close()
    if store_url.startswith("postgresql:"):
        await execute(store_url, "ANALYZE")
    payload = encode(matches[0], "payload")

    async def cost_of_an_event(type: str) -> int:
        event = EmitEvent(f"e-{type}", WORKSPACE, type, payload, clock.now())
        return await cost(lambda store: commit(store, event))

    assert await cost_of_an_event("many") <= 2 * await cost_of_an_event("few")


@pytest.mark.parametrize(
    "wanted", ["since", "newest", "status", "statuses", "status of definition", "input"]
)
async def test_a_list_of_few_runs_does_not_look_at_all(
    store: Store, store_url: str, clock: FakeClock, cost: Cost, wanted: str
) -> None:
    ids = Ids(clock)
    old = [ids.new() for _ in range(MANY)]
    await commit(
        store, *(start(store, each, program="code:old@1", definition="old") for each in old)
    )
    await commit(store, *(CancelRun(each, WORKSPACE, clock.now()) for each in old))
    clock.advance("1m")
    where = {
        "since": RunFilter(WORKSPACE, since=clock.now()),
        "newest": RunFilter(WORKSPACE, limit=3),
        "status": RunFilter(WORKSPACE, status=["running"]),
        "statuses": RunFilter(WORKSPACE, status=["running", "cancelled"], limit=3),
        "status of definition": RunFilter(WORKSPACE, definition="old", status=["running"]),
        "input": RunFilter(WORKSPACE, input={"n": 2}),
    }[wanted]
    await commit(store, *(start(store, ids.new(), input='{"n": 2}') for _ in range(3)))
    await enlist(store, "w2")
    young = [run.id for run in (await claim(store, "w2")).runs]
    await store.close()
    if store_url.startswith("postgresql:"):
        await execute(store_url, "ANALYZE")

    async def look(store: Store) -> None:
        expected = [] if where.definition else young[::-1]
        assert [run.id for run in (await store.list_runs(where)).runs] == expected

    assert await cost(look) <= 10 * await cost(lambda store: store.get_run(WORKSPACE, young[0]))


async def test_a_throttle_does_not_look_at_all_who_have_begun(
    store: Store, store_url: str, cost: Cost
) -> None:
    new, old = (Throttle(f"throttle:{which}", 2 * MANY, 3600 * SECOND) for which in ("new", "old"))
    await commit(store, start(store, "n", throttle=new))
    await commit(store, *(start(store, f"o{n}", throttle=old) for n in range(MANY)))
    while (await claim(store, "w1", limit=MANY)).more:
        pass
    await store.close()
    if store_url.startswith("postgresql:"):
        await execute(store_url, "ANALYZE")

    async def cost_of_one_more(throttle: Throttle, run_id: str) -> int:
        async def begin(store: Store) -> None:
            await commit(store, start(store, run_id, throttle=throttle))
            assert [run.id for run in (await claim(store, "w1")).runs] == [run_id]

        return await cost(begin)

    assert await cost_of_one_more(old, "o") <= 2 * await cost_of_one_more(new, "m")


async def test_a_throttle_does_not_look_at_all_who_queue(
    store: Store, store_url: str, cost: Cost
) -> None:
    new, old = (Throttle(f"throttle:{which}", 1, 3600 * SECOND) for which in ("new", "old"))
    await commit(store, *(start(store, f"n{n}", throttle=new) for n in range(2)))
    await commit(store, *(start(store, f"o{n}", throttle=old) for n in range(MANY)))
    while (await claim(store, "w1")).more:
        pass
    await store.close()
    if store_url.startswith("postgresql:"):
        await execute(store_url, "ANALYZE")

    async def cost_of_one_more(throttle: Throttle, run_id: str) -> int:
        return await cost(lambda store: commit(store, start(store, run_id, throttle=throttle)))

    assert await cost_of_one_more(old, "z1") <= 2 * await cost_of_one_more(new, "z2")


async def test_a_debounce_does_not_look_at_runs_that_have_ended(
    store: Store, store_url: str, clock: FakeClock, cost: Cost
) -> None:
    new, old = (Debounce(f"debounce:{which}", SECOND, SECOND) for which in ("new", "old"))
    for number in range(MANY):
        await commit(store, start(store, f"o{number}", debounce=old))
        _, held = await claim_one(store, "w1")
        await commit(store, EndRun(held, "completed", "1", None, clock.now()))
    await store.close()
    if store_url.startswith("postgresql:"):
        await execute(store_url, "ANALYZE")

    async def cost_of_one_more(debounce: Debounce, run_id: str) -> int:
        return await cost(lambda store: commit(store, start(store, run_id, debounce=debounce)))

    assert await cost_of_one_more(old, "z1") <= 2 * await cost_of_one_more(new, "z2")

"""Group commit: what shares a commit, what stands alone in trouble, and what is sent again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from stepwell import Stepwell, workflow
from stepwell.catalog import store_for
from stepwell.engine.writer import Writer
from stepwell.errors import ChangeBlocked, NotOpen, StoreUnavailable
from stepwell.kernel.changes import (
    CancelRun,
    Change,
    Committed,
    Held,
    RecordStep,
    SendSignal,
    StartRun,
)
from stepwell.store import Store
from stepwell.stores.postgres import PostgresStore
from stepwell.stores.postgres.connections import WRITER_SETTINGS
from stepwell.testing.clock import FakeClock
from stepwell.testing.samples import WORKSPACE, claim, claim_one, enlist, record, start
from tests.conftest import World, new_database
from tests.engine.support import double, eventually, flowing, until

Commit = Callable[[Sequence[Change]], Awaitable[Committed]]


@workflow
async def hold(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("go")


@workflow
async def doubling(ctx: Any, input: Any) -> Any:
    return await ctx.step("double", double, input)


@asynccontextmanager
async def opened(url: str, clock: FakeClock) -> AsyncIterator[tuple[Store, Writer]]:
    """A store, and a writer to it."""
    store = store_for(url, clock)
    await store.open()
    writer = Writer(store, lambda batch, committed: None)
    writer.open()
    try:
        yield store, writer
    finally:
        await writer.close()
        await store.close()


def committed_by(stepwell: Any) -> list[list[Change]]:
    """A list that gets every batch this Stepwell commits from now on."""
    batches: list[list[Change]] = []
    real: Commit = stepwell.store.commit

    async def commit(batch: Sequence[Change]) -> Committed:
        batches.append(list(batch))
        return await real(batch)

    stepwell.store.commit = commit
    return batches


def lose_acknowledgement(
    stepwell: Any, kind: type[Change], meanwhile: Callable[[], Awaitable[Any]] | None = None
) -> list[type[Change]]:
    """Commit the next change of this kind, but say that the store was away; the list tells when."""
    lost: list[type[Change]] = []
    real: Commit = stepwell.store.commit

    async def commit(batch: Sequence[Change]) -> Committed:
        committed = await real(batch)
        if not lost and any(type(change) is kind for change in batch):
            lost.append(kind)
            if meanwhile is not None:
                await meanwhile()
            raise StoreUnavailable("the answer was lost")
        return committed

    stepwell.store.commit = commit
    return lost


# -- what shares a commit ----------------------------------------------------------------------


async def test_many_steps_share_few_commits(world: World) -> None:
    @workflow
    async def fan(ctx: Any, input: Any) -> Any:
        return await asyncio.gather(*(ctx.step(f"s{n}", double, n) for n in range(200)))

    async with world([fan]) as sw, sw.worker():
        batches = committed_by(sw)
        assert await (await sw.start("fan")).result() == [2 * n for n in range(200)]
    recording = [batch for batch in batches if any(type(c) is RecordStep for c in batch)]
    assert sum(type(change) is RecordStep for batch in recording for change in batch) == 200
    assert len(recording) <= 10


async def test_a_quick_step_is_written_once_and_a_long_one_shows_as_running(
    world: World, clock: Any
) -> None:
    go = asyncio.Event()

    async def long() -> str:
        await go.wait()
        return "done"

    @workflow
    async def quick_then_long(ctx: Any, input: Any) -> Any:
        await ctx.step("quick", double, 1)
        return await ctx.step("long", long)

    async with world([quick_then_long]) as sw, sw.worker():
        batches = committed_by(sw)
        run = await sw.start("quick_then_long")
        while not await sw.store.steps(run.id):
            await asyncio.sleep(0.001)
        while len(journal := await sw.store.steps(run.id)) < 2:
            clock.advance("0.1s")  # more than once: the step may not have begun yet
            await asyncio.sleep(0.001)
        assert [(step.key, step.status) for step in journal] == [
            ("quick", "completed"),
            ("long", "running"),
        ]
        go.set()
        assert await run.result() == "done"
    written = [c for batch in batches for c in batch if isinstance(c, RecordStep)]
    assert [(change.key, change.status) for change in written] == [
        ("quick", "completed"),
        ("long", "running"),
        ("long", "completed"),
    ]


# -- trouble with one of many ------------------------------------------------------------------


async def test_a_change_the_store_cannot_take_leaves_its_neighbours(
    store_url: str, clock: FakeClock
) -> None:
    async with opened(store_url, clock) as (store, writer):
        bad = start(store, "r3", priority=2**70)  # more than a column can hold
        submitted = [
            writer.submit(bad if n == 3 else start(store, f"r{n}", idempotency_key=f"k{n}"))
            for n in range(8)
        ]
        outcomes = await asyncio.gather(*submitted, return_exceptions=True)
        assert isinstance(outcomes[3], Exception)
        assert not isinstance(outcomes[3], StoreUnavailable)
        good = [n for n in range(8) if n != 3]
        assert [outcomes[n] for n in good] == [[(f"r{n}", True)] for n in good]
        assert await store.get_run(WORKSPACE, "r3") is None
        assert (await store.count_runs(WORKSPACE)) == {"work": {"pending": 7}}


async def test_changes_that_were_submitted_together_fail_together(
    store_url: str, clock: FakeClock
) -> None:
    async with opened(store_url, clock) as (store, writer):
        await enlist(store, "w1")
        await writer.submit(start(store, "r1"))
        _, held = await claim_one(store, "w1")
        beside = writer.submit(record(store, held, "beside"))
        together = writer.submit(record(store, held, "a"), record(store, held, "b", seq=2**70))
        with pytest.raises(Exception, match=r"(?i)int|out of range|too large"):
            await together
        await beside
        assert [step.key for step in await store.steps("r1")] == ["beside"]


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
async def test_a_start_behind_somebodys_transaction_waits_alone(
    postgres_server: str, clock: FakeClock, commits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(WRITER_SETTINGS, "lock_timeout", "50")
    url = await new_database(postgres_server)
    async with Stepwell(workflows=[doubling], store=PostgresStore(url, clock)) as sw:
        connection = await asyncpg.connect(url)
        transaction = connection.transaction()
        await transaction.start()
        theirs = await sw.start("doubling", 1, idempotency_key="K", connection=connection)
        blocked = asyncio.create_task(sw.start("doubling", 2, idempotency_key="K"))
        async with asyncio.timeout(30):  # well before the test would be given up
            beside = await asyncio.gather(*(sw.start("doubling", n) for n in range(3)))
            later = await sw.start("doubling", 9)
        assert not blocked.done()
        assert {run.id for run in (await sw.list_runs()).items} == {
            run.id for run in (*beside, later)
        }
        await (transaction.commit() if commits else transaction.rollback())
        async with flowing(clock):
            run = await blocked
        assert (run.id == theirs.id, run.created) == (commits, not commits)
        assert (await sw.get_run(run.id)).input == (1 if commits else 2)
        await connection.close()


async def test_changes_wait_while_somebody_holds_a_whole_table(
    postgres_server: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(WRITER_SETTINGS, "lock_timeout", "50")
    url = await new_database(postgres_server)
    async with Stepwell(workflows=[doubling], store=PostgresStore(url, clock)) as sw:
        connection = await asyncpg.connect(url)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("LOCK TABLE stepwell.runs IN ACCESS EXCLUSIVE MODE")
        met, real = asyncio.Event(), sw.store.commit

        async def commit(batch: Any) -> Any:
            try:
                return await real(batch)
            except Exception:
                met.set()
                raise

        sw.store.commit = commit  # type: ignore[method-assign]
        blocked = asyncio.create_task(sw.start("doubling", 2))
        await met.wait()
        await transaction.rollback()
        async with sw.worker(), flowing(clock):
            assert await (await blocked).result() == 4
        await connection.close()


# -- closing -----------------------------------------------------------------------------------


async def test_closing_fails_whoever_waits_for_a_store_that_is_away(
    world: World, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.engine.writer.CLOSE_SECONDS", 600)  # it need not come to that
    async with flowing(clock):
        async with world([doubling]) as sw:
            tried = asyncio.Event()

            async def away(batch: Any) -> Any:
                tried.set()
                raise StoreUnavailable("away")

            sw.store.commit = away
            starting = asyncio.create_task(sw.start("doubling", 1))
            await tried.wait()
            assert not starting.done()
        with pytest.raises(StoreUnavailable):
            await starting
        with pytest.raises(NotOpen, match="closed"):
            await sw.start("doubling", 1)


async def test_closing_fails_whoever_waits_for_somebodys_transaction(world: World) -> None:
    async with world([doubling]) as sw:
        tried = asyncio.Event()

        async def blocked(batch: Any) -> Any:
            tried.set()
            raise ChangeBlocked("locked")

        sw.store.commit = blocked
        starting = asyncio.create_task(sw.start("doubling", 1))
        await tried.wait()
        assert not starting.done()
    with pytest.raises(StoreUnavailable, match="closed"):
        await starting


async def test_closing_fails_whoever_waits_for_a_commit_that_hangs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.engine.writer.CLOSE_SECONDS", 0.01)
    async with world([doubling]) as sw:
        under_way = asyncio.Event()

        async def hang(batch: Any) -> Any:
            under_way.set()
            await asyncio.Event().wait()

        sw.store.commit = hang
        first = asyncio.create_task(sw.start("doubling", 1))
        await under_way.wait()
        second = asyncio.create_task(sw.start("doubling", 2))
        await asyncio.sleep(0)
    for starting in (first, second):
        with pytest.raises(StoreUnavailable, match="closed"):
            await asyncio.wait_for(starting, 30)


# -- what is sent again ------------------------------------------------------------------------


async def test_a_cancellation_sent_again_says_that_it_was_the_one(world: World, clock: Any) -> None:
    async with world([hold]) as sw, flowing(clock, "0.1s"):
        run = await sw.start("hold")
        lost = lose_acknowledgement(sw, CancelRun)
        assert await sw.cancel(run.id) is True
        assert lost == [CancelRun]
        assert await sw.cancel(run.id) is False


async def test_a_cancellation_that_came_second_says_so_though_it_was_sent_again(
    world: World, clock: Any
) -> None:
    async with world([hold]) as sw, flowing(clock, "0.1s"):
        run = await sw.start("hold")
        await sw.cancel(run.id)
        clock.advance("1s")
        lost = lose_acknowledgement(sw, CancelRun)
        assert await sw.cancel(run.id) is False
        assert lost == [CancelRun]


async def test_a_signal_sent_again_was_received_though_its_run_has_ended_by_it(
    world: World, clock: Any
) -> None:
    async with world([hold]) as sender, world([hold]) as other, other.worker():
        run = await other.start("hold")
        await until(other, run.id, "waiting")
        async with flowing(clock, "0.1s"):
            lost = lose_acknowledgement(sender, SendSignal, lambda: other.result(run.id))
            assert await sender.signal(run.id, "go", "now") is True
            assert lost == [SendSignal]
            assert await sender.signal(run.id, "go", "again") is False
        assert await other.result(run.id) == "now"


async def test_a_start_sent_again_says_that_it_was_the_one(world: World, clock: Any) -> None:
    async with world([hold]) as sw, flowing(clock, "0.1s"):
        lost = lose_acknowledgement(sw, StartRun)
        run = await sw.start("hold", idempotency_key="k")
        assert (run.created, lost) == (True, [StartRun])
        again = await sw.start("hold", idempotency_key="k")
        assert (again.id, again.created) == (run.id, False)


async def test_what_follows_a_blocked_change_of_a_run_waits_behind_it(
    store_url: str, clock: FakeClock
) -> None:
    async with opened(store_url, clock) as (store, writer):
        await enlist(store, "w1")
        await store.commit([start(store, "r1"), start(store, "r2")])
        claimed = (await claim(store, "w1")).runs
        one, two = (Held(run.id, "w1", run.fence) for run in claimed)
        real, blocked, tries = store.commit, True, 0

        async def commit(batch: Sequence[Change]) -> Committed:
            nonlocal tries
            if blocked and any(type(c) is RecordStep and c.key == "a" for c in batch):
                tries += 1
                raise ChangeBlocked("somebody holds the row")
            return await real(batch)

        store.commit = commit  # type: ignore[method-assign]
        first = writer.submit(record(store, one, "a", position=0))
        await eventually(lambda: tries == 1)
        behind = writer.submit(record(store, one, "b", position=0))
        assert await writer.submit(record(store, two, "c", position=0)) == [None]
        clock.advance("2s")
        await eventually(lambda: tries == 2)
        assert not first.done()
        assert not behind.done()
        assert [step.key for step in await store.steps("r1")] == []
        blocked = False
        async with flowing(clock):
            assert await behind == [None]
        assert first.done()
        await store.retire(["w1"], alive=True)
        await enlist(store, "w2")
        run = next(run for run in (await claim(store, "w2")).runs if run.id == "r1")
        in_order = sorted(run.journal, key=lambda row: row.position)
        assert [row.key for row in in_order] == ["a", "b"]

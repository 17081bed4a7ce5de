"""What is read in several statements fits together, whatever is committed between them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import apsw
import asyncpg
import pytest

from stepwell.catalog import store_for
from stepwell.errors import ChangeRefused
from stepwell.kernel.changes import Change, ParkRun
from stepwell.store import Store
from stepwell.stores.postgres import PostgresStore
from stepwell.stores.sqlite.apply import apply
from stepwell.testing.clock import FakeClock
from stepwell.testing.samples import (
    WORKSPACE,
    claim_one,
    commit,
    enlist,
    record,
    signal,
    start,
    wait,
)


class Intruder:
    """Somebody who commits a change right before the nth statement of whoever reads."""

    def __init__(self) -> None:
        self._left = 0
        self._change: Change | None = None

    def wait_for(self, number: int, change: Change) -> None:
        self._left, self._change = number, change

    @property
    def came(self) -> bool:
        return self._change is None

    def turn(self) -> Change | None:
        """What to commit now, if it is time."""
        self._left -= 1
        if self._left != 0:
            return None
        change, self._change = self._change, None
        return change


@pytest.fixture
def intruder(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Intruder]:
    intruder = Intruder()
    if store_url.startswith("sqlite:"):
        yield from _on_sqlite(intruder, store_url.removeprefix("sqlite:///"))
    else:
        _on_postgres(intruder, store_url, monkeypatch)
        yield intruder


def _on_sqlite(intruder: Intruder, path: str) -> Iterator[Intruder]:
    def heard(cursor: apsw.Cursor, sql: str, bindings: Any) -> bool:
        if sql.lstrip().startswith("SELECT") and (change := intruder.turn()):
            console = apsw.Connection(path)
            apply(console, [change], FakeClock())
            console.close()
        return True

    def listen(connection: apsw.Connection) -> None:
        connection.exec_trace = heard

    apsw.connection_hooks.append(listen)
    yield intruder
    apsw.connection_hooks.remove(listen)


def _on_postgres(intruder: Intruder, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(call: Callable[..., Any]) -> Callable[..., Any]:
        async def interrupted_call(*args: Any, **options: Any) -> Any:
            if change := intruder.turn():
                other = PostgresStore(url, FakeClock())
                await other.open()
                await other.commit([change])
                await other.close()
            return await call(*args, **options)

        return interrupted_call

    for name in ("fetch", "fetchrow"):
        monkeypatch.setattr(
            asyncpg.Connection, name, interrupted(getattr(asyncpg.Connection, name))
        )


@pytest.fixture
async def store(store_url: str, clock: FakeClock, intruder: Intruder) -> AsyncIterator[Store]:
    store = store_for(store_url, clock)
    await store.open()
    await enlist(store, "w1")
    yield store
    await store.close()


async def test_a_wait_that_settles_meanwhile_is_in_the_journal(
    store: Store, intruder: Intruder
) -> None:
    for number in itertools.count(1):
        await commit(store, start(store, f"r{number}"))
        _, held = await claim_one(store, "w1")
        await commit(store, wait(store, held, "a"))
        intruder.wait_for(number, record(store, held, "a", kind="event", settles=True))
        assert [step.key for step in await store.steps(held.run_id)] == ["a"]
        if not intruder.came:
            break
    assert number > 1


async def test_a_run_that_becomes_due_meanwhile_is_explained_as_it_was_or_is(
    store: Store, intruder: Intruder
) -> None:
    for number in itertools.count(1):
        await commit(store, start(store, f"r{number}"))
        _, held = await claim_one(store, "w1")
        await commit(store, wait(store, held, "a"), ParkRun(held, ["a"]))
        intruder.wait_for(number, signal(store, held.run_id, "1", f"s{number}"))
        facts = await store.facts(WORKSPACE, held.run_id)
        assert facts is not None
        seen = ([fact.key for fact in facts.waits], facts.due_at)
        assert seen in ((["a"], None), ([], store.clock.now()))
        if not intruder.came:
            break
        await claim_one(store, "w1")  # so that the next round does not
    assert number > 1


async def test_a_read_that_fails_leaves_nothing_open(store: Store) -> None:
    impossible: Any = object()
    for read in (store.steps(impossible), store.facts(WORKSPACE, impossible)):
        with pytest.raises((TypeError, ChangeRefused)):
            await read
    await commit(store, start(store, "r1"))
    assert await store.steps("r1") == []
    assert await store.facts(WORKSPACE, "r1") is not None

"""Reads that many ask for at once: shared, never older than the question, and nobody's own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell.engine.sharing import SharedReads
from stepwell.engine.surroundings import current_run
from tests.conftest import World
from tests.engine.support import eventually


class Shelf:
    """Something to read that takes as long as the test says."""

    def __init__(self) -> None:
        self.value: Any = "old"
        self.began: list[str] = []
        self.open = asyncio.Event()

    async def read(self, key: str) -> Any:
        self.began.append(key)
        found = self.value
        await self.open.wait()
        if isinstance(found, Exception):
            raise found
        return found


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def asked(reads: SharedReads[str, Any], key: str) -> asyncio.Task[Any]:
    return asyncio.create_task(reads.get(key))


async def test_who_asks_during_a_read_shares_the_next_and_never_gets_what_was_before() -> None:
    shelf = Shelf()
    reads = SharedReads(shelf.read)
    early = [asked(reads, "a") for _ in range(10)]
    await turns()
    assert shelf.began == ["a"]
    shelf.value = "new"
    late = [asked(reads, "a") for _ in range(10)]
    await turns()
    assert shelf.began == ["a"]
    shelf.open.set()
    assert [await each for each in early] == ["old"] * 10
    assert [await each for each in late] == ["new"] * 10
    assert shelf.began == ["a", "a"]
    assert (reads._current, reads._next) == ({}, {})


async def test_other_things_are_read_beside_it() -> None:
    shelf = Shelf()
    reads = SharedReads(shelf.read)
    both = [asked(reads, "a"), asked(reads, "b")]
    await turns()
    assert shelf.began == ["a", "b"]
    shelf.open.set()
    assert [await each for each in both] == ["old", "old"]


async def test_who_gives_up_takes_nothing_from_the_others() -> None:
    shelf = Shelf()
    reads = SharedReads(shelf.read)
    first, second = asked(reads, "a"), asked(reads, "a")
    await turns()
    first.cancel()
    await turns()
    shelf.open.set()
    assert await second == "old"
    assert first.cancelled()


async def test_a_read_that_nobody_waits_for_is_given_up() -> None:
    shelf = Shelf()
    reads = SharedReads(shelf.read)
    first = asked(reads, "a")
    await turns()
    following = asked(reads, "a")
    await turns()
    for each in (first, following):
        each.cancel()
    await turns()
    assert (reads._current, reads._next) == ({}, {})
    assert shelf.began == ["a"]
    shelf.open.set()
    assert await reads.get("a") == "old"


async def test_a_read_that_hangs_keeps_nobody_from_the_next() -> None:
    shelf = Shelf()
    reads = SharedReads(shelf.read)
    stuck = asked(reads, "a")
    await turns()
    shelf.open, hung = asyncio.Event(), shelf.open
    shelf.open.set()
    assert await asked(reads, "a") == "old"
    assert not stuck.done()
    hung.set()
    assert await stuck == "old"
    assert (reads._current, reads._next) == ({}, {})


async def test_a_failure_is_told_to_all_who_asked_and_to_nobody_after_them() -> None:
    shelf = Shelf()
    reads = SharedReads(shelf.read)
    shelf.value = OSError("away")
    early = [asked(reads, "a") for _ in range(2)]
    await turns()
    shelf.value = "back"
    late = asked(reads, "a")
    shelf.open.set()
    for each in early:
        with pytest.raises(OSError, match="away"):
            await each
    assert await late == "back"


async def test_who_asks_after_everything_was_cancelled_is_answered() -> None:
    shelf = Shelf()
    reads = SharedReads(shelf.read)
    first = [asked(reads, "a") for _ in range(2)]
    await turns()
    second = asked(reads, "a")
    await turns()
    waiting = reads._next["a"].task
    waiting.cancel()
    while not waiting.done():
        await asyncio.sleep(0)
    late = asked(reads, "a")
    shelf.open.set()
    assert [await each for each in first] == ["old", "old"]
    with pytest.raises(asyncio.CancelledError):
        await second
    assert await late == "old"
    assert (reads._current, reads._next) == ({}, {})


async def test_a_read_belongs_to_no_run() -> None:
    found: list[Any] = []

    async def read(key: str) -> None:
        found.append(current_run.get())

    token = current_run.set("some run")
    try:
        await SharedReads(read).get("a")
    finally:
        current_run.reset(token)
    assert found == [""]


async def test_starts_that_come_at_once_look_their_definition_up_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = {"id": "a", "type": "transform", "config": {"value": "@input"}}
    async with world() as sw, world() as elsewhere:
        await sw.definitions.publish({"name": "plain", "nodes": [node]})
        read, reads = sw.store.version, list[str]()

        async def counted(workspace_id: str, name: str, version: int | None) -> Any:
            reads.append(name)
            return await read(workspace_id, name, version)

        monkeypatch.setattr(sw.store, "version", counted)
        runs = await asyncio.gather(*(sw.start("plain", n) for n in range(50)))
        assert len(runs) == 50
        assert len(reads) <= 2
        changed = {**node, "config": {"value": "something else"}}
        await elsewhere.definitions.publish({"name": "plain", "nodes": [changed]})
        run = await sw.start("plain", 51)
        assert (await sw.get_run(run.id)).revision != (await sw.get_run(runs[0].id)).revision
        await eventually(lambda: not sw._starter._stored._current)

"""The live feed: who watches which run, woken when something was committed, and what they read.

A listener keeps what it was told, and nothing is kept for it: when it wants more it reads, and what
many want at a time is read together. One that does not come back for more costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from stepwell.errors import StoreUnavailable
from stepwell.kernel.changes import Change, Claimed, Committed, run_ids_of
from stepwell.kernel.clock import sleep
from stepwell.kernel.feed import RunEvent, news
from stepwell.kernel.names import no_such_run
from stepwell.kernel.progress import Place, Progress
from stepwell.kernel.told import nothing_told, read_id
from stepwell.store import Store

log = logging.getLogger("stepwell.feed")

# How often is looked for what other processes did; looking at many takes long, so less often.
POLL_SECONDS, POLL_SECONDS_PER_LISTENER = 0.25, 0.0005
# A look at a long journal takes long. So many times as long nobody looks again, but no longer than
# a moment; by real time, as it is this process that needs it for the run.
REST, LONGEST_REST_SECONDS = 3, 0.25
# How many places are read behind at once.
MAX_BATCH = 200
PAUSE_SECONDS = 0.5


class Feed:
    """The listeners of one workspace."""

    def __init__(self, store: Store, workspace_id: str) -> None:
        self._store = store
        self._looks = _Looks(store, workspace_id)
        self._bells: dict[str, set[asyncio.Event]] = {}
        self._poll: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def listeners(self) -> int:
        """How many watch."""
        return sum(map(len, self._bells.values()))

    async def watch(self, run_id: str, after: str | None) -> AsyncGenerator[RunEvent, None]:
        """What happens to a run, from its start or after that event, until it has ended."""
        told = nothing_told(run_id) if after is None else read_id(after, run_id)
        with self._listening(run_id) as bell:
            while not told.finished:
                bell.clear()
                progress = await self._look(told.place(run_id))
                if progress is None:
                    raise no_such_run(run_id)
                for event in news(run_id, told, progress):
                    yield event
                if not (progress.more or told.finished):
                    await bell.wait()

    async def _look(self, place: Place) -> Progress | None:
        if self._closed:
            raise _closed()
        return await self._looks.get(place)

    @contextmanager
    def _listening(self, run_id: str) -> Iterator[asyncio.Event]:
        bell = asyncio.Event()
        self._bells.setdefault(run_id, set()).add(bell)
        if self._poll is None:
            self._poll = asyncio.get_running_loop().create_task(self._look_now_and_then())
        try:
            yield bell
        finally:
            self._bells[run_id].discard(bell)
            if not self._bells[run_id]:
                del self._bells[run_id]
            if not self._bells and self._poll is not None:
                self._poll.cancel()
                self._poll = None

    def heard(self, batch: list[Change], committed: Committed) -> None:
        """A commit of this process's own is durable."""
        if not self._bells:
            return
        for change in batch:
            for run_id in run_ids_of(change):
                self._ring(run_id)
        for outcome in committed.outcomes:
            if type(outcome) is Claimed:
                for run in outcome.runs:
                    self._ring(run.id)
        for run_id in committed.ended:
            self._ring(run_id)

    def _ring(self, run_id: str) -> None:
        for bell in self._bells.get(run_id, ()):
            bell.set()

    def _ring_all(self) -> None:
        for run_id in self._bells:
            self._ring(run_id)

    async def _look_now_and_then(self) -> None:
        """Wake all now and then: other processes execute runs too, and people decide."""
        while True:
            pause = max(POLL_SECONDS, POLL_SECONDS_PER_LISTENER * self.listeners)
            await sleep(self._store.clock, pause)
            self._ring_all()

    async def close(self) -> None:
        """Let all listeners know that there is nothing more to come from here."""
        self._closed = True
        await self._looks.close()
        self._ring_all()


class _Looks:
    """Gathers what listeners want to read: all who ask during one read share the next."""

    def __init__(self, store: Store, workspace_id: str) -> None:
        self._store = store
        self._workspace_id = workspace_id
        self._wanted: dict[Place, list[asyncio.Future[Progress | None]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def get(self, place: Place) -> Progress | None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Progress | None] = loop.create_future()
        self._wanted.setdefault(place, []).append(future)
        if self._task is None:
            self._task = loop.create_task(self._answer_all())
        return await future

    async def _answer_all(self) -> None:
        loop = asyncio.get_running_loop()
        asked: dict[Place, list[asyncio.Future[Progress | None]]] = {}
        try:
            while self._wanted:
                places = list(self._wanted)[:MAX_BATCH]
                asked = {place: self._wanted.pop(place) for place in places}
                began = loop.time()
                found = await self._read(places)
                took = loop.time() - began
                for futures, progress in zip(asked.values(), found, strict=True):
                    for future in futures:
                        if not future.done():
                            future.set_result(progress)
                if not any(each is not None and each.more for each in found):
                    await asyncio.sleep(min(REST * took, LONGEST_REST_SECONDS))
        except Exception as error:
            _refuse([asked, self._wanted], error)
        finally:
            self._task = None
            _refuse([asked, self._wanted], _closed())
            self._wanted = {}

    async def _read(self, places: list[Place]) -> list[Progress | None]:
        """Read, however long the store is away: listeners have nothing better to do."""
        while True:
            try:
                return await self._store.progress(self._workspace_id, places)
            except StoreUnavailable as error:
                log.info("Runs that are watched cannot be looked at, trying again: %s", error)
                await sleep(self._store.clock, PAUSE_SECONDS)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        # One that was cancelled before its first step has not come to refusing anybody.
        self._task = None
        _refuse([self._wanted], _closed())
        self._wanted = {}


def _refuse(
    asked: list[dict[Place, list[asyncio.Future[Progress | None]]]], error: Exception
) -> None:
    for futures in [futures for each in asked for futures in each.values()]:
        for future in futures:
            if not future.done():
                future.set_exception(error)


def _closed() -> StoreUnavailable:
    return StoreUnavailable("This Stepwell was closed while the run was watched.")

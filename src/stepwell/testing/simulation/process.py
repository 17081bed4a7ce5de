"""A simulated process: a Stepwell that can be killed, frozen, or cut off from its store."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import apsw

from stepwell.app import Stepwell
from stepwell.engine.worker import Worker
from stepwell.errors import ChangeBlocked, StoreUnavailable
from stepwell.kernel.changes import Change, Committed, run_ids_of
from stepwell.kernel.clock import Clock
from stepwell.kernel.crashes import CRASH_LIMIT
from stepwell.kernel.ids import Ids
from stepwell.sdk.workflow import Workflow
from stepwell.settings import Settings
from stepwell.stores.records import SqlRecords
from stepwell.stores.sqlite import SqliteStore
from stepwell.stores.sqlite.line import Line
from stepwell.stores.sqlite.statements import SqliteStatements
from stepwell.stores.statements import Statement

current_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar(
    "simulated_process", default=None
)


class SharedStore(SqliteStore):
    """A store on a database that others of the simulation use too, behind a bad network."""

    def __init__(self, db: apsw.Connection, clock: Clock, process: Process) -> None:
        super().__init__(":memory:", clock, inline=True)
        self.records = SqlRecords(_Statements(self._read, self._write, clock, process))
        self._shared = db
        self._process = process

    def _connect(self) -> apsw.Connection:
        return self._shared

    async def close(self) -> None:
        """The database outlives any one process."""

    async def commit(self, batch: Sequence[Change]) -> Committed:
        await self._process.reach_store()
        await self._process.meet_locks(batch)
        committed = await super().commit(batch)
        await self._process.after_commit()
        return committed

    async def heartbeat(self, worker_id: str, lease_seconds: float) -> bool:
        await self._process.reach_store()
        return await super().heartbeat(worker_id, lease_seconds)

    async def lost(self, held: Sequence[tuple[str, str, int]]) -> list[str]:
        await self._process.reach_store()
        return await super().lost(held)


class _Statements(SqliteStatements):
    """What is written of records takes the same network."""

    def __init__(self, read: Line, write: Line, clock: Clock, process: Process) -> None:
        super().__init__(read, write, clock)
        self._process = process

    async def fetch(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        await self._process.reach_store()
        return await super().fetch(sql, *values)

    async def amend(self, statements: Sequence[Statement], **options: Any) -> Committed:
        await self._process.reach_store()
        committed = await super().amend(statements, **options)
        await self._process.after_commit()
        return committed


class Process:
    """One process of the simulation."""

    def __init__(
        self, name: str, db: apsw.Connection, clock: Clock, workflows: list[Workflow],
        functions: Mapping[str, Callable[..., Any]], rng: random.Random, faults: Faults, *,
        mortal: bool = True,
    ) -> None:  # fmt: skip
        self.name = name
        self._db = db
        self._mortal = mortal
        self.dead = False
        self.worker: Worker | None = None
        # In order: a set's order is another one each time, and a seed has to reproduce.
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._rng = rng
        self._faults = faults
        self.stepwell = Stepwell(
            workflows=workflows,
            functions=functions,
            store=SharedStore(db, clock, self),
            ids=Ids(clock, rng),
            settings=Settings(),
        )

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something as part of this process: it dies with it."""
        context = contextvars.copy_context()
        context.run(current_process.set, self)
        return asyncio.get_running_loop().create_task(coroutine, context=context)

    async def serve(self, lease: float) -> None:
        """Work until killed."""
        async with self.stepwell, self.stepwell.worker(concurrency=4, lease=lease) as worker:
            self.worker = worker
            await asyncio.Event().wait()

    @property
    def spared(self) -> bool:
        """Whether a run of its would soon be failed for what only the simulation does."""
        if self.worker is None:
            return False
        row = self._db.execute(
            "SELECT max(crashes) FROM runs WHERE owner = ?", (self.worker.id,)
        ).fetchone()
        return row is not None and (row[0] or 0) >= CRASH_LIMIT - 2

    def kill(self) -> None:
        """As SIGKILL: nothing more reaches the store, whatever is still said."""
        self.dead = True
        for task in list(self.tasks):
            task.cancel()

    def freeze(self) -> None:
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    async def reach_store(self) -> None:
        """Get through to the store, or not."""
        if self.dead:
            await asyncio.Event().wait()
        await self._thawed.wait()
        if self.dead:
            await asyncio.Event().wait()
        if self._faults.store_down or self._rng.random() < self._faults.refuse:
            raise StoreUnavailable("simulated: the store is away")
        if self._rng.random() < self._faults.slow:
            await asyncio.sleep(self._rng.random() * 2)

    async def meet_locks(self, batch: Sequence[Change]) -> None:
        """Somebody else may hold a run that the batch is about, as on PostgreSQL."""
        run_ids = [run_id for change in batch for run_id in run_ids_of(change)]
        if run_ids and self._rng.random() < self._faults.block:
            held = [self._rng.choice(run_ids)] if self._rng.random() < 0.5 else []
            await asyncio.sleep(self._rng.random())  # more is asked for meanwhile
            raise ChangeBlocked("simulated: a row is held", held)

    async def after_commit(self) -> None:
        """The commit is durable; whether its acknowledgement arrives is another matter."""
        dies = self._mortal and self._rng.random() < self._faults.die_after_commit
        if dies and not self.spared:
            self.kill()
            await asyncio.Event().wait()
        if self._rng.random() < self._faults.lose_acknowledgement:
            raise StoreUnavailable("simulated: the acknowledgement was lost")
        if self.dead:
            await asyncio.Event().wait()


class Faults:
    """What goes wrong, and how often."""

    def __init__(self, rng: random.Random) -> None:
        self.refuse = rng.choice([0, 0.01, 0.05])
        self.lose_acknowledgement = rng.choice([0, 0.02, 0.1])
        self.die_after_commit = rng.choice([0, 0.005, 0.03])
        self.slow = rng.choice([0, 0.05, 0.2])
        self.block = rng.choice([0, 0, 0.02])
        self.store_down = False

    def cease(self) -> None:
        """From now on nothing goes wrong, so that everything can come to its end."""
        self.refuse = self.lose_acknowledgement = self.die_after_commit = self.slow = 0
        self.block = 0
        self.store_down = False


def task_factory(
    loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
) -> asyncio.Task[Any]:
    """Tasks belong to the process they are created in."""
    task = asyncio.Task(coroutine, loop=loop, **options)
    context = options.get("context")
    process = context.get(current_process) if context is not None else current_process.get()
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(lambda done: process.tasks.pop(done, None))
        if process.dead:
            task.cancel()
    return task

"""The PostgreSQL store: connections, schema and small verbs."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from stepwell.errors import ChangeBlocked, InvalidInput, StoreUnavailable
from stepwell.kernel.changes import Change, Claimed, ClaimRuns, Committed, StartRun
from stepwell.kernel.clock import SECOND, Clock
from stepwell.kernel.explaining import RunFacts
from stepwell.kernel.progress import Place, Progress
from stepwell.kernel.run import Run, Step, WorkerInfo
from stepwell.record import VersionRow
from stepwell.store import Found, Notice, RunFilter, RunOutline, WorkerRow
from stepwell.stores.access import SqlAccess
from stepwell.stores.postgres import progress, pruning, reads, schema, starting
from stepwell.stores.postgres.address import Address, patiently
from stepwell.stores.postgres.apply import apply
from stepwell.stores.postgres.connections import WRITER_SETTINGS, Line, Pool
from stepwell.stores.postgres.lookups import Lookups
from stepwell.stores.postgres.notices import Notices
from stepwell.stores.postgres.obstacles import Obstacles
from stepwell.stores.postgres.registering import register
from stepwell.stores.postgres.statements import PostgresStatements
from stepwell.stores.postgres.sweep import sweep
from stepwell.stores.records import SqlRecords
from stepwell.stores.triggers import SqlTriggers

log = logging.getLogger("stepwell.postgres")

OPEN_SECONDS = 10.0
POOL_SIZE = 4

# The database's clock in microseconds.
_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class PostgresStore:
    """Runs in one PostgreSQL database. All batches of a process go through one connection."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.clock = clock
        self._address = Address(url)
        self._writer = Line(self._address, WRITER_SETTINGS)
        self._obstacles = Obstacles(self._writer, clock)
        self._turn = asyncio.Lock()
        self._pool = Pool(self._address, POOL_SIZE)
        self._lookups = Lookups(self._pool)
        self._notices = Notices(self._address, self._pool)
        statements = PostgresStatements(self._pool, clock)
        self.records = SqlRecords(statements)
        self.triggers = SqlTriggers(statements)
        self.access = SqlAccess(statements)
        # Whether the last claim left something for the next one.
        self._expectant = False
        # What sweeps did that no commit has told about yet.
        self._swept = Committed([])

    async def open(self) -> None:
        self._pool.open()
        try:
            await patiently(OPEN_SECONDS, lambda: self._writer.run(self._check))
        except BaseException:
            await self.close()
            raise

    async def _check(self, db: asyncpg.Connection) -> None:
        self.clock.sync(await db.fetchval(f"SELECT {_CLOCK}"))
        if not await schema.check(db, self._address.shown):
            await schema.migrate(db, self._address.shown)

    async def close(self) -> None:
        await self._notices.close()
        await self._lookups.close()
        await self._pool.close()
        async with self._turn:
            await self._writer.close()

    async def migrate(self) -> list[str]:
        return await patiently(
            OPEN_SECONDS,
            lambda: self._writer.run(lambda db: schema.migrate(db, self._address.shown)),
        )

    async def commit(self, batch: Sequence[Change]) -> Committed:
        async with self._turn:
            now = max((c.now for c in batch if isinstance(c, ClaimRuns) and c.sweep), default=None)
            swept_all = now is None or await self._sweep(now)
            await self._obstacles.before_batch()
            await self._writer.plan_again(len(batch))
            try:
                done = await self._writer.run(
                    lambda db: apply(db, batch, self.clock, expectant=self._expectant)
                )
            except asyncpg.LockNotAvailableError as error:
                held = await self._obstacles.met(batch)
                raise ChangeBlocked(f"PostgreSQL: {error}.", held) from error
            for outcome in done.outcomes:
                if isinstance(outcome, Claimed):
                    self._expectant = outcome.more
                    outcome.unswept = not swept_all
            swept, self._swept = self._swept, Committed([])
            done.stopped += swept.stopped
            done.ended += swept.ended
            done.due = done.due or swept.due
        return done

    async def _sweep(self, now: int) -> bool:
        try:
            return await self._writer.run(lambda db: sweep(db, now, self._swept))
        except StoreUnavailable:
            raise
        except Exception as error:
            # The batch has nothing to do with it, and the next sweep comes soon.
            log.warning("A sweep failed and is tried again soon: %r", error)
            return True

    def watch(self, notice: Notice) -> None:
        self._notices.watch(notice)

    def announce(self, committed: Committed) -> None:
        self._notices.announce(committed)

    async def register(self, workspace_id: str, definitions: Sequence[VersionRow]) -> None:
        now = self.clock.now()

        async def work(db: asyncpg.Connection) -> None:
            async with db.transaction():
                await register(db, workspace_id, definitions, now, Committed([]))

        if definitions:
            await self._pool.run(work)

    async def version(self, workspace_id: str, name: str, version: int | None) -> VersionRow | None:
        return await self._pool.run(lambda db: reads.version(db, workspace_id, name, version))

    async def definition_names(self, workspace_id: str) -> list[str]:
        return await self._pool.run(lambda db: reads.definition_names(db, workspace_id))

    async def enlist(self, worker: WorkerRow) -> None:
        now = self.clock.now()
        expires = now + int(worker.lease_seconds * SECOND)
        await self._pool.run(
            lambda db: db.execute(
                """INSERT INTO workers VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
                   ON CONFLICT (id) DO NOTHING""",
                worker.id, worker.workspace_id, worker.host, worker.pid, worker.pid_started,
                worker.concurrency, json.dumps(worker.programs), worker.started_at, now, expires,
            )
        )  # fmt: skip

    async def heartbeat(self, worker_id: str, lease_seconds: float) -> bool:
        now = self.clock.now()
        told = await self._pool.run(
            lambda db: db.fetchval(
                f"""UPDATE workers SET heartbeat_at = $1, expires_at = $2
                    WHERE id = $3 AND expires_at > $1 RETURNING {_CLOCK}""",
                now,
                now + int(lease_seconds * SECOND),
                worker_id,
            )
        )
        if told is not None:
            self.clock.sync(told)
        return told is not None

    async def retire(self, worker_ids: Sequence[str], *, alive: bool = False) -> None:
        now = self.clock.now()

        async def work(db: asyncpg.Connection) -> None:
            async with db.transaction():
                # Claims under these leases are waited for, so that what they get is seen below.
                await db.execute(
                    "SELECT FROM workers WHERE id = ANY($1) ORDER BY id FOR UPDATE",
                    list(worker_ids),
                )
                await db.execute(
                    "UPDATE workers SET expires_at = least(expires_at, $1) WHERE id = ANY($2)",
                    now,
                    list(worker_ids),
                )
                if alive:
                    await db.execute(
                        """UPDATE runs SET owner = NULL, due_at = created_at WHERE id = ANY(ARRAY(
                               SELECT id FROM runs WHERE owner = ANY($1)
                               ORDER BY id FOR UPDATE))""",
                        list(worker_ids),
                    )

        await self._pool.run(work)

    async def workers(self, workspace_id: str) -> list[WorkerInfo]:
        now = self.clock.now()
        return await self._pool.run(lambda db: reads.workers(db, workspace_id, now))

    async def worker_processes(self) -> list[tuple[str, str, int, str]]:
        rows = await self._pool.run(
            lambda db: db.fetch("SELECT id, host, pid, pid_started FROM workers")
        )
        return [(row[0], row[1], row[2], row[3]) for row in rows]

    async def lost(self, held: Sequence[tuple[str, str, int]]) -> list[str]:
        return await self._pool.run(lambda db: reads.lost(db, held))

    async def get_run(self, workspace_id: str, run_id: str) -> Run | None:
        return await self._lookups.get(workspace_id, run_id)

    async def started(self, workspace_id: str, definition: str, key: str) -> str | None:
        return await self._pool.run(lambda db: reads.started(db, workspace_id, definition, key))

    async def ended(self, run_ids: Sequence[str]) -> list[str]:
        return await self._pool.run(lambda db: reads.ended(db, run_ids))

    async def list_runs(self, where: RunFilter) -> Found:
        return await self._pool.run(lambda db: reads.list_runs(db, where))

    async def count_runs(self, workspace_id: str) -> dict[str, dict[str, int]]:
        return await self._pool.run(lambda db: reads.count_runs(db, workspace_id))

    async def outlines(self, run_ids: Sequence[str]) -> list[RunOutline]:
        return await self._pool.run(lambda db: reads.outlines(db, run_ids))

    async def unclaimed(self, workspace_id: str, before: int) -> tuple[int, str | None]:
        return await self._pool.run(lambda db: reads.unclaimed(db, workspace_id, before))

    async def steps(self, run_id: str) -> list[Step]:
        return await self._pool.run(lambda db: reads.steps(db, run_id))

    async def progress(self, workspace_id: str, places: Sequence[Place]) -> list[Progress | None]:
        return await self._pool.run(lambda db: progress.progress(db, workspace_id, places))

    async def facts(self, workspace_id: str, run_id: str) -> RunFacts | None:
        now = self.clock.now()
        return await self._pool.run(lambda db: reads.facts(db, workspace_id, run_id, now))

    async def prune(self, now: int, limit: int, rows: int) -> int:
        return await self._pool.run(lambda db: pruning.prune(db, now, limit, rows))

    async def prune_events(self, before: int, limit: int) -> int:
        return await self._pool.run(lambda db: pruning.prune_events(db, before, limit))

    async def sweep(self) -> Committed:
        now, done = self.clock.now(), Committed([])
        async with self._turn:
            await self._writer.run(lambda db: sweep(db, now, done))
        return done

    async def take_duty(self, name: str, worker_id: str, seconds: float) -> bool:
        now = self.clock.now()
        taken = await self._pool.run(
            lambda db: db.fetchval(
                """INSERT INTO duties VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE
                   SET worker_id = $2, expires_at = $3
                   WHERE duties.worker_id = $2 OR duties.expires_at <= $4 RETURNING true""",
                name,
                worker_id,
                now + int(seconds * SECOND),
                now,
            )
        )
        return taken is not None

    async def start_in(self, connection: Any, change: StartRun) -> tuple[str, bool]:
        db: asyncpg.Connection = connection
        if not isinstance(connection, asyncpg.Connection | PoolConnectionProxy):
            raise InvalidInput(
                f"start(connection=…) takes a connection of asyncpg's, not {connection!r}."
            )
        try:
            # Inside a transaction this is a savepoint: a start that fails leaves it usable.
            async with db.transaction():
                return await starting.start_in(db, change)
        except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError) as error:
            raise InvalidInput(
                "start(connection=…) needs a connection to the store's own database; this one "
                "has no schema `stepwell`."
            ) from error

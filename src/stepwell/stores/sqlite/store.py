"""The SQLite store's connections, schema and small verbs."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from stepwell.errors import InvalidInput, SchemaTooOld, StoreUnavailable, StoreUrlInvalid
from stepwell.kernel.changes import Change, Committed, StartRun
from stepwell.kernel.clock import SECOND, Clock
from stepwell.kernel.explaining import RunFacts
from stepwell.kernel.progress import Place, Progress
from stepwell.kernel.run import Run, Step, WorkerInfo
from stepwell.record import VersionRow
from stepwell.store import Found, Heard, Notice, RunFilter, RunOutline, WorkerRow
from stepwell.stores.access import SqlAccess
from stepwell.stores.folder import make_folder
from stepwell.stores.migrations import migrations, pending
from stepwell.stores.records import SqlRecords
from stepwell.stores.sqlite import progress, pruning, reads
from stepwell.stores.sqlite.apply import apply
from stepwell.stores.sqlite.line import Line
from stepwell.stores.sqlite.registering import register
from stepwell.stores.sqlite.rows import all_rows, one, pack, run, writing
from stepwell.stores.sqlite.statements import SqliteStatements
from stepwell.stores.sqlite.sweep import sweep
from stepwell.stores.triggers import SqlTriggers

# How often another process's commits are looked for: a look costs a few microseconds.
WATCH_SECONDS = 0.05
BUSY_MS = 30_000
# A log of so many pages is copied into the file by the commit that made it so long. All commits
# behind it wait for that: 5 ms with SQLite's own 1,000 pages, 1.5 ms with these, as many steps/s.
CHECKPOINT_PAGES = 200
# Then the log is written over from the start, up to where the longest transactions end. What does
# not fit into the page cache is written to the log before its transaction ends.
WAL_BYTES, CACHE_BYTES = 4 * 1024 * 1024, 2 * 1024 * 1024


class _RolledBack(Exception):
    """Leaves a transaction without keeping what it did."""


class SqliteStore:
    """Runs in one SQLite file. All writes of a process go through one thread."""

    def __init__(self, path: str, clock: Clock, *, inline: bool = False) -> None:
        self.clock = clock
        # Each connection is made when it is needed, and the working directory may change.
        self._path = path if path == ":memory:" else str(Path(path).absolute())
        self._place = Path(self._path)
        self._file: tuple[int, int] | None = None
        self._write = Line(self._connect, inline=inline)
        self._read = self._write if inline else Line(self._connect)
        statements = SqliteStatements(self._read, self._write, clock)
        self.records = SqlRecords(statements)
        self.triggers = SqlTriggers(statements)
        self.access = SqlAccess(statements)
        self._inline = inline
        self._watcher: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._make_folder()
        try:
            await self._write.run(self._check)
            self._check_file()
            await self._write.run(apply_migrations)
            if not self._inline:
                await self._write.run(self._grow_wal)
        except BaseException:
            await self.close()
            raise

    def _check(self, db: apsw.Connection) -> None:
        applied = _applied(db)
        waiting = pending(migrations("sqlite"), applied)
        if waiting and applied:
            raise SchemaTooOld(
                f"The store {self._path} lacks {len(waiting)} migration(s), the first "
                f"{waiting[0].name}. Run `stepwell migrate`."
            )

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None
        await self._write.close()
        if self._read is not self._write:
            await self._read.close()

    async def migrate(self) -> list[str]:
        self._make_folder()
        return await self._write.run(apply_migrations)

    def _make_folder(self) -> None:
        if self._path == ":memory:":
            return
        try:
            make_folder(self._place.parent)
        except OSError as error:
            raise StoreUnavailable(
                f"The folder of the store {self._path} cannot be made: {error}."
            ) from error

    def _connect(self) -> apsw.Connection:
        try:
            # A file that has gone is not made again: whoever looked would find it empty.
            flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if not self._file else 0)
            db = new_connection(self._path, flags)
            db.set_busy_timeout(BUSY_MS)
            db.execute("PRAGMA journal_mode = WAL")
        except apsw.NotADBError as error:
            raise StoreUnavailable(f"{self._path} is not a SQLite database.") from error
        except apsw.CorruptError as error:
            raise StoreUnavailable(f"The file {self._path} is damaged: {error}.") from error
        except apsw.CantOpenError as error:
            raise StoreUnavailable(f"The file {self._path} cannot be opened or made.") from error
        except apsw.ReadOnlyError as error:
            raise StoreUnavailable(f"The file {self._path} cannot be written to.") from error
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute(f"PRAGMA cache_size = {-CACHE_BYTES // 1024}")
        return db

    def _grow_wal(self, db: apsw.Connection) -> None:
        """Make the log as long as it will become anyway, by a transaction that is rolled back.

        A commit that appends to the file also changes the file's length, which the file system
        has to journal: 0.36 ms where one that overwrites takes 0.19.
        """
        log = Path(f"{self._path}-wal")
        if log.exists() and log.stat().st_size >= WAL_BYTES:
            return
        with contextlib.suppress(apsw.FullError, _RolledBack), writing(db):
            db.execute("CREATE TABLE filler (bytes)")
            run(db, "INSERT INTO filler VALUES (zeroblob(?))", WAL_BYTES + CACHE_BYTES)
            raise _RolledBack

    async def commit(self, batch: Sequence[Change]) -> Committed:
        return await self._write.run(lambda db: self._apply(db, batch))

    def _apply(self, db: apsw.Connection, batch: Sequence[Change]) -> Committed:
        done = apply(db, batch, self.clock)
        self._check_file()  # only now: nothing is acknowledged that went into a file without a name
        return done

    def _check_file(self) -> None:
        """SQLite itself would go on writing to a file that has no name any more."""
        if self._path == ":memory:":
            return
        try:
            found = self._place.stat()
        except OSError as error:
            raise StoreUnavailable(
                f"The store's file has gone: {error}. Put it back, or stop this process."
            ) from error
        if self._file is None:
            self._file = (found.st_dev, found.st_ino)
        if self._file != (found.st_dev, found.st_ino):
            raise StoreUnavailable(
                f"The store's file {self._path} was replaced by another one. Stop this process "
                "before you restore a copy."
            )

    def watch(self, notice: Notice) -> None:
        if not self._inline and self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch(notice))

    async def _watch(self, notice: Notice) -> None:
        """Notice commits of other processes by the file's data version.

        A connection of its own sees every commit, and that for a few microseconds. Only when
        there was one is the writing connection asked, which does not count its own.
        """
        db = self._connect()
        last: tuple[Any, ...] | None = None
        last_of_others: tuple[Any, ...] | None = None
        try:
            while True:
                # Busy, say: the next look tells.
                with contextlib.suppress(apsw.Error, StoreUnavailable):
                    version = _data_version(db)
                    if version != last:
                        of_others = await self._write.run(_data_version)
                        if last_of_others is not None and of_others != last_of_others:
                            notice(Heard(firing=True))
                        last, last_of_others = version, of_others
                await asyncio.sleep(WATCH_SECONDS)
        finally:
            db.close()

    def announce(self, committed: Committed) -> None:
        """Nothing to do: the file itself tells."""

    async def register(self, workspace_id: str, definitions: Sequence[VersionRow]) -> None:
        now = self.clock.now()

        def work(db: apsw.Connection) -> None:
            with writing(db):
                register(db, workspace_id, definitions, now, Committed([]))

        await self._write.run(work)

    async def version(self, workspace_id: str, name: str, version: int | None) -> VersionRow | None:
        return await self._read.run(lambda db: reads.version(db, workspace_id, name, version))

    async def definition_names(self, workspace_id: str) -> list[str]:
        return await self._read.run(lambda db: reads.definition_names(db, workspace_id))

    async def enlist(self, worker: WorkerRow) -> None:
        now = self.clock.now()
        expires = now + int(worker.lease_seconds * SECOND)
        await self._write.run(
            lambda db: run(
                db,
                "INSERT INTO workers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                worker.id, worker.workspace_id, worker.host, worker.pid, worker.pid_started,
                worker.concurrency, json.dumps(worker.programs), worker.started_at, now, expires,
            )
        )  # fmt: skip

    async def heartbeat(self, worker_id: str, lease_seconds: float) -> bool:
        now = self.clock.now()

        def work(db: apsw.Connection) -> bool:
            run(
                db,
                """UPDATE workers SET heartbeat_at = ?1, expires_at = ?2
                   WHERE id = ?3 AND expires_at > ?1""",
                now,
                now + int(lease_seconds * SECOND),
                worker_id,
            )
            return db.changes() > 0

        return await self._write.run(work)

    async def retire(self, worker_ids: Sequence[str], *, alive: bool = False) -> None:
        now = self.clock.now()
        ids = pack(list(worker_ids))

        def work(db: apsw.Connection) -> None:
            with writing(db):
                run(
                    db,
                    """UPDATE workers SET expires_at = min(expires_at, ?)
                       WHERE id IN (SELECT value FROM json_each(?))""",
                    now,
                    ids,
                )
                if alive:
                    run(
                        db,
                        """UPDATE runs SET owner = NULL, due_at = created_at
                           WHERE owner IN (SELECT value FROM json_each(?))""",
                        ids,
                    )

        await self._write.run(work)

    async def workers(self, workspace_id: str) -> list[WorkerInfo]:
        now = self.clock.now()
        return await self._read.run(lambda db: reads.workers(db, workspace_id, now))

    async def worker_processes(self) -> list[tuple[str, str, int, str]]:
        return await self._read.run(
            lambda db: [
                (row[0], row[1], row[2], row[3])
                for row in all_rows(db, "SELECT id, host, pid, pid_started FROM workers")
            ]
        )

    async def lost(self, held: Sequence[tuple[str, str, int]]) -> list[str]:
        return await self._read.run(lambda db: reads.lost(db, held))

    async def get_run(self, workspace_id: str, run_id: str) -> Run | None:
        return await self._read.run(lambda db: reads.get_run(db, workspace_id, run_id))

    async def started(self, workspace_id: str, definition: str, key: str) -> str | None:
        return await self._read.run(lambda db: reads.started(db, workspace_id, definition, key))

    async def ended(self, run_ids: Sequence[str]) -> list[str]:
        return await self._read.run(lambda db: reads.ended(db, run_ids))

    async def list_runs(self, where: RunFilter) -> Found:
        return await self._read.run(lambda db: reads.list_runs(db, where))

    async def count_runs(self, workspace_id: str) -> dict[str, dict[str, int]]:
        return await self._read.run(lambda db: reads.count_runs(db, workspace_id))

    async def outlines(self, run_ids: Sequence[str]) -> list[RunOutline]:
        return await self._read.run(lambda db: reads.outlines(db, run_ids))

    async def unclaimed(self, workspace_id: str, before: int) -> tuple[int, str | None]:
        return await self._read.run(lambda db: reads.unclaimed(db, workspace_id, before))

    async def steps(self, run_id: str) -> list[Step]:
        return await self._read.run(lambda db: reads.steps(db, run_id))

    async def progress(self, workspace_id: str, places: Sequence[Place]) -> list[Progress | None]:
        return await self._read.run(lambda db: progress.progress(db, workspace_id, places))

    async def facts(self, workspace_id: str, run_id: str) -> RunFacts | None:
        now = self.clock.now()
        return await self._read.run(lambda db: reads.facts(db, workspace_id, run_id, now))

    async def prune(self, now: int, limit: int, rows: int) -> int:
        return await self._write.run(lambda db: pruning.prune(db, now, limit, rows))

    async def prune_events(self, before: int, limit: int) -> int:
        return await self._write.run(lambda db: pruning.prune_events(db, before, limit))

    async def sweep(self) -> Committed:
        now = self.clock.now()

        def work(db: apsw.Connection) -> Committed:
            done = Committed([])
            with writing(db):
                sweep(db, now, done)
            return done

        return await self._write.run(work)

    async def take_duty(self, name: str, worker_id: str, seconds: float) -> bool:
        now = self.clock.now()

        def work(db: apsw.Connection) -> bool:
            run(
                db,
                """INSERT INTO duties VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE
                   SET worker_id = ?2, expires_at = ?3
                   WHERE worker_id = ?2 OR expires_at <= ?4""",
                name,
                worker_id,
                now + int(seconds * SECOND),
                now,
            )
            return db.changes() > 0

        return await self._write.run(work)

    async def start_in(self, connection: Any, change: StartRun) -> tuple[str, bool]:
        raise InvalidInput(
            "start(connection=…) needs the PostgreSQL store: on SQLite nobody else has the file's "
            "transaction."
        )


def _data_version(db: apsw.Connection) -> tuple[Any, ...] | None:
    return one(db, "PRAGMA data_version")


# Not just `migrations`: a file of some other program may well have a table of that name.
_MIGRATIONS = "stepwell_migrations"


def _applied(db: apsw.Connection) -> set[int]:
    tables = {row[0] for row in all_rows(db, "SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if _MIGRATIONS in tables:
        return {row[0] for row in all_rows(db, f"SELECT number FROM {_MIGRATIONS}")}
    if tables:
        raise StoreUrlInvalid(
            f"The file {db.filename} is a database of something else: it has a table "
            f"{min(tables)!r} and none of Stepwell's. Name another file."
        )
    return set()


def new_connection(path: str, flags: int) -> apsw.Connection:
    """A connection that prepares and plans each statement once.

    Where a bound value might make another index fit, SQLite plans a statement anew at each
    execution unless told not to, which takes several times as long as the execution.
    """
    db = apsw.Connection(path, flags, statementcachesize=512)
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return db


def apply_migrations(db: apsw.Connection) -> list[str]:
    """Apply what is missing, all of it or nothing: nobody may see a store half migrated."""
    with writing(db):
        missing = pending(migrations("sqlite"), _applied(db))
        if missing:
            run(
                db,
                f"CREATE TABLE IF NOT EXISTS {_MIGRATIONS} (number INTEGER PRIMARY KEY, name TEXT)",
            )
        for migration in missing:
            db.execute(migration.sql)
            run(db, f"INSERT INTO {_MIGRATIONS} VALUES (?, ?)", migration.number, migration.name)
    return [migration.name for migration in missing]

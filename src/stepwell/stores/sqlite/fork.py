"""Copying a whole SQLite store to a new file, while it is in use."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import apsw

from stepwell.errors import ForkRefused, StoreUnavailable
from stepwell.stores.folder import make_folder
from stepwell.stores.rules import IN_A_COPY, PAUSED_IN_A_COPY

BUSY_MS = 30_000


def fork(source: str, destination: str) -> None:
    """Copy the store at one path to another, at which nothing may be."""
    origin, target = Path(source), Path(destination)
    if not origin.is_file():
        raise ForkRefused(f"There is no store at {source}.")
    for path in (target, *_companions(target)):
        if path.exists():
            raise ForkRefused(f"{path} exists already. Choose a place where nothing is.")
    make_folder(target.parent)
    # Beside the destination, so that giving it its name is one atomic act.
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
    try:
        _copy(origin, unfinished)
        _sync(unfinished)
        os.link(unfinished, target)  # unlike a rename, refuses a file that came meanwhile
        _sync(target.parent)
    except FileExistsError as error:
        raise ForkRefused(f"{target} exists already. Choose a place where nothing is.") from error
    except apsw.NotADBError as error:
        raise ForkRefused(f"{source} is not a SQLite database.") from error
    except apsw.Error as error:
        raise StoreUnavailable(f"SQLite could not copy {source}: {error}") from error
    finally:
        for path in (unfinished, *_companions(unfinished)):
            path.unlink(missing_ok=True)


def _copy(origin: Path, unfinished: Path) -> None:
    flags = apsw.SQLITE_OPEN_READWRITE
    with (
        contextlib.closing(apsw.Connection(str(origin), flags=flags)) as source,
        contextlib.closing(apsw.Connection(str(unfinished))) as copy,
    ):
        source.set_busy_timeout(BUSY_MS)
        if not source.table_exists("main", "stepwell_migrations"):
            raise ForkRefused(f"{origin} is not a store of Stepwell's.")
        with copy.backup("main", source, "main") as backup:
            backup.step()
        copy.execute("PRAGMA synchronous = FULL")
        with copy:
            for statement in IN_A_COPY:
                copy.execute(statement)
            if copy.table_exists("main", "triggers"):  # not before the third migration
                copy.execute(PAUSED_IN_A_COPY)


def _companions(path: Path) -> list[Path]:
    """Files that SQLite keeps beside a database."""
    return [path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal")]


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""Talking to SQLite in whole batches.

A Python thread gives up the interpreter lock for every call into SQLite and has to win it
back. So rows go in many at a time, as the VALUES of one statement, and come out as one JSON
text: one call for a batch instead of one for each row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import apsw
import msgspec

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def pack(rows: Sequence[Any]) -> str:
    """Rows as the JSON text that `json_each(?)` takes apart."""
    return _encode(rows).decode()


# Few sizes, so that the statements stay in the connection's cache.
_SIZES = (256, 128, 64, 32, 16, 8, 4, 2, 1)


def run_rows(db: apsw.Connection, sql: str, rows: Sequence[Sequence[Any]]) -> None:
    """Execute a statement with `{rows}` standing for the VALUES of all these rows."""
    start = 0
    while start < len(rows):
        left = len(rows) - start
        size = next(size for size in _SIZES if size <= left)
        chunk = rows[start : start + size]
        db.execute(_sized(sql, len(chunk[0]), size), [value for row in chunk for value in row])
        start += size


@lru_cache(maxsize=1024)
def _sized(sql: str, columns: int, rows: int) -> str:
    row = "(" + ", ".join("?" * columns) + ")"
    return sql.replace("{rows}", ", ".join([row] * rows))


@lru_cache(maxsize=256)
def numbered(sql: str) -> str:
    """A statement with `$1`, `$2` … as SQLite numbers its parameters."""
    return re.sub(r"\$(\d+)", r"?\1", sql)


class writing:  # noqa: N801 (reads as a verb: `with writing(db):`)
    """A transaction that has the file's one write lock from its beginning.

    One that begins by reading and then writes is refused at once when another process wrote
    meanwhile, however long it would be willing to wait.
    """

    __slots__ = ("_db",)

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            try:
                self._db.execute("COMMIT")
                return
            except BaseException:
                self._roll_back()
                raise
        self._roll_back()

    def _roll_back(self) -> None:
        if self._db.in_transaction:  # SQLite ends it by itself after some errors
            self._db.execute("ROLLBACK")


@contextmanager
def reading(db: apsw.Connection) -> Iterator[None]:
    """A transaction in which all statements see the same state of the file."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def run(db: apsw.Connection, sql: str, *bindings: Any) -> None:
    db.execute(sql, bindings)


def all_rows(db: apsw.Connection, sql: str, *bindings: Any) -> list[tuple[Any, ...]]:
    return db.execute(sql, bindings).fetchall()


def one(db: apsw.Connection, sql: str, *bindings: Any) -> tuple[Any, ...] | None:
    row: tuple[Any, ...] | None = db.execute(sql, bindings).fetchone()
    return row


def rows(db: apsw.Connection, columns: str, source: str, *bindings: Any) -> Iterable[Sequence[Any]]:
    """`SELECT columns source` in one call, unless that would be more than SQLite can give."""
    try:
        return unpack(db, f"SELECT json_group_array(json_array({columns})) {source}", *bindings)
    except apsw.TooBigError:
        return all_rows(db, f"SELECT {columns} {source}", *bindings)


def unpack(db: apsw.Connection, sql: str, *bindings: Any) -> list[Any]:
    """The rows of a query that ends in one `json_group_array`."""
    row = one(db, sql, *bindings)
    assert row is not None
    rows: list[Any] = _decode(row[0])
    return rows

"""Talking to SQLite in whole batches.

A Python thread gives up the interpreter lock for every call into SQLite and has to win it
back. So rows go in many at a time, as the VALUES of one statement, and come out as one JSON
text: one call for a batch instead of one for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def run(db: apsw.Connection, sql: str, *bindings: Any) -> None:
    db.execute(sql, bindings)


def all_rows(db: apsw.Connection, sql: str, *bindings: Any) -> list[tuple[Any, ...]]:
    return db.execute(sql, bindings).fetchall()


def one(db: apsw.Connection, sql: str, *bindings: Any) -> tuple[Any, ...] | None:
    row: tuple[Any, ...] | None = db.execute(sql, bindings).fetchone()
    return row


def unpack(db: apsw.Connection, sql: str, *bindings: Any) -> list[Any]:
    """The rows of a query that ends in one `json_group_array`."""
    row = one(db, sql, *bindings)
    assert row is not None
    rows: list[Any] = _decode(row[0])
    return rows

"""Talking to SQLite in whole batches: rows go in and come out as one JSON text.

A Python thread gives up the interpreter lock for every call into SQLite and has to win it
back. One call that carries a thousand rows does that once instead of a thousand times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def pack(rows: Sequence[Any]) -> str:
    """Rows as the JSON text that `json_each(?)` takes apart."""
    return _encode(rows).decode()


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

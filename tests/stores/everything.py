"""All that a store holds."""

from __future__ import annotations

import apsw
import asyncpg


async def everything(url: str) -> str:
    """All that a store holds, as one text."""
    if url.startswith("sqlite"):
        db = apsw.Connection(url.removeprefix("sqlite:///"))
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type='table'")]
        return "\n".join(str(row) for name in tables for row in db.execute(f"SELECT * FROM {name}"))
    connection = await asyncpg.connect(url)
    try:
        names = await connection.fetch(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'stepwell'"
        )
        rows = [await connection.fetch(f"SELECT * FROM stepwell.{name}") for (name,) in names]
        return "\n".join(str(tuple(row)) for found in rows for row in found)
    finally:
        await connection.close()

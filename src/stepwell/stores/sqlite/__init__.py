"""The SQLite store: one file, one writer at a time, nothing else to run."""

from __future__ import annotations

from stepwell.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]

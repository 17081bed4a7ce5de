"""The PostgreSQL store: one database, any number of processes."""

from __future__ import annotations

from stepwell.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]

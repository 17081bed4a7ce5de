"""Stores: one folder each, opened by URL.

Both stores hold the same tables and apply the same changes; they differ in how they take
turns. SQLite has one writer in all, so a batch is simply a transaction. PostgreSQL has
many, so whatever reads before it writes takes a lock first, always in this order: limit and
event-name locks, then run rows by id, then everything else.
"""

from __future__ import annotations

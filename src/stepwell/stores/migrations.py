"""Numbered SQL files, applied once each, forward only."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

from stepwell.errors import SchemaTooNew


class Migration(NamedTuple):
    number: int
    name: str
    sql: str


@cache
def migrations(store: str) -> Sequence[Migration]:
    """All migrations of a store, in order."""
    folder = resources.files("stepwell.stores") / "migrations" / store
    found = [
        Migration(int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text("utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    ]
    return tuple(sorted(found))


def pending(all_migrations: Sequence[Migration], applied: set[int]) -> list[Migration]:
    """What is still to be applied; refuses a store that is ahead of this code."""
    unknown = applied - {migration.number for migration in all_migrations}
    if unknown:
        raise SchemaTooNew(
            f"The store has migration {max(unknown)}, which this Stepwell does not know "
            f"(it knows up to {all_migrations[-1].number}). Upgrade Stepwell."
        )
    return [migration for migration in all_migrations if migration.number not in applied]

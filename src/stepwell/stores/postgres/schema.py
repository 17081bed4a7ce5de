"""The schema on PostgreSQL: what is applied, and applying the rest."""

from __future__ import annotations

import logging
from importlib import resources

import asyncpg

from stepwell.errors import SchemaTooOld, StoreForbidden
from stepwell.stores.migrations import Migration, migrations, pending

log = logging.getLogger("stepwell.postgres")

_GRANTS = (resources.files("stepwell.stores.postgres") / "grants.sql").read_text("utf-8")
# What grants.sql makes, and for whom.
ROLES = {"stepwell_worker": "workers", "stepwell_server": "servers"}
_HOW = "Run `stepwell migrate` as the owner of the database."


async def check(db: asyncpg.Connection, shown: str) -> bool:
    """Whether the store has its tables; raises when they are not the ones this code knows."""
    applied = await _applied(db, shown)
    waiting = pending(migrations("postgres"), applied)
    if waiting and applied:
        raise SchemaTooOld(f"{_lacking(waiting, shown)}. {_HOW}")
    return bool(applied)


async def migrate(db: asyncpg.Connection, shown: str) -> list[str]:
    """Apply what is missing, all of it or nothing; the names of what was applied."""
    try:
        async with db.transaction():
            # Whoever comes second waits here, and then finds nothing left to do.
            await db.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended('stepwell:migrate', 0))"
            )
            await db.execute("CREATE SCHEMA IF NOT EXISTS stepwell")
            await db.execute(
                """CREATE TABLE IF NOT EXISTS stepwell.migrations (
                       number integer PRIMARY KEY, name text NOT NULL)"""
            )
            waiting = pending(migrations("postgres"), await _applied(db, shown))
            for migration in waiting:
                await db.execute(migration.sql)
                await db.execute(
                    "INSERT INTO stepwell.migrations VALUES ($1, $2)",
                    migration.number,
                    migration.name,
                )
            await db.execute(_GRANTS)
            roles = await db.fetch("SELECT rolname FROM pg_roles")
            for role, who in ROLES.items():
                if role not in {row[0] for row in roles}:
                    log.warning(
                        "This role may not create the role %s, which gives %s the least they "
                        "need. As a superuser: CREATE ROLE %s NOLOGIN; then run `stepwell "
                        "migrate` again.",
                        *(role, who, role),
                    )
    except asyncpg.InsufficientPrivilegeError as error:
        waiting = pending(migrations("postgres"), await _applied(db, shown))
        if waiting:
            raise StoreForbidden(
                f"{_lacking(waiting, shown)}, and this role may not apply them. {_HOW}"
            ) from error
    return [migration.name for migration in waiting]


def _lacking(waiting: list[Migration], shown: str) -> str:
    return f"Migrations are missing in {shown}: {len(waiting)}, the first {waiting[0].name}"


async def _applied(db: asyncpg.Connection, shown: str) -> set[int]:
    try:
        if await db.fetchval("SELECT to_regclass('stepwell.migrations')") is None:
            return set()
        return {row[0] for row in await db.fetch("SELECT number FROM stepwell.migrations")}
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreForbidden(
            f"This role may not use the schema `stepwell` of {shown}. Grant it the role "
            "stepwell_worker, or to a server stepwell_server, and run `stepwell migrate` as the "
            "owner of the database."
        ) from error

"""Roles on PostgreSQL: what a worker may do, and how its role comes to be."""

from __future__ import annotations

import itertools
import logging
from urllib.parse import urlsplit

import asyncpg
import pytest

from stepwell import Stepwell
from stepwell.errors import StoreForbidden
from stepwell.kernel.clock import SystemClock
from stepwell.stores.migrations import Migration, migrations
from stepwell.stores.postgres import PostgresStore
from tests.conftest import new_database, running_postgres
from tests.engine.support import until
from tests.stores.support import alone, doubling, execute, named

_numbers = itertools.count()


@pytest.fixture
async def url(postgres_server: str) -> str:
    """An empty database."""
    return await new_database(postgres_server)


async def test_a_worker_needs_no_more_than_its_role(url: str) -> None:
    user = f"agent_{next(_numbers)}"
    agent = named(url, user)
    await execute(
        url, f"CREATE ROLE {user} LOGIN", "CREATE TABLE public.secrets AS SELECT 42 AS answer"
    )
    with pytest.raises(StoreForbidden, match=r"may not apply them\. Run `stepwell migrate`"):
        await PostgresStore(agent, SystemClock()).open()
    async with Stepwell(url, workflows=[doubling]) as owner:
        with pytest.raises(StoreForbidden, match="stepwell_worker"):
            await PostgresStore(agent, SystemClock()).open()
        await execute(url, f"GRANT stepwell_worker TO {user}")
        run = await owner.start("doubling", 4)
        async with Stepwell(agent, workflows=[doubling, alone]) as sw, sw.worker():
            assert await run.result() == 8
            held = await sw.start("alone", idempotency_key="one", concurrency_key="k")
            await until(sw, held.id, "waiting")
            assert (await sw.explain(held.id)).code == "event"
            assert await sw.emit("go", {"by": user}) is True
            assert await held.result() == {"by": user}
            assert await sw.cancel((await sw.start("alone", delay="1h")).id) is True
            assert await sw.prune() == 0
    for forbidden in (
        "SELECT * FROM public.secrets",
        "CREATE TABLE stepwell.mine ()",
        "CREATE TABLE public.mine ()",
        "DELETE FROM stepwell.migrations",
        "DROP TABLE stepwell.runs",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await execute(agent, forbidden)


async def test_events_need_no_right_to_temporary_things(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    user, database = f"agent_{next(_numbers)}", urlsplit(url).path.removeprefix("/")
    async with Stepwell(url, workflows=[alone]):
        await execute(
            url, f"CREATE ROLE {user} LOGIN", f"GRANT stepwell_worker TO {user}",
            f"REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC",
        )  # fmt: skip
    async with Stepwell(named(url, user), workflows=[alone]) as sw, sw.worker():
        run = await sw.start("alone")
        await until(sw, run.id, "waiting")
        assert await sw.emit("go", {"by": user}, idempotency_key="one") is True
        assert await run.result() == {"by": user}
        assert await sw.emit("go", {"by": user}, idempotency_key="one") is False
    assert caplog.text.count("no temporary function can be made") == 1


async def test_a_worker_may_ask_for_migrations_but_not_apply_them(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = f"agent_{next(_numbers)}"
    await execute(url, f"CREATE ROLE {user} LOGIN")
    agent = PostgresStore(named(url, user), SystemClock())
    with pytest.raises(StoreForbidden, match=r"missing in the database stepwell_\d+ on"):
        await agent.migrate()
    owner = PostgresStore(url, SystemClock())
    await owner.migrate()
    await owner.close()
    with pytest.raises(StoreForbidden, match="may not use the schema"):
        await agent.migrate()
    await execute(url, f"GRANT stepwell_worker TO {user}")
    assert await agent.migrate() == []
    later = [*migrations("postgres"), Migration(9999, "9999_later", "SELECT 1")]
    monkeypatch.setattr("stepwell.stores.postgres.schema.migrations", lambda _: later)
    with pytest.raises(StoreForbidden, match="9999_later, and this role may not apply them"):
        await agent.migrate()
    await agent.close()


async def test_a_role_that_comes_later_gets_its_rights_from_the_next_migration(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running_postgres() as server:  # roles belong to a whole server
        url = await new_database(server.get_uri())
        database = urlsplit(url).path.removeprefix("/")
        await execute(
            url, "CREATE ROLE plain LOGIN", "CREATE ROLE agent LOGIN",
            f"ALTER DATABASE {database} OWNER TO plain",
        )  # fmt: skip
        owner = PostgresStore(named(url, "plain"), SystemClock())
        with caplog.at_level(logging.WARNING, "stepwell"):
            assert "0001_kernel" in await owner.migrate()
        assert "CREATE ROLE stepwell_worker" in caplog.text
        await execute(url, "CREATE ROLE stepwell_worker NOLOGIN", "GRANT stepwell_worker TO agent")
        agent = named(url, "agent")
        with pytest.raises(StoreForbidden, match="stepwell migrate"):
            await PostgresStore(agent, SystemClock()).open()
        assert await owner.migrate() == []
        await owner.close()
        async with Stepwell(agent, workflows=[doubling]) as sw, sw.worker():
            assert await (await sw.start("doubling", 4)).result() == 8


async def test_only_a_server_sees_who_may_come_in_and_nobody_can_rewrite_the_audit_log(
    url: str,
) -> None:
    agent, server = (f"{kind}_{next(_numbers)}" for kind in ("agent", "server"))
    owner = PostgresStore(url, SystemClock())
    await owner.migrate()
    await owner.close()
    await execute(
        url, f"CREATE ROLE {agent} LOGIN", f"GRANT stepwell_worker TO {agent}",
        f"CREATE ROLE {server} LOGIN", f"GRANT stepwell_server TO {server}",
    )  # fmt: skip
    for table in ("users", "members", "tokens", "sessions", "links", "audit", "workspaces"):
        await execute(named(url, server), f"SELECT * FROM stepwell.{table}")
        for forbidden in (f"SELECT * FROM stepwell.{table}", f"DELETE FROM stepwell.{table}"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await execute(named(url, agent), forbidden)
    await execute(named(url, agent), "SELECT id FROM stepwell.workspaces")  # whose runs it executes
    for forbidden in ("DELETE FROM stepwell.audit", "UPDATE stepwell.audit SET actor = 'me'"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await execute(named(url, server), forbidden)
    async with Stepwell(named(url, server), workflows=[doubling]) as sw, sw.worker():
        assert await (await sw.start("doubling", 4)).result() == 8
        assert await sw.store.access.members("default") == []

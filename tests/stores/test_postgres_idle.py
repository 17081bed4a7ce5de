"""What a process that has nothing to do asks PostgreSQL: no more than its heartbeat needs."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from stepwell import Stepwell, workflow
from stepwell.app.premises import Premises
from stepwell.catalog import store_for
from stepwell.engine.room import Room
from stepwell.kernel.clock import SECOND
from stepwell.settings import Settings
from stepwell.testing.clock import FakeClock
from tests.conftest import new_database
from tests.engine.support import flowing, until

MINUTES = 3


@workflow
async def parked(ctx: Any, input: Any) -> None:
    await ctx.wait_for_event("never")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that is sent to the server."""
    statements: list[str] = []
    connect = asyncpg.connect

    async def logged(*given: Any, **more: Any) -> asyncpg.Connection:
        db = await connect(*given, **more)
        db.add_query_logger(lambda record: statements.append(" ".join(record.query.split())))
        return db

    monkeypatch.setattr(asyncpg, "connect", logged)
    return statements


async def test_an_idle_worker_asks_for_nothing_beyond_its_heartbeat(
    postgres_server: str, clock: FakeClock, asked: list[str]
) -> None:
    """Four statements with each heartbeat; housekeeping looks twice a minute for what it missed."""
    url = await new_database(postgres_server)
    async with Stepwell(workflows=[parked], store=store_for(url, clock)) as sw:
        await sw.triggers.create("parked", "schedule", {"cron": "@yearly"})
        await sw.triggers.create("parked", "event", {"event": "other"})
        async with sw.worker():
            run = await sw.start("parked", 1)
            async with flowing(clock, "0.1s"):
                await until(sw, run.id, "waiting")
                await passed(clock, 1)
                asked.clear()
                await passed(clock, MINUTES)
                counted = Counter(statement[:40] for statement in asked)
    beats = sum(count for text, count in counted.items() if text.startswith("UPDATE workers"))
    assert 0 < beats <= 12 * MINUTES + 2, "one every five seconds"
    assert len(asked) <= 4 * (beats + 1) + 3 * 2 * (MINUTES + 1), counted


async def test_a_workspace_more_costs_an_idle_process_little(
    postgres_server: str, clock: FakeClock, asked: list[str]
) -> None:
    """Its heartbeat, its claim and its triggers; dead workers are looked for once for all."""
    counted: dict[int, Counter[str]] = {}
    for number in (1, 5):
        asked.clear()
        store = store_for(await new_database(postgres_server), clock)
        premises = Premises(store, Settings(), room=Room(100))
        await premises.open()
        async with AsyncExitStack() as stack:
            for name in map(str, range(number)):
                sw = Stepwell(workflows=[parked], workspace=name, premises=premises)
                await stack.enter_async_context(sw)
                await stack.enter_async_context(sw.worker())
            async with flowing(clock, "0.1s"):
                await passed(clock, 1)
                asked.clear()
                await passed(clock, MINUTES)
                counted[number] = Counter(statement[:40] for statement in asked)
        await premises.finish()
        await premises.close()
    for looked in ("WITH RECURSIVE queues", "SELECT id, host, pid"):
        once, still = (_asked(found, looked) for found in counted.values())
        assert 0 < still <= once + 2, counted
    rounds = _asked(counted[1], "UPDATE workers") + 1
    each, together = 3 * rounds + 3 * 2 * (MINUTES + 1), 4 * rounds
    assert counted[5].total() <= 5 * each + together, counted


def _asked(counted: Counter[str], beginning: str) -> int:
    return sum(count for text, count in counted.items() if text.startswith(beginning))


async def passed(clock: FakeClock, minutes: int) -> None:
    """Return when so much time has passed by the clock."""
    over = asyncio.Event()
    clock.call_at(clock.now() + minutes * 60 * SECOND, over.set)
    await over.wait()

"""A store that can be read and not written to, as on a full disk: told soon, and nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from stepwell import workflow
from stepwell.app import performing
from stepwell.engine import writer
from stepwell.errors import StoreUnavailable
from stepwell.kernel.changes import Change
from tests.engine.support import eventually
from tests.surfaces.serving import Served, served

pytestmark = pytest.mark.anyio


@workflow
async def told(ctx: Any, input: Any) -> Any:
    return input


def fill_disk(server: Served) -> asyncio.Event:
    """No commit succeeds until there is room again."""
    store, room = server.host.first.store, asyncio.Event()
    real = store.commit

    async def commit(batch: Sequence[Change]) -> Any:
        if not room.is_set():
            raise StoreUnavailable("SQLite: database or disk is full")
        return await real(batch)

    store.commit = commit  # type: ignore[method-assign]
    return room


async def test_a_server_whose_disk_is_full_says_so_and_forgets_nothing(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "AWAY_SECONDS", 0)
    async with served(store_url, [told]) as server:
        before = await server.ask("POST", "/api/definitions/told/runs", {"input": 1})
        room = fill_disk(server)
        key = {"Idempotency-Key": "one"}
        with monkeypatch.context() as patch:
            patch.setattr(performing, "PATIENCE_SECONDS", 0)
            refused = await server.ask(
                "POST", "/api/definitions/told/runs", {"input": 2}, headers=key
            )
        assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
        assert (await server.ask("GET", "/readyz", role=None)).status_code == 503
        read = await server.ask("GET", f"/api/runs/{before.json()['id']}")
        assert read.status_code == 200
        room.set()
        await eventually(server.host.is_writable)
        again = await server.ask("POST", "/api/definitions/told/runs", {"input": 2}, headers=key)
        assert again.is_success
        runs = (await server.ask("GET", "/api/runs")).json()["items"]
        assert sorted(run["id"] for run in runs) == sorted(
            [before.json()["id"], again.json()["id"]]
        )
        assert (await server.ask("GET", "/readyz", role=None)).status_code == 200

"""Migrations of stores that were used before."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from stepwell.catalog import store_for
from stepwell.stores import migrations as real
from stepwell.testing.clock import FakeClock
from stepwell.testing.samples import commit, start


async def test_workspaces_that_were_used_before_there_were_any_are_there(
    store_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = importlib.import_module(
        "stepwell.stores.sqlite.store"
        if store_url.startswith("sqlite")
        else "stepwell.stores.postgres.schema"
    )
    with monkeypatch.context() as before:
        # Grants are about tables that are yet to come.
        before.setattr(module, "_GRANTS", "SELECT 1", raising=False)
        before.setattr(module, "migrations", lambda name: real.migrations(name)[:4])
        store = store_for(store_url, clock)
        await store.open()
        await commit(store, start(store, "r1"), start(store, "r2", workspace_id="other"))
        await store.close()
    store = store_for(store_url, clock)
    assert await store.migrate() == ["0005_access"]
    await store.open()
    assert [each.id for each in await store.access.workspaces()] == ["default", "other"]
    assert await store.get_run("other", "r2") is not None
    await store.close()

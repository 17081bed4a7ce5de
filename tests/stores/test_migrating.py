"""Migrations of stores that were used before."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from stepwell.catalog import store_for
from stepwell.store import RunFilter
from stepwell.stores import migrations as real
from stepwell.testing.clock import FakeClock
from tests.conftest import WITHOUT_TABLES
from tests.stores.support import execute


@pytest.mark.parametrize("store_url", WITHOUT_TABLES, indirect=True)
async def test_runs_that_were_there_before_are_found(
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
        await store.close()
    for workspace, run_id in (("default", "r1"), ("other", "r2")):
        await execute(
            store_url,
            "SET search_path TO stepwell" if module.__name__.endswith("schema") else "SELECT 1",
            f"""INSERT INTO runs (id, workspace_id, definition, version, program, status, priority,
                    created_at, retention_seconds)
                VALUES ('{run_id}', '{workspace}', 'old', 1, 'code:old@1', 'pending', 0, 1, 60)""",
            f"""INSERT INTO payloads VALUES ('{run_id}', 'input', '{{"a": 1}}')""",
        )
    store = store_for(store_url, clock)
    assert await store.migrate() == [
        "0005_access", "0006_terms", "0007_joined", "0008_traced_events",
    ]  # fmt: skip
    await store.open()
    assert [each.id for each in await store.access.workspaces()] == ["default", "other"]
    found = await store.list_runs(RunFilter("other", input={"a": 1}))
    assert [run.id for run in found.runs] == ["r2"]
    assert (await store.list_runs(RunFilter("other", input={"a": 2}))).runs == []
    await store.close()

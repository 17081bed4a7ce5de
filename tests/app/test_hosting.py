"""A host: workspaces are opened when they are needed, and their runs executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepwell import workflow
from stepwell.app.hosting import Host, Shape
from stepwell.errors import WorkspaceNotFound
from stepwell.kernel.access import WorkspaceRecord
from stepwell.settings import Settings

pytestmark = pytest.mark.anyio


@workflow(name="double")
async def double(ctx: Any, input: Any) -> Any:
    return input * 2


async def test_the_first_start_of_a_store_makes_an_owner_and_samples_once(store_url: str) -> None:
    for _ in range(2):
        async with Host(store_url, Shape(worker=None), Settings()) as host:
            await host.begin()
            names = [each.name for each in await host.first.definitions.list()]
            assert names == ["ask-first", "count-down", "hello"]
            owners = await host.first.store.access.members(host.first_id)
            assert [(user.name, member.role) for user, member in owners] == [("owner", "owner")]
            await host.first.definitions.delete("hello")
            await host.first.definitions.sync(
                {
                    "name": "hello",
                    "nodes": [{"id": "a", "type": "transform", "config": {"value": 1}}],
                }
            )


async def test_a_host_executes_the_runs_of_all_workspaces(store_url: str) -> None:
    async with Host(store_url, Shape((double,), (), None), Settings()) as host:
        access, now = host.first.store.access, host.first.store.clock.now()
        await access.add_workspace(WorkspaceRecord("second", "Second", now), None)
        place = await host.workspace("second")
        assert await host.workspace("second") is place
        run = await place.start("double", 4)
        with pytest.raises(WorkspaceNotFound):
            await host.workspace("third")
    async with Host(store_url, Shape((double,)), Settings()) as host:
        assert host.workers.keys() == {"default", "second"}
        place = await host.workspace("second")
        assert await place.result(run.id, timeout=30) == 8
        first = await host.first.start("double", 5)
        assert await first.result(timeout=30) == 10


async def test_a_store_that_cannot_be_opened_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "stepwell.db").write_bytes(b"not a database, but long enough to look like one" * 99)
    with pytest.raises(Exception, match=r"stepwell\.db"):
        async with Host(f"sqlite:///{tmp_path}/stepwell.db", Shape(), Settings()):
            pass

"""`stepwell fork-store`: a copy of everything, which then goes its own way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from stepwell import Stepwell, workflow
from stepwell.catalog import store_for
from stepwell.kernel.clock import SystemClock
from stepwell.testing.clock import FakeClock
from tests.conftest import WITHOUT_TABLES
from tests.engine.support import until_code
from tests.surfaces.support import Cli, until


@workflow(name="nap")
async def nap(ctx: Any, input: Any) -> Any:
    await ctx.sleep("nap", input["for"])
    return "rested"


def beside(store: str) -> str:
    """Where a copy of the store may go."""
    name = store.partition("?")[0].rpartition("/")[2]
    return store.replace(f"/{name}", f"/copy_of_{name}", 1)


async def fall_asleep(store_url: str) -> str:
    """A run that sleeps, in a store that nobody is connected to any more."""
    clock = FakeClock(SystemClock().now())  # stands still, so that the run cannot wake before
    store = store_for(store_url, clock)
    async with Stepwell(workflows=[nap], store=store) as stepwell, stepwell.worker():
        run = await stepwell.start("nap", {"for": "1s"})
        await until_code(stepwell, run.id, "sleep")
    return run.id


def test_a_sleeping_run_wakes_in_the_original_and_in_the_copy(cli: Cli) -> None:
    run_id = asyncio.run(fall_asleep(cli.store))
    copy = beside(cli.store)
    assert cli.ok("fork-store", cli.store, copy)["destination"] == copy
    assert cli.status(run_id, copy) == cli.status(run_id) == "waiting"
    with cli.worker("jobs:nap", "--store", copy):
        until(lambda: cli.status(run_id, copy) == "completed")
        assert cli.status(run_id) == "waiting"
    with cli.worker("jobs:nap"):
        until(lambda: cli.status(run_id) == "completed")
    cli.ok("runs", "start", "nap", '{"for": 0}')
    assert len(cli.ok("runs", "list")["items"]) == 2
    assert len(cli.ok("runs", "list", "--store", copy)["items"]) == 1


def test_the_copy_takes_over_what_a_worker_of_the_original_still_does(lite: Cli) -> None:
    copy, door = beside(lite.store), lite.folder / "door"
    with lite.worker("jobs:hold_on") as worker:
        run_id = lite.ok("runs", "start", "hold", f'{{"door": "{door}"}}')["id"]
        until((lite.folder / "door.entered").exists)
        lite.ok("fork-store", lite.store, copy)
        assert lite.ok("workers", "--store", copy)["health"]["alive"] == 0
        with lite.worker("jobs:hold_on", "--store", copy) as other:
            until(lambda: (lite.folder / "door.entered").read_text() == "xx")
            assert lite.ok("workers")["health"]["alive"] == 1
            door.touch()
            until(lambda: lite.status(run_id, copy) == "completed")
            until(lambda: lite.status(run_id) == "completed")
    here = lite.ok("runs", "show", run_id)["run"]
    there = lite.ok("runs", "show", run_id, "--store", copy)["run"]
    assert (here["output"], here["attempt"]) == (worker.process.pid, 1)
    assert (there["output"], there["attempt"]) == (other.process.pid, 2)


def test_triggers_do_not_fire_in_the_copy_until_they_are_enabled_there(cli: Cli) -> None:
    document = cli.folder / "often.yaml"
    document.write_text(
        "name: often\ntriggers: [{id: t, type: schedule, every: 1h}]\n"
        "nodes: [{id: a, type: transform, config: {value: 1}}]\n",
        "utf-8",
    )
    cli.ok("definitions", "publish", str(document))
    copy = beside(cli.store)
    cli.ok("fork-store", cli.store, copy)
    paused = cli.ok("triggers", "show", "often/t", "--store", copy)
    assert (paused["status"], paused["next"]) == ("paused", [])
    assert "This store is a copy" in paused["why"]
    assert cli.ok("triggers", "show", "often/t")["status"] == "enabled"
    assert len(cli.ok("triggers", "enable", "often/t", "--store", copy)["next"]) == 5


def test_an_existing_destination_is_refused_and_left_alone(cli: Cli) -> None:
    cli.ok("migrate")
    copy = beside(cli.store)
    cli.ok("fork-store", cli.store, copy)
    asyncio.run(fall_asleep(cli.store))
    again = cli("fork-store", cli.store, copy, "--json")
    assert again.exit_code == 10
    assert again.document["error"]["code"] == "fork_refused"
    assert cli.ok("runs", "list", "--store", copy)["items"] == []


def test_a_source_that_does_not_exist_is_refused(cli: Cli) -> None:
    missing = cli.store.replace("stepwell", "nothing")
    done = cli("fork-store", missing, beside(missing), "--json")
    assert done.exit_code == 10
    assert done.document["error"]["code"] == "fork_refused"


def test_a_source_that_is_no_store_leaves_nothing_behind(tmp_path: Path) -> None:
    cli = Cli(tmp_path, "sqlite:///unused.db")
    (tmp_path / "text.db").write_text("not a database, but long enough " * 100, "utf-8")
    other = apsw.Connection(str(tmp_path / "other.db"))
    other.execute("CREATE TABLE t (x)")
    other.close()
    before = sorted(path.name for path in tmp_path.iterdir())
    for name in ("text.db", "other.db"):
        source = f"sqlite:///{tmp_path}/{name}"
        done = cli("fork-store", source, f"sqlite:///{tmp_path}/copy.db", "--json")
        assert done.exit_code == 10
        assert done.document["error"]["code"] == "fork_refused"
        assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_failing_copy_leaves_nothing_behind(lite: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    lite.ok("migrate")
    before = sorted(path.name for path in lite.folder.iterdir())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stepwell.stores.sqlite.fork.os.fsync", full)
    done = lite("fork-store", lite.store, beside(lite.store), "--json")
    assert done.exit_code == 40
    assert sorted(path.name for path in lite.folder.iterdir()) == before


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_a_database_that_others_use_is_not_copied(cli: Cli) -> None:
    cli.ok("migrate")
    copy = beside(cli.store)

    async def copy_while_connected() -> None:
        connection = await asyncpg.connect(cli.store)
        try:
            done = await asyncio.to_thread(cli, "fork-store", cli.store, copy, "--json")
        finally:
            await connection.close()
        assert done.exit_code == 40
        assert done.document["error"]["code"] == "store_unavailable"
        assert "connections: 1" in done.document["error"]["message"]

    asyncio.run(copy_while_connected())
    cli.ok("fork-store", cli.store, copy)


@pytest.mark.parametrize("store_url", WITHOUT_TABLES[1:], indirect=True)
def test_a_database_that_is_no_store_is_not_copied(cli: Cli) -> None:
    copy = beside(cli.store)
    done = cli("fork-store", cli.store, copy, "--json")
    assert done.exit_code == 10
    assert done.document["error"]["code"] == "fork_refused"
    cli.ok("migrate")
    cli.ok("fork-store", cli.store, copy)

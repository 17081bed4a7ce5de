"""What the files for deployment start is what there is to be started."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import asyncpg
import click
import pytest
import yaml

from stepwell import Stepwell
from stepwell.app.hosting import Host, Shape
from stepwell.cli import main
from stepwell.cli.supervisor import KILL_SECONDS
from stepwell.kernel.durations import seconds
from stepwell.kernel.sealing import new_key
from stepwell.settings import Settings
from tests.conftest import new_database, running_postgres
from tests.stores.support import execute, named

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"


def compose() -> Any:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def commands() -> list[list[str]]:
    """The words of every command in these files, without the program's name."""
    found = [each["command"] for each in compose()["services"].values() if "command" in each]
    unit = (DEPLOY / "stepwell.service").read_text()
    starts = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    return found + [shlex.split(line.partition("=")[2])[1:] for line in starts]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_command_is_one_that_there_is(words: list[str]) -> None:
    context = click.Context(main, info_name="stepwell")
    name, command, rest = main.resolve_command(context, list(words))
    assert command is not None
    command.make_context(name, rest, parent=context)


def test_no_server_writes_a_link_into_what_is_kept() -> None:
    for words in commands():
        if words[0] == "serve":
            assert "--no-link" in words or words[words.index("--host") + 1] == "0.0.0.0"


def test_a_file_for_compose_starts_everything_a_cluster_needs() -> None:
    services = compose()["services"]
    assert services.keys() == {"db", "migrate", "server", "worker"}
    owner = services["db"]["environment"]["POSTGRES_USER"]
    roles = {"migrate": owner, "server": "server", "worker": "worker"}
    for name, role in roles.items():
        store = services[name]["environment"]["STEPWELL_STORE"]
        assert store == f"postgresql://{role}:${{{role.upper()}_PASSWORD:?}}@db/stepwell"
    for name in ("server", "worker"):
        assert services[name]["environment"].keys() >= {"STEPWELL_SECRET_KEY", "STEPWELL_HOSTS"}


@pytest.mark.anyio
async def test_servers_and_workers_do_with_the_roles_that_are_made_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running_postgres() as postgres:
        for role in ("SERVER", "WORKER"):
            monkeypatch.setenv(f"{role}_PASSWORD", "it's 'quoted'")
        postgres.psql("\\set ON_ERROR_STOP on\n" + (DEPLOY / "roles.sql").read_text())
        url = await new_database(postgres.get_uri())
        async with Stepwell(url):
            pass  # as the owner, who may create tables
        settings = Settings(secret_key=new_key())
        async with (
            Host(named(url, "server"), Shape(worker=None), settings) as server,
            Host(named(url, "worker"), Shape(), settings),
        ):
            await server.begin()
            run = await server.first.start("hello", {"name": "Ada"})
            assert await run.result(timeout="60s") == "Hello, Ada!"
        for role, forbidden in [
            ("worker", "SELECT * FROM stepwell.tokens"),
            ("worker", "DROP TABLE stepwell.runs"),
            ("server", "DELETE FROM stepwell.audit"),
            ("server", "CREATE TABLE stepwell.mine ()"),
        ]:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await execute(named(url, role), forbidden)


def test_who_starts_a_server_waits_longer_for_its_end_than_that_may_take() -> None:
    unit = dict(
        line.split("=", 1) for line in (DEPLOY / "stepwell.service").read_text().splitlines()
        if "=" in line and not line.startswith("#")
    )  # fmt: skip
    waited = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["x-stepwell"]
    patience = [float(unit["TimeoutStopSec"]), seconds(waited["stop_grace_period"])]
    for words in commands():
        if "--grace" in words:
            grace = seconds(words[words.index("--grace") + 1])
            assert min(patience) > grace + KILL_SECONDS

"""What the files for deployment start is what there is to be started."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest
import yaml

from stepwell.cli import main
from stepwell.cli.supervisor import KILL_SECONDS
from stepwell.kernel.durations import seconds

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"


def commands() -> list[list[str]]:
    """The words of every command in these files, without the program's name."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    found = [each["command"] for each in compose["services"].values() if "command" in each]
    unit = (DEPLOY / "stepwell.service").read_text()
    starts = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    return found + [shlex.split(line.partition("=")[2])[1:] for line in starts]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_command_is_one_that_there_is(words: list[str]) -> None:
    context = click.Context(main, info_name="stepwell")
    name, command, rest = main.resolve_command(context, list(words))
    assert command is not None
    command.make_context(name, rest, parent=context)


def test_a_file_for_compose_starts_everything_a_cluster_needs() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert services.keys() == {"db", "migrate", "server", "worker"}
    for name in ("migrate", "server", "worker"):
        assert "STEPWELL_STORE" in services[name]["environment"]


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

"""The command line: every command, its help, and what its exit code means."""

from __future__ import annotations

import click

from stepwell.catalog import operations
from stepwell.cli.definitions import definitions
from stepwell.cli.demo import demo
from stepwell.cli.events import events
from stepwell.cli.exits import Commands
from stepwell.cli.generated import add_generated
from stepwell.cli.mcp import mcp
from stepwell.cli.nodes import nodes
from stepwell.cli.proposals import proposals, propose
from stepwell.cli.running import resume, run
from stepwell.cli.runs import runs
from stepwell.cli.schedules import schedules
from stepwell.cli.secrets import secrets
from stepwell.cli.serving import serve
from stepwell.cli.steps import steps
from stepwell.cli.stores import fork_store, migrate
from stepwell.cli.triggers import triggers
from stepwell.cli.users import users
from stepwell.cli.validating import import_, validate
from stepwell.cli.watching import watch
from stepwell.cli.workers import worker, workers

__all__ = ["GENERATED", "main"]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="stepwell")
def main() -> None:
    """Durable workflows: start runs, watch them, and run the workers that execute them.

    \b
    Try it:
      stepwell demo
      stepwell serve
      stepwell worker examples.onboarding
      stepwell runs start onboard-user '{"email": "a@b.c"}'
      stepwell runs list

    The store is --store, else the variable STEPWELL_STORE, else
    sqlite:///.stepwell/stepwell.db below the working directory. Unless --store says otherwise,
    commands go to a server in its place if STEPWELL_URL names one (with STEPWELL_TOKEN), or if
    `stepwell serve` runs in this folder and STEPWELL_STORE is not set. With --json every command
    writes one JSON document to standard output, errors too: {"error": {"code", "message"}},
    with "details" where there is more to say, such as the run's id.

    \b
    Exit codes:
      0   done
      10  input error: a bad value of an option, or no such run, step or definition
      20  usage error: an unknown command or option, or an argument missing
      40  execution failure: the run did not complete, or store or server cannot be used
      130 interrupted with Ctrl-C; a worker stops in order, with 0
    """


for command in (
    serve, run, resume, validate, import_, definitions, propose, proposals, triggers, schedules,
    events, worker, workers, runs, steps, secrets, users, nodes, mcp, migrate, fork_store, demo,
):  # fmt: skip
    main.add_command(command)
runs.add_command(watch)
# Every operation is reachable: those without a command of their own are given one.
GENERATED = add_generated(main, operations())

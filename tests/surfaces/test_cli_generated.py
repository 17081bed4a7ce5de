"""Every operation is a command: written by hand, or made from its declaration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import msgspec
import pytest
from click.testing import CliRunner

from stepwell.catalog import operations
from stepwell.cli import GENERATED, main
from stepwell.cli.generated import ELSEWHERE, add_generated, command_at, path_of
from stepwell.kernel.presenting import HIDDEN, is_hidden
from stepwell.operation import Operation, declared_in, operation
from tests.sdk.serving import Server, running
from tests.surfaces.support import Cli
from tests.surfaces.test_cli_server import GRAPH

# Those that are known to be made; a noun without a command of its own adds to them.
MADE = {
    "definitions.create", "definitions.layout", "definitions.revision", "definitions.set_layout",
    "definitions.sync",
    "gates.decide", "gates.get", "gates.list", "gates.token", "runs.counts", "runs.document",
    "steps.list", "triggers.doubts", "triggers.refusals",
}  # fmt: skip
EVERY = list(operations().values())


@pytest.mark.parametrize("found", EVERY, ids=[each.name for each in EVERY])
def test_every_operation_is_a_command(found: Operation) -> None:
    command = command_at(main, path_of(found))
    assert command is not None
    if found.name in GENERATED:
        names = {each.name for each in command.params}
        assert names == found.parameters.keys() | {"store", "as_json"}
        assert found.summary.split()[0] in (command.help or "")


def test_what_is_written_by_hand_is_not_made() -> None:
    assert set(GENERATED) >= MADE
    assert set(GENERATED) & ELSEWHERE.keys() == {"definitions.sync"}
    assert ELSEWHERE.keys() <= operations().keys(), "there is no such operation any more"


@pytest.fixture
def places(store_url: str, tmp_path: Path, anyio_backend: str) -> Iterator[tuple[Cli, Cli]]:
    """The command line on a server, and on the store of that server."""
    (tmp_path / "ask.yaml").write_text(GRAPH, "utf-8")
    with running(store_url) as server:
        yield at_server(server, tmp_path, store_url), Cli(tmp_path, store_url)


def at_server(server: Server, folder: Path, store_url: str) -> Cli:
    there = Cli(folder, store_url)
    there.named = {
        "STEPWELL_STORE": None, "STEPWELL_URL": server.url, "STEPWELL_TOKEN": server.token,
    }  # fmt: skip
    return there


def test_what_is_made_works_on_a_store_and_on_a_server(places: tuple[Cli, Cli]) -> None:
    there, here = places
    waiting = there("run", str(there.folder / "ask.yaml")).document
    run_id, gate = waiting["run_id"], waiting["gates"][0]["id"]
    there.ok("definitions", "publish", str(there.folder / "ask.yaml"))
    there.ok("triggers", "create", "ask-first", "manual")
    trigger = "ask-first/manual"
    for words in (
        ("gates", "list"),
        ("gates", "list", "--run-id", run_id),
        ("gates", "get", gate),
        ("runs", "counts"),
        ("runs", "document", run_id),
        ("steps", "list", run_id),
        ("triggers", "refusals", trigger, "--limit", "5"),
        ("triggers", "doubts", trigger),
        ("definitions", "revision", "ask-first", "1.0.0"),
        ("definitions", "layout", "ask-first"),
    ):
        assert there.ok(*words) == here.ok(*words), words
        assert there(*words).stdout == here(*words).stdout, words
    layout = there.ok("definitions", "set-layout", "ask-first", "--layout", '{"nodes": {}}')
    assert here.ok("definitions", "layout", "ask-first") == layout
    stale = there("definitions", "set-layout", "ask-first", "--layout", "[]", "--if-match", "x")
    assert (stale.exit_code, "conflict" in stale.stderr) == (10, True)
    assert there.ok("definitions", "create", "--name", "new", "--enabled")["enabled"]
    assert len(here.ok("gates", "token", gate)["token"]) > 20
    decided = there("gates", "decide", gate, "--decision", "approve", "--note", "fine")
    assert "approved" in decided.stdout
    closed = here("gates", "decide", gate, "--decision", "deny", "--json")
    assert closed.document["error"]["code"] == "gate_closed"


def test_people_are_shown_lines_and_tables(places: tuple[Cli, Cli]) -> None:
    there, _ = places
    assert there("runs", "counts").stdout == "None.\n"
    run_id = there.ok("runs", "start", "greet", "--wait")["id"]
    heads, row = there("steps", "list", run_id).stdout.splitlines()
    assert heads.split()[:3] == ["key", "kind", "status"]
    assert row.split()[:3] == ["greet", "step", "completed"]
    there.ok("definitions", "create", "--name", "new")
    lines = there("definitions", "layout", "new").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["layout", "etag"]


# -- declarations of all kinds -----------------------------------------------------------


class Everything:
    """A noun with an operation that takes everything."""

    noun = "things"

    @operation("PUT /things/{thing}", needs="run", example={"words": "a b", "object": {"a": 1}})
    async def change(
        self, thing: str, count: Annotated[int, msgspec.Meta(description="How many.", ge=1)],
        words: str = "", *, kind: Literal["a", "b"] = "a", tags: list[str] | None = None,
        object: Any = None, quiet: bool = False, sure: bool | None = None,
        password: Annotated[str | None, HIDDEN] = None,
    ) -> None:  # fmt: skip
        """Change a thing."""


def made() -> click.Group:
    group = click.Group("stepwell")
    declared: Any = Everything
    add_generated(group, {each.name: each for each in declared_in(declared)})
    return group


def test_a_command_says_what_its_operation_takes() -> None:
    said = CliRunner().invoke(made(), ["things", "change", "--help"]).output
    for line in (
        "change [OPTIONS] THING", "Change a thing.", "--count INTEGER", "How many.  [required]",
        "--kind [a|b]", "--tags TEXT", "--object JSON", "--sure / --no-sure",
        "stepwell things change THING --words 'a b' --object '{\"a\":1}'",
    ):  # fmt: skip
        assert line in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("x", "--count", "0"), "count is not what is asked for"),
        (("x", "--count", "1", "--object", "{"), "--object is not JSON"),
        (("x", "--count", "1", "--password", "a secret"), "Others could see a secret"),
        (("x", "--count", "1", "--password", "-"), "and there is none left"),
        (("x", "--count", "1"), "things.change is for servers alone"),
    ],
)
def test_a_command_refuses_what_its_operation_would(
    lite: Cli, words: tuple[str, ...], why: str
) -> None:
    result = CliRunner(env=lite.named).invoke(made(), ["things", "change", *words])
    assert why in str(result.exception)


def test_secrets_are_read_in_the_order_of_the_help_and_never_among_the_words(lite: Cli) -> None:
    made = lite.ok("users", "create", "--name", "ada", "--role", "owner", "--password", "-",
                   stdin="correct horse battery\n")  # fmt: skip
    assert made["user"]["has_password"] is True
    said = lite("users", "set-password", "ada", "--password", "incorrect horse battery")
    assert said.exit_code != 0
    lite.ok("users", "set-password", "ada", "--current", "-", stdin="a new long password\nunused\n")
    for each in EVERY:
        hidden = [name for name, found in each.parameters.items() if is_hidden(found.type)]
        command = command_at(main, path_of(each))
        assert command is not None
        for name in hidden:
            value = str(each.example.get(name, "\0"))
            assert value not in (command.help or ""), (each.name, name)

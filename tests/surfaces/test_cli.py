"""The command line: what it prints, what its JSON looks like, how it exits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import click
import pytest
from click.testing import CliRunner

from stepwell import Stepwell
from stepwell.catalog import store_for
from stepwell.cli import main
from stepwell.kernel.clock import SECOND, SystemClock
from stepwell.sdk.workflow import workflow
from stepwell.store import WorkerRow
from stepwell.testing.clock import FakeClock
from tests.conftest import WITHOUT_TABLES
from tests.engine.support import until
from tests.surfaces.support import Cli

MISSING = "0" * 26


@workflow(name="greet")
async def greet(ctx: Any, input: Any) -> Any:
    return await ctx.step("greet", lambda: "hello")


@workflow(name="break")
async def break_down(ctx: Any, input: Any) -> Any:
    await ctx.step("fine", lambda: 1)
    raise ValueError("broken on purpose")


@workflow(name="ask")
async def ask(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("answer")


ALL = [greet, break_down, ask]


def seed(cli: Cli, *starts: Any, work: bool = False) -> list[str]:
    """Runs in the store, older ones first; with `work`, as far as a worker gets with them."""

    async def fill() -> list[str]:
        async with Stepwell(cli.store, ALL) as stepwell:
            handles = await stepwell.start_many(starts)
            if work:
                async with stepwell.worker():
                    for handle in handles:
                        await until(stepwell, handle.id, "waiting", "completed", "failed")
            return [handle.id for handle in handles]

    return asyncio.run(fill())


# -- help --------------------------------------------------------------------------------


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


@pytest.mark.parametrize("path", list(commands(main)), ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"stepwell {' '.join(path)}" in result.output
    assert "--json" in result.output or "Commands:" in result.output


def test_the_help_lists_the_exit_codes() -> None:
    result = CliRunner().invoke(main, ["--help"])
    for code in ("0", "10", "20", "40", "130"):
        assert f"\n    {code} " in result.output


# -- exit codes --------------------------------------------------------------------------

INPUT_ERRORS = [
    (("runs", "show", MISSING), "run_not_found"),
    (("runs", "explain", MISSING), "run_not_found"),
    (("runs", "watch", MISSING), "run_not_found"),
    (("runs", "cancel", MISSING), "run_not_found"),
    (("runs", "retry", MISSING), "run_not_found"),
    (("runs", "signal", MISSING, "x"), "run_not_found"),
    (("runs", "fork", MISSING, "--from-step", "x"), "run_not_found"),
    (("runs", "start", "nobody-knows"), "unknown_definition"),
    (("runs", "start", ""), "invalid_name"),
    (("runs", "start", "greet", "{"), "invalid_input"),
    (("runs", "start", "greet", "--delay", "soon"), "invalid_duration"),
    (("runs", "start", "greet", "--deadline", "soon"), "invalid_duration"),
    (("runs", "start", "greet", "--ttl", "-5"), "invalid_duration"),
    (("runs", "start", "greet", "--concurrency-limit", "0"), "invalid_input"),
    (("runs", "start", "greet", "--version", "0"), "invalid_input"),
    (("runs", "list", "--status", "sideways"), "invalid_input"),
    (("runs", "list", "--since", "whenever"), "invalid_input"),
    (("runs", "list", "--since", "nan"), "invalid_input"),
    (("runs", "list", "--limit", "0"), "invalid_input"),
    (("runs", "list", "--limit", "many"), "invalid_input"),
    (("runs", "start", "greet", "--priority", "high"), "invalid_input"),
    (("runs", "start", "greet", "--concurrency-limit", "3"), "invalid_input"),
    (("runs", "start", "greet", "--wait", "--timeout", "soon"), "invalid_duration"),
    (("runs", "list", "--cursor", "é"), "invalid_cursor"),
    (("runs", "list", "--input", "novalue"), "invalid_input"),
    (("runs", "list", "--input", "a=1", "--input", "a.b=1"), "invalid_input"),
    (("runs", "list", "--input", "a.b=1", "--input", "a=1"), "invalid_input"),
    (("runs", "list", "--input", "a=" + "[" * 3000), "invalid_input"),
    (("runs", "start", "greet", "[" * 3000), "invalid_input"),
    (("runs", "show", "\udcff"), "invalid_input"),
    (("runs", "list", "--store", "mysql://host/db"), "store_url_invalid"),
    (("runs", "list", "--store", ""), "store_url_invalid"),
    (("runs", "list", "--store", "sqlite:///x.db?mode=ro"), "store_url_invalid"),
    (("runs", "list", "--store", "postgresql://localhost:99999/d"), "store_url_invalid"),
    (("migrate", "--store", "postgresql://u:se#cret@h/d"), "store_url_invalid"),
    (("fork-store", "postgresql://u:se[cret@h/d", "postgresql://h/d"), "store_url_invalid"),
    (("fork-store", "sqlite:///a.db", "postgresql://host/b"), "fork_refused"),
    (("fork-store", "sqlite:///a.db", "b.db"), "store_url_invalid"),
]


@pytest.mark.parametrize(("words", "code"), INPUT_ERRORS, ids=lambda value: str(value)[:60])
def test_an_input_error_exits_with_10(lite: Cli, words: tuple[str, ...], code: str) -> None:
    seed(lite)
    result = lite(*words, "--json")
    assert result.exit_code == 10
    error = result.document["error"]
    assert error["code"] == code
    assert error["message"]
    assert "cret" not in error["message"]
    plain = lite(*words)
    assert plain.exit_code == 10
    assert plain.stdout == ""
    assert f"Error ({code}): " in plain.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("frobnicate",),
        ("runs", "frobnicate"),
        ("runs", "list", "--frobnicate"),
        ("runs", "show"),
        ("runs", "start", "greet", "1", "--input", "2"),
        ("runs", "start", "greet", "--timeout", "5s"),
        ("runs", "fork", MISSING),
        ("fork-store", "sqlite:///a.db"),
    ],
    ids=" ".join,
)
def test_a_usage_error_exits_with_20(lite: Cli, words: tuple[str, ...]) -> None:
    assert lite(*words).exit_code == 20
    result = lite(*words, "--json")
    assert result.exit_code == 20
    assert set(result.document["error"]) == {"code", "message"}


@pytest.mark.parametrize(
    "store", ["sqlite:////dev/null/x.db", "sqlite:////dev", "postgresql://127.0.0.1:1/x"]
)
def test_a_store_that_cannot_be_reached_exits_with_40(lite: Cli, store: str) -> None:
    result = lite("runs", "list", "--store", store, "--json")
    assert result.exit_code == 40
    assert result.document["error"]["code"] in ("store_unavailable", "os_error")


def test_a_file_that_is_no_store_exits_with_40(lite: Cli) -> None:
    (lite.folder / "stepwell.db").write_text("hello " * 1000, "utf-8")
    result = lite("runs", "list", "--json")
    assert result.exit_code == 40
    assert result.document["error"]["code"] == "store_unavailable"


# -- the store ---------------------------------------------------------------------------


def test_the_default_store_is_a_file_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPWELL_STORE", raising=False)
    assert CliRunner().invoke(main, ["runs", "list"]).exit_code == 0
    assert (tmp_path / ".stepwell" / "stepwell.db").is_file()


def test_the_option_goes_before_the_environment(lite: Cli) -> None:
    [run_id] = seed(lite, {"definition": "greet"})
    assert lite.ok("runs", "list")["items"][0]["id"] == run_id
    other = f"sqlite:///{lite.folder}/other.db"
    assert lite.ok("runs", "list", "--store", other)["items"] == []


@pytest.mark.parametrize("store_url", WITHOUT_TABLES, indirect=True)
def test_migrate_fills_an_empty_store_and_is_done_the_second_time(cli: Cli) -> None:
    assert cli.ok("migrate")["applied"]
    assert cli.ok("migrate")["applied"] == []
    assert "up to date" in cli("migrate").stdout


def test_a_store_of_a_newer_stepwell_exits_with_40(lite: Cli) -> None:
    lite.ok("migrate")
    db = apsw.Connection(str(lite.folder / "stepwell.db"))
    db.execute("INSERT INTO stepwell_migrations VALUES (9999, 'from_the_future')")
    db.close()
    for words in (("runs", "list"), ("migrate",)):
        done = lite(*words, "--json")
        assert done.exit_code == 40
        assert done.document["error"]["code"] == "schema_too_new"


# -- looking -----------------------------------------------------------------------------


def test_a_list_shows_runs_newest_first_and_goes_on_with_a_cursor(cli: Cli) -> None:
    ids = seed(cli, *({"definition": "greet", "input": {"n": n}} for n in range(5)))
    first = cli.ok("runs", "list", "--limit", "3")
    assert set(first) == {"health", "items", "next_cursor"}
    rest = cli.ok("runs", "list", "--limit", "3", "--cursor", first["next_cursor"])
    found = [run["id"] for run in first["items"] + rest["items"]]
    assert found == ids[::-1]
    assert rest["next_cursor"] is None
    text = cli("runs", "list", "--limit", "3").stdout
    assert f"--cursor {first['next_cursor']}" in text
    assert '{"n":4}' in text


def test_a_list_can_be_filtered(cli: Cli) -> None:
    one, two, three = seed(
        cli,
        {"definition": "greet", "input": {"user": {"id": 1, "name": "ada"}}},
        {"definition": "break", "input": {"user": {"id": 2}}},
        {"definition": "ask", "input": {"user": {"id": 2}}},
        work=True,
    )

    def found(*options: str) -> list[str]:
        return [run["id"] for run in cli.ok("runs", "list", *options)["items"]]

    assert found("--status", "completed") == [one]
    assert found("--status", "failed", "--status", "waiting") == [three, two]
    assert found("--definition", "break") == [two]
    assert found("--input", "user.id=2") == [three, two]
    assert found("--input", "user.id=2", "--definition", "ask") == [three]
    assert found("--input", "user.name=ada") == [one]
    assert found("--since", "1h") == [three, two, one]
    assert found("--until", "1h") == []
    assert found("--since", "2020-01-01T00:00:00Z", "--until", "2021-01-01") == []


def test_a_run_is_shown_with_its_steps_and_why_it_is_where_it_is(cli: Cli) -> None:
    [broken] = seed(cli, {"definition": "break", "idempotency_key": "k"}, work=True)
    shown = cli.ok("runs", "show", broken)
    assert set(shown) == {"run", "steps", "explanation"}
    assert shown["run"]["error"]["message"] == "broken on purpose"
    [step] = shown["steps"]
    assert (step["key"], step["status"], step["attempts"], step["output"]) == (
        "fine", "completed", 1, 1,
    )  # fmt: skip
    assert step["started_at"] <= step["completed_at"]
    assert shown["explanation"]["code"] == "failed"
    text = cli("runs", "show", broken).stdout
    for part in (f"Run {broken}: break v1, failed", "broken on purpose", "fine", "k"):
        assert part in text
    assert cli.ok("runs", "explain", broken)["code"] == "failed"
    assert cli("runs", "explain", broken).stdout.startswith("failed: ")


# -- health ------------------------------------------------------------------------------


def past(seconds: float) -> FakeClock:
    return FakeClock(SystemClock().now() - int(seconds * SECOND))


def warnings(cli: Cli, *words: str) -> list[str]:
    return [warning["code"] for warning in cli.ok(*words)["health"]["warnings"]]


def test_runs_by_itself_lists_them(cli: Cli) -> None:
    assert cli("runs").stdout == cli("runs", "list").stdout
    assert cli("runs").stdout.startswith("0 workers alive")
    assert cli.ok("runs") == cli.ok("runs", "list")


def test_the_options_of_runs_are_those_of_its_commands(lite: Cli) -> None:
    [run_id] = seed(lite, {"definition": "greet"})
    other = f"sqlite:///{lite.folder}/other.db"
    assert lite.ok("runs", "--store", other)["items"] == []
    assert lite("runs", "--json", "show", run_id).document["run"]["id"] == run_id
    assert lite("runs", "--store", other, "show", run_id).exit_code == 10
    assert lite.ok("runs", "--store", other, "show", run_id, "--store", lite.store)


@pytest.mark.parametrize("words", [("runs", "list"), ("workers",)], ids=" ".join)
def test_lists_lead_with_a_warning_when_no_worker_is_alive(
    cli: Cli, words: tuple[str, ...]
) -> None:
    lines = cli(*words).stdout.splitlines()
    assert lines[0] == "0 workers alive, none has reported."
    assert lines[1].startswith("Warning: No worker is alive.")
    health = cli.ok(*words)["health"]
    assert (health["alive"], health["last_heartbeat_seconds"]) == (0, None)
    assert warnings(cli, *words) == ["no_worker"]


def test_a_run_that_nobody_claims_is_warned_of(cli: Cli) -> None:
    async def forget(seconds: float) -> str:
        store = store_for(cli.store, past(seconds))
        async with Stepwell(workflows=[greet], store=store) as stepwell:
            return (await stepwell.start("greet")).id

    asyncio.run(forget(3))
    assert "unclaimed_runs" not in warnings(cli, "runs", "list")
    forgotten = asyncio.run(forget(60))
    assert "unclaimed_runs" in warnings(cli, "runs", "list")
    health = cli.ok("workers")["health"]
    assert (health["unclaimed"], health["oldest_unclaimed"]) == (1, forgotten)
    assert f"stepwell runs explain {forgotten}" in cli("runs", "list").stdout


def test_a_sleeping_run_is_no_reason_to_warn(cli: Cli) -> None:
    async def put_off() -> None:
        store = store_for(cli.store, past(60))
        async with Stepwell(workflows=[greet], store=store) as stepwell:
            await stepwell.start("greet", delay="1h")

    asyncio.run(put_off())
    assert warnings(cli, "runs", "list") == ["no_worker"]


@pytest.mark.parametrize(("age", "expected"), [(60, []), (120, ["old_heartbeat"])])
def test_an_old_heartbeat_is_warned_of(cli: Cli, age: int, expected: list[str]) -> None:
    async def enlist() -> None:
        clock = past(age)
        store = store_for(cli.store, clock)
        await store.open()
        await store.enlist(
            WorkerRow("w-1", "default", "host/boot", 1, "1", 7, ["code:x@1"], clock.now(), 3600)
        )
        await store.close()

    asyncio.run(enlist())
    assert warnings(cli, "workers") == expected
    [worker] = cli.ok("workers")["items"]
    assert (worker["id"], worker["alive"], worker["concurrency"]) == ("w-1", True, 7)
    assert cli("runs", "list").stdout.startswith("1 worker alive, last heartbeat ")
    assert "x@1" in cli("workers").stdout


# -- streams -----------------------------------------------------------------------------


def test_an_error_is_told_elsewhere_when_standard_output_is_full(lite: Cli) -> None:
    for line in ("runs list > /dev/full", "runs list --json > /dev/full"):
        done = lite.shell(line)
        assert (done.exit_code, "os_error" in done.stderr) == (40, True), done.stderr


def test_an_input_from_a_closed_standard_input_is_refused(lite: Cli) -> None:
    done = lite.shell("runs start greet --input - <&-")
    assert done.exit_code == 10
    assert "standard input" in done.stderr

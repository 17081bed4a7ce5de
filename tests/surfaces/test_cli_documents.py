"""What the documents show works: the demo, the examples, the README."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from stepwell import settings
from stepwell.cli import main
from tests.surfaces.support import PATIENCE_SECONDS, Cli

REPOSITORY = Path(__file__).parent.parent.parent
README = (REPOSITORY / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def python(*words: str, folder: Path, store: str | None = None) -> str:
    """What a Python process prints; it must succeed, without warnings."""
    environ = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False,
        env=environ if store is None else {**environ, "STEPWELL_STORE": store},
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_demo_kills_a_worker_and_keeps_every_promise(lite: Cli) -> None:
    done = lite.process("demo", "--json")
    assert done.exit_code == 0, done.stdout + done.stderr
    report = done.document
    assert report["held"] is True
    assert report["promises"]
    assert all(report["promises"].values())
    assert report["executions"] == {"reserve-stock": 1, "charge-card": 2, "send-receipt": 1}
    assert report["recorded_before_the_kill"][0] == "reserve-stock"
    assert report["status"] == "completed"
    assert report["seconds"] < 20


def test_the_demo_tells_what_it_does(lite: Cli) -> None:
    done = lite.process("demo")
    assert done.exit_code == 0
    for part in ("Started run", "SIGKILL", "completed", "held: "):
        assert part in done.stdout
    assert "BROKEN" not in done.stdout


def test_the_command_line_loads_no_store_before_it_needs_one(tmp_path: Path) -> None:
    code = "import sys, stepwell.cli; print({'apsw', 'asyncpg'} & sys.modules.keys())"
    assert python("-c", code, folder=tmp_path) == "set()\n"


EXAMPLES = {
    "onboarding": "{'id': 42, 'verified': True}",
    "payment": "quote: completed after 3 attempt(s)",
    "fan_out": "{'steps': 18, 'children': 18}",
    "approval": "approved by grace",
}


def test_every_example_has_a_test() -> None:
    names = {path.stem for path in (REPOSITORY / "examples").glob("*.py")}
    # Of scoring.py the definition mixed-python.yaml makes use; the server has tests of its own.
    assert names - {"__init__", "scoring", "webhook_server"} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(cli: Cli, name: str) -> None:
    said = python("-m", f"examples.{name}", folder=REPOSITORY, store=cli.store)
    assert EXAMPLES[name] in said
    [run, *_] = cli.ok("runs", "list")["items"]
    assert run["status"] == "completed"


def test_the_example_of_the_readme_runs_as_it_stands_and_again(tmp_path: Path) -> None:
    [example] = blocks("python")
    assert sum(1 for line in example.splitlines() if line.strip()) == 15
    (tmp_path / "example.py").write_text(example, "utf-8")
    for _ in range(2):
        assert python("example.py", folder=tmp_path) == "{'id': 42, 'verified': True}\n"


def documented_commands() -> list[list[str]]:
    lines = re.findall(r"(?:^|\$\(|\| )stepwell ([^)\n]+)", "\n".join(blocks("sh")), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("words", documented_commands(), ids=" ".join)
def test_a_command_of_the_readme_is_one_that_there_is(words: list[str]) -> None:
    context = click.Context(main)
    command: click.Command = main
    while isinstance(command, click.Group):
        _, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
    command.make_context("stepwell", words)  # raises for whatever it does not know


def test_the_tour_of_the_readme_can_be_typed_from_top_to_bottom(tmp_path: Path) -> None:
    [worker], [tour] = (
        [block for block in blocks("sh") if re.search(rf"^{begin}", block)]
        for begin in ("stepwell worker ", r"RUN=")
    )
    environ = {name: value for name, value in os.environ.items() if name != "STEPWELL_STORE"}
    environ["PYTHONPATH"] = str(REPOSITORY)  # for the examples; the store is made in tmp_path
    head = f'stepwell() {{ "{sys.executable}" -m stepwell.cli "$@"; }}\n'
    command = [sys.executable, "-m", "stepwell.cli", *shlex.split(worker)[1:], "--json"]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", head + tour], cwd=tmp_path, env=environ,
                capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
            )  # fmt: skip
        finally:
            process.terminate()
    assert done.returncode == 0, done.stderr
    for part in ('{"id":42,"verified":true}', "Sent.", "Cancelled.", '{"steps":8,"children":8}'):
        assert part in done.stdout
    assert "Warning" not in done.stdout + done.stderr
    assert (tmp_path / "copy.db").is_file()


def test_the_readme_has_every_exit_code_and_every_setting() -> None:
    for code in (0, 10, 20, 40, 130):
        assert f"\n| {code} | " in README
    assert settings.__file__ is not None
    for variable in re.findall(r"STEPWELL_\w+", Path(settings.__file__).read_text("utf-8")):
        assert f"`{variable}`" in README


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/glossary.md"])
def test_links_between_documents_lead_somewhere(document: str) -> None:
    path = REPOSITORY / document
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text("utf-8")):
        generated = target == "docs/benchmarks.md"
        assert generated or (path.parent / target).exists(), target

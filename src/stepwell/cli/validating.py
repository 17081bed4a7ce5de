"""`stepwell validate` says what is wrong with a definition; `stepwell import` converts others."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from stepwell.cli.arguments import as_json
from stepwell.cli.documents import as_yaml, load, problem_lines, say_problems
from stepwell.cli.exits import INPUT_ERROR
from stepwell.cli.output import count, emit
from stepwell.graph.importing import OWN


@click.command()
@click.argument("file", metavar="FILE")
@as_json
def validate(file: str, as_json: bool) -> int:
    """Check a definition: every problem at once, each with its place, a code and a hint.

    FILE is YAML or JSON, or something that `stepwell import` understands; - is standard input.
    Warnings are no errors: the exit code is 0 without errors, else 10.

    \b
    Examples:
      stepwell validate nightly.yaml
      stepwell validate nightly.yaml --json
    """
    document = load(file)
    if as_json:
        emit({"ok": document.ok, "problems": msgspec.to_builtins(document.problems)})
    else:
        for line in problem_lines(document.problems):
            click.echo(line)
        errors = sum(each.severity == "error" for each in document.problems)
        warnings = len(document.problems) - errors
        said = f"{count(errors, 'error')}, {count(warnings, 'warning')}"
        click.echo(f"{file}: {'ok' if document.ok else 'not ok'}, {said}.")
    return 0 if document.ok else INPUT_ERROR


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--output", "-o", metavar="FILE", help="Write there instead of standard output.")
@as_json
def import_(file: str, output: str | None, as_json: bool) -> int:
    """Convert a definition from another language to YAML, and say what was lost.

    Step lists, reference steps, recipes and formulas (TOML) are told apart by their looks. The
    definition goes to standard output, what could not be carried over to standard error.

    \b
    Examples:
      stepwell import examples/dialects/shiny.formula.toml > shiny.yaml
      stepwell import flow.json -o flow.yaml
    """
    document = load(file)
    if document.document is None:
        say_problems(document.problems)
        if as_json:
            emit({"ok": False, "problems": msgspec.to_builtins(document.problems)})
        return INPUT_ERROR
    text = as_yaml(document.document)
    if output is not None:
        Path(output).write_text(text, "utf-8")
    if as_json:
        emit(
            {
                "ok": document.ok,
                "dialect": document.dialect,
                "document": document.document,
                "losses": document.losses,
                "problems": msgspec.to_builtins(document.problems),
            }
        )
    elif output is None:
        click.echo(text, nl=False)
    if document.dialect == OWN:
        click.echo(f"{file} is a definition of Stepwell's own already.", err=True)
    else:
        click.echo(f"{file}: {document.dialect}, {_losses(len(document.losses))}.", err=True)
    for loss in document.losses:
        click.echo(f"lost: {loss.path}: {loss.message}", err=True)
    say_problems([each for each in document.problems if each.code != "lost"])
    return INPUT_ERROR if any(loss.severity == "error" for loss in document.losses) else 0


def _losses(number: int) -> str:
    return "nothing was lost" if number == 0 else f"{number} {'loss' if number == 1 else 'losses'}"

"""Files with definitions, in whichever language they are written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import yaml

from stepwell.catalog import node_types
from stepwell.cli.output import emit
from stepwell.cli.triggertext import upcoming_lines
from stepwell.errors import InvalidDefinition, InvalidInput
from stepwell.graph.documents import Checked, checked
from stepwell.graph.problems import Problem
from stepwell.graph.reading import MAX_CHARACTERS
from stepwell.kernel.clock import SystemClock
from stepwell.kernel.names import show
from stepwell.kernel.presenting import present

ENDINGS = (".yaml", ".yml", ".json")


def load(path: str, otherwise: str = "") -> Checked:
    """Read and check a file; `-` is standard input.

    `otherwise` says what can be done about a name that is none of a file.
    """
    try:
        text = text_of(path, otherwise)
    except InvalidDefinition:
        raise
    except InvalidInput as error:  # not even text
        return _unreadable(error.message)
    folder = Path(path).parent

    def beside(name: str) -> str | None:
        """A formula's parents are files beside it, and nowhere else."""
        if Path(name).name != name or path == "-":
            return None
        try:
            return _text(str(folder / name))
        except (OSError, UnicodeDecodeError):
            return None

    try:
        return checked(text, node_types(), load=beside, now=SystemClock().now())
    except InvalidInput as error:  # too long
        return _unreadable(error.message)


def text_of(path: str, otherwise: str = "") -> str:
    """The text of a file; `-` is standard input."""
    try:
        return _text(path)
    except OSError as error:
        why = error.strerror or str(error)
        no_file = isinstance(error, FileNotFoundError) and "." not in path
        hint = otherwise if no_file else ""
        raise InvalidDefinition(f"{path} cannot be read: {why}.{hint}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{show(path)} is not text in UTF-8: byte {error.start} is none of it."
        ) from None


def _unreadable(message: str) -> Checked:
    return Checked(None, None, None, [Problem("", "unreadable", message)], ok=False)


def sibling(path: str, name: str) -> Checked | None:
    """The definition of that name beside a file, if there is one."""
    if path == "-" or not name.replace("-", "").isalnum():
        return None
    for ending in ENDINGS:
        beside = Path(path).with_name(name + ending)
        if beside.is_file():
            return load(str(beside))
    return None


def _text(path: str) -> str:
    """The text of a file, no more of it than is needed to see that it is too long."""
    most = 4 * MAX_CHARACTERS + 1  # a character has at most four bytes
    if path == "-":
        raw = sys.stdin.buffer.read(most)
    else:
        with Path(path).open("rb") as file:
            raw = file.read(most)
    return raw.decode("utf-8-sig")


def as_yaml(document: Any) -> str:
    """A document as people write it."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such, and never an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text_of(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text and not text.startswith((" ", "\n")) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_of)


def problem_lines(problems: list[Problem]) -> list[str]:
    """Problems for people: where, what, and what to do."""
    lines = []
    for each in problems:
        where = f"line {each.line}: " if each.line is not None else ""
        place = f"{each.path}: " if each.path else ""
        lines.append(f"{each.severity}: {where}{place}{each.message} [{each.code}]")
        if each.hint:
            lines.append(f"    {each.hint}")
    return lines


def say_problems(problems: list[Problem]) -> None:
    for line in problem_lines(problems):
        click.echo(line, err=True)


def say_published(result: Any, as_json: bool) -> None:
    """Which revision is current now, and when its schedules fire next."""
    revision = result.revision
    if as_json:
        emit(present(result))
    elif result.created:
        click.echo(f"{revision.definition} {revision.version} ({revision.hash[:12]}) is current.")
    else:
        click.echo(
            f"{revision.definition} {revision.version} ({revision.hash[:12]}) was current already."
        )
    if not as_json:
        for line in upcoming_lines(result.schedules):
            click.echo(line)

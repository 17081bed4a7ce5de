"""From a document to a definition that is known to be right, with everything that is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from stepwell.errors import InvalidDefinition
from stepwell.graph.check import CheckedKind, check
from stepwell.graph.definition import Definition
from stepwell.graph.hash import hash_of
from stepwell.graph.parse import Aliases, parse
from stepwell.graph.plan import Plan
from stepwell.graph.problems import Problem, Problems

MOST_SHOWN = 5


class Types(Protocol):
    """The node types that documents may name."""

    @property
    def by_name(self) -> Mapping[str, CheckedKind]: ...

    @property
    def aliases(self) -> Aliases: ...


class Checked(msgspec.Struct):
    """A definition in which nothing is wrong that matters."""

    definition: Definition
    plan: Plan
    hash: str


def checked(document: Any, types: Types, problems: Problems) -> Checked | None:
    """Read and check a document; None, and problems, if something is wrong with it."""
    definition = parse(document, types.aliases, problems)
    if definition is None:
        return None
    plan = check(definition, types.by_name, problems)
    return None if plan is None else Checked(definition, plan, hash_of(definition))


def refused(problems: Problems) -> InvalidDefinition:
    """The error that says what is wrong."""
    errors = [each for each in problems.found if each.severity == "error"]
    shown = "; ".join(
        f"{each.path}: {each.message}" if each.path else each.message
        for each in errors[:MOST_SHOWN]
    )
    count = len(errors) + problems.unlisted
    more = f" And {count - MOST_SHOWN} more." if count > MOST_SHOWN else ""
    return InvalidDefinition(
        f"The definition has {count} problem{'' if count == 1 else 's'}. {shown}{more}",
        problems=msgspec.to_builtins(problems.found),
    )


def located(found: list[Problem], lines: Mapping[str, int]) -> list[Problem]:
    """The problems with the lines on which they, or what is around them, begin."""
    return [
        each if each.line is not None else msgspec.structs.replace(each, line=_line(each, lines))
        for each in found
    ]


def _line(problem: Problem, lines: Mapping[str, int]) -> int | None:
    path = problem.path
    while path:
        if path in lines:
            return lines[path]
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return lines.get("")

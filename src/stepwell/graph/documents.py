"""Documents as callers give them: plain data, or text in any language that can be read."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import msgspec

from stepwell.errors import InputTooLarge, InvalidDefinition, InvalidInput
from stepwell.graph.check import CheckedKind, check
from stepwell.graph.definition import Definition
from stepwell.graph.dialects.conversion import Load, Loss
from stepwell.graph.hash import hash_of
from stepwell.graph.importing import OWN, import_text
from stepwell.graph.parse import Aliases, parse
from stepwell.graph.plan import Plan
from stepwell.graph.problems import Problem, Problems
from stepwell.graph.reading import MAX_CHARACTERS, read
from stepwell.graph.schemas import check_work
from stepwell.graph.triggers import TriggerKind, check_triggers
from stepwell.kernel.codec import encode


class Types(Protocol):
    """The types of nodes and triggers that documents may name."""

    @property
    def by_name(self) -> Mapping[str, CheckedKind]: ...

    @property
    def aliases(self) -> Aliases: ...

    @property
    def triggers(self) -> Mapping[str, TriggerKind]: ...


class Checked(msgspec.Struct, frozen=True):
    """What a document says, and everything that is wrong with it."""

    # Plain data in the language of this system; None if the document cannot be read.
    document: Any
    definition: Definition | None
    # None if something is wrong.
    plan: Plan | None
    problems: list[Problem]
    ok: bool
    # The language it was written in, and what could not be carried over from that.
    dialect: str = OWN
    losses: list[Loss] = []

    @property
    def hash(self) -> str:
        return "" if self.definition is None else hash_of(self.definition)

    @property
    def text(self) -> str:
        return encode(self.document, "The document", MAX_CHARACTERS)


def _no_sibling(_: str) -> None:
    """Nothing is beside a document that is in no file."""


def checked(
    document: Any, types: Types, name: str | None = None, load: Load = _no_sibling,
    secrets: Collection[str] | None = None, now: int | None = None,
) -> Checked:  # fmt: skip
    """Find everything that is wrong with a document, which is to be called `name`.

    `load` brings the text of files beside it, `secrets` are the names of those there are, `now` is
    the time.
    """
    problems = Problems()
    plan = None
    imported = import_text(as_text(document), load, problems)
    if imported is None:
        return Checked(None, None, None, problems.found, ok=False)
    definition = parse(imported.document, types.aliases, problems)
    if definition is not None:
        if name is not None and definition.name not in ("", name):
            problems.error(
                "name", "other_name", f"This is a definition called {definition.name!r}.",
                f"Write {name!r}: a definition keeps its name.",
            )  # fmt: skip
        plan = check(definition, types.by_name, problems, secrets)
        # Not a part of `check`: what was accepted once goes on, and its inputs are refused alone.
        check_work(definition.inputs, problems)
        check_triggers(definition, types.triggers, problems, secrets, now)
    found = [_with_line(each, imported.lines) for each in problems.found]
    found += [
        Problem(loss.path, "lost", loss.message, severity=loss.severity) for loss in imported.losses
    ]
    ok = problems.ok and all(loss.severity == "warning" for loss in imported.losses)
    found.sort(key=lambda each: each.line or 0)
    if problems.unlisted:
        more = f"There are {problems.unlisted:,} more problems."
        found.append(Problem("", "more_problems", more, severity="warning"))
    return Checked(
        imported.document, definition, plan if ok else None, found, ok,
        imported.dialect, imported.losses,
    )  # fmt: skip


def valid(found: Checked) -> Definition:
    """The definition, if nothing is wrong with it; raises InvalidDefinition."""
    if found.ok and found.definition is not None:
        return found.definition
    wrong = [each for each in found.problems if each.severity == "error"] or found.problems
    more = f" And {len(wrong) - 1} more." if len(wrong) > 1 else ""
    place = f"{wrong[0].path}: " if wrong[0].path else ""
    raise InvalidDefinition(
        f"The definition has problems. {place}{wrong[0].message}{more}",
        problems=plain(found.problems),
    )


def plain(problems: list[Problem]) -> list[dict[str, Any]]:
    """Problems as plain data."""
    found: list[dict[str, Any]] = msgspec.to_builtins(problems)
    return found


def as_text(document: Any) -> str:
    """What is kept of a document that may be wrong in any way: its text, or its data as JSON."""
    if not isinstance(document, str):
        return encode(document, "The document", MAX_CHARACTERS)
    if len(document) > MAX_CHARACTERS:
        raise InputTooLarge(
            f"The document has {len(document):,} characters; at most {MAX_CHARACTERS:,} are kept."
        )
    try:
        document.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"The document has what is no character: {error.reason}.") from None
    if "\0" in document:
        raise InvalidInput("The document has a character that texts cannot have: U+0000.")
    return document


def readable(text: str) -> Any:
    """What a text says as plain data; the text itself if it cannot be read."""
    found = read(text, Problems())
    return text if found is None else found.data


def etag_of(text: str) -> str:
    """A name for exactly this text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _with_line(problem: Problem, lines: Mapping[str, int]) -> Problem:
    """The problem with the line of what it is about, or of what that stands in."""
    path = problem.path
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    line = lines.get(path)
    return problem if line is None else msgspec.structs.replace(problem, line=line)

"""Statements that both stores understand, and what a store brings to execute them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from stepwell.errors import Overtaken
from stepwell.kernel.changes import Change, Committed
from stepwell.record import VersionRow


class Statement(NamedTuple):
    """A statement with `$1`, `$2` …; if it `must` change a row and does not, all is undone."""

    sql: str
    values: tuple[Any, ...]
    must: bool = False


class Statements(Protocol):
    """What a store brings."""

    async def fetch(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]: ...

    async def amend(
        self, statements: Sequence[Statement], *, changes: Sequence[Change] = (),
        workspace_id: str = "", version: VersionRow | None = None,
    ) -> Committed:  # fmt: skip
        """Execute all of it in one transaction; raises Overtaken if a statement must and cannot."""
        ...


def checked(statement: Statement, changed: int) -> None:
    """Raise if a statement that must has changed nothing."""
    if statement.must and changed == 0:
        raise overtaken()


def overtaken() -> Overtaken:
    """What is said when something was not, or was already, as it had to be."""
    return Overtaken("Somebody else was faster; look again.")


def as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

"""Statements that both stores understand, and what a store brings to execute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from stepwell.errors import Overtaken
from stepwell.kernel.changes import Change, Committed
from stepwell.record import VersionRow
from stepwell.stores.paces import Repaced


class Statement(NamedTuple):
    """A statement with `$1`, `$2` …; if it `must` change a row and does not, all is undone."""

    sql: str
    values: tuple[Any, ...]
    must: bool = False


def nothing_more(_: Committed) -> Sequence[Statement]:
    return ()


class Statements(Protocol):
    """What a store brings."""

    # The place after all events that are pending, and after which a trigger begins to listen in
    # the workspace $1.
    next_place: str

    async def fetch(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]: ...

    async def amend(
        self, statements: Sequence[Statement], *, changes: Sequence[Change] = (),
        then: Callable[[Committed], Sequence[Statement]] = nothing_more,
        workspace_id: str = "", version: VersionRow | None = None,
        paces: Sequence[Repaced] = (),
    ) -> Committed:  # fmt: skip
        """Execute all of it in one transaction; raises Overtaken if a statement must and cannot.

        `then` says what is to be executed once it is known what became of the changes.
        """
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

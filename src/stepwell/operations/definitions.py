"""Definitions that are data: made, looked at, edited, published, rolled back, synced, deleted.

A definition has at most one draft, which nobody checks, and a history of revisions, one of which
is current. Runs belong to the revision they were started with, whatever becomes current later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stepwell.errors import (
    Conflict,
    DefinitionExists,
    DraftNotFound,
    InvalidDefinition,
    InvalidInput,
    QuotaExceeded,
    RevisionNotFound,
    UnknownDefinition,
)
from stepwell.graph.definition import SLUG, slug_of
from stepwell.graph.diff import diff
from stepwell.graph.documents import Checked, as_text, etag_of, valid
from stepwell.kernel.codec import encode
from stepwell.kernel.names import show
from stepwell.kernel.records import DefinitionRecord, RevisionRecord
from stepwell.operation import TIDY_UP, DefinitionRef, Noun, operation
from stepwell.operations.arming import beyond_plan
from stepwell.operations.drafts import Drafts, labels
from stepwell.operations.revising import MAX_AUTHOR, check_flag, check_words
from stepwell.operations.syncing import Syncing
from stepwell.record import Amendment, HistoryRow, Validation

MAX_LAYOUT_BYTES = 1024 * 1024
# What a draft is called where a revision can be named.
DRAFT = "draft"


class Layout(msgspec.Struct, frozen=True):
    """Where an editor draws things; never part of a revision."""

    layout: Any
    etag: str


class Definitions(Drafts, Syncing, Noun):
    """The definitions of a workspace."""

    noun = "definitions"

    @operation(
        "POST /definitions", needs="build", status=201, caller={"author": "name"},
        raises=(DefinitionExists, QuotaExceeded), example={"name": "tidy-up"},
    )  # fmt: skip
    async def create(
        self, name: str, document: Any = None, *, author: str = "", enabled: bool = False
    ) -> DefinitionRecord:
        """Make a definition that has nothing but a draft."""
        _check_name(name)
        check_words(author, "author", MAX_AUTHOR)
        check_flag(enabled, "enabled")
        text = as_text({"name": name, "nodes": [], "edges": []} if document is None else document)

        async def attempt() -> DefinitionRecord:
            if await self._revising.head(name) is not None:
                raise DefinitionExists(f"There is a definition {name!r} already.", definition=name)
            await self._revising.refuse_code(name)
            await self._revising.refuse_one_more()
            head = self._revising.new(name, enabled)
            head = self._revising.changed(head, **labels(head, text))
            return await self._revising.amend(
                Amendment(head, draft=self._drafted(name, text, None, author))
            )

        return await self._revising.persist(attempt)

    # -- looking -------------------------------------------------------------------------

    @operation("GET /definitions/{name}", needs="read", raises=(UnknownDefinition,))
    async def get(self, name: DefinitionRef) -> DefinitionRecord:
        """The definition as it is now."""
        return await self._revising.find(name)

    @operation("GET /definitions", needs="read")
    async def list(self) -> Sequence[DefinitionRecord]:
        """All definitions by name, without their layouts."""
        return await self._workspace.store.records.definitions(self._workspace.id)

    @operation(
        "GET /definitions/{name}/document", needs="read", result="document",
        raises=(UnknownDefinition, RevisionNotFound, DraftNotFound, InvalidDefinition),
    )  # fmt: skip
    async def document(self, name: DefinitionRef, ref: str | int | None = None) -> Any:
        """A document as plain data: of the current revision, another one, or the "draft".

        A revision is named by its hash, six or more characters of that, its version or number.
        """
        if ref != DRAFT:
            revision = await self._revising.revision(name, ref)
            return await self._revising.document(revision.hash)
        found = await self._revising.check((await self._require_draft(name)).document, name)
        if found.document is None:
            valid(found)  # says what cannot be read
        return found.document

    @operation(
        "GET /definitions/{name}/revisions/{ref}", needs="read",
        raises=(UnknownDefinition, RevisionNotFound),
    )  # fmt: skip
    async def revision(self, name: DefinitionRef, ref: str | int | None = None) -> RevisionRecord:
        """A revision, by its hash, six or more characters of that, its version or number."""
        return await self._revising.revision(name, ref)

    @operation("GET /definitions/{name}/history", needs="read", raises=(UnknownDefinition,))
    async def history(self, name: DefinitionRef) -> Sequence[HistoryRow]:
        """All revisions that a definition has had, the one that became current last first."""
        head = await self._revising.find(name)
        found = await self._workspace.store.records.revisions(self._workspace.id, name)
        return [
            HistoryRow(**msgspec.structs.asdict(each), current=each.hash == head.hash)
            for each in found
        ]

    @operation(
        "GET /definitions/{name}/diff", needs="read", result="diff",
        raises=(UnknownDefinition, RevisionNotFound, DraftNotFound, InvalidDefinition),
    )  # fmt: skip
    async def diff(
        self, name: DefinitionRef, a: str | int | None, b: str | int | None = None
    ) -> dict[str, Any]:
        """What differs between two documents of a definition, named as for `document`."""
        return diff(await self.document(name, a), await self.document(name, b))

    async def validate(self, document: Any) -> Checked:
        """What a document says, and everything that is wrong with it."""
        found = await self._revising.check(document)
        if found.ok and found.definition is not None:
            beyond = beyond_plan(found.definition, self._workspace)
            found = msgspec.structs.replace(
                found, problems=[*found.problems, *beyond], ok=not beyond
            )
        return found

    @operation(
        "POST /definitions/validate", needs="read", name="definitions.validate",
        example={"document": TIDY_UP},
    )  # fmt: skip
    async def validation(self, document: Any) -> Validation:
        """Everything that is wrong with a document, each with its place, a code and a hint."""
        found = await self.validate(document)
        return Validation(
            found.ok, found.hash, found.problems, found.dialect, found.losses, found.document
        )

    # -- what is no revision -------------------------------------------------------------

    @operation(
        "PUT /definitions/{name}/enabled", needs="build", raises=(UnknownDefinition, Conflict),
        example={"enabled": True},
    )  # fmt: skip
    async def set_enabled(
        self, name: DefinitionRef, enabled: bool, *, if_match: str | None = None
    ) -> DefinitionRecord:
        """Allow runs of the definition to be started, or forbid it.

        What its triggers miss while it is disabled is not made up for when it is enabled.

        `if_match` is its etag, or the hash of its current revision: Conflict if it has another one.
        """
        check_flag(enabled, "enabled")

        async def attempt() -> DefinitionRecord:
            head = await self._revising.find(name)
            if head.enabled == enabled:
                return head
            if if_match not in (None, head.etag, head.hash):
                raise Conflict(
                    f"The definition {name!r} was changed meanwhile.",
                    changes=[], definition=name, etag=head.etag,
                )  # fmt: skip
            return await self._revising.switch(head, enabled)

        return await self._revising.persist(attempt)

    @operation("GET /definitions/{name}/layout", needs="read", raises=(UnknownDefinition,))
    async def layout(self, name: DefinitionRef) -> Layout:
        """Where an editor draws the definition."""
        return _layout((await self._revising.find(name)).layout)

    @operation(
        "PUT /definitions/{name}/layout", needs="build", raises=(UnknownDefinition, Conflict),
        example={"layout": {"nodes": {}}},
    )  # fmt: skip
    async def set_layout(
        self, name: DefinitionRef, layout: Any, *, if_match: str | None = None
    ) -> Layout:
        """Keep where things are drawn; `if_match` is the etag of the layout before."""
        data = msgspec.json.decode(encode(layout, "The layout", MAX_LAYOUT_BYTES))

        async def attempt() -> Layout:
            head = await self._revising.find(name)
            before, after = _layout(head.layout), _layout(data)
            if before == after:
                return before
            if if_match not in (None, before.etag):
                raise Conflict(
                    f"The layout of {name!r} was changed meanwhile.",
                    changes=[], definition=name, etag=before.etag,
                )  # fmt: skip
            await self._revising.amend(Amendment(self._revising.changed(head, layout=after.layout)))
            return after

        return await self._revising.persist(attempt)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not SLUG.fullmatch(name):
        hint = slug_of(name) if isinstance(name, str) else ""
        raise InvalidInput(
            f"A definition cannot be called {show(name)}: names have small letters, digits and "
            f"hyphens, at most 100.{f' Write {hint!r}.' if hint else ''}"
        )


def _layout(layout: Any) -> Layout:
    text = msgspec.json.encode(layout, order="deterministic").decode()
    return Layout(layout, etag_of(text))

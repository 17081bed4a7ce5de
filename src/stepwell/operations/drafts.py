"""Drafts: edits kept as they are, right or wrong, until somebody publishes or discards them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from stepwell.errors import (
    Conflict,
    DefinitionExists,
    DraftNotFound,
    InvalidDefinition,
    QuotaExceeded,
    UnknownDefinition,
)
from stepwell.graph.documents import as_text, etag_of, readable
from stepwell.graph.parse import MAX_TAGS, MAX_TITLE
from stepwell.kernel.clock import moment, shown
from stepwell.kernel.names import show
from stepwell.kernel.records import DefinitionRecord, DraftRecord, revision_in
from stepwell.operation import TIDY_UP, DefinitionRef, operation
from stepwell.operations.publishing import Publishing
from stepwell.operations.revising import (
    MAX_AUTHOR,
    Publication,
    as_title,
    by,
    check_words,
    conflict,
)
from stepwell.record import Amendment, PublishResult


class Drafts(Publishing):
    """Keeps drafts, one for each definition."""

    async def draft(self, name: str) -> DraftRecord | None:
        """The draft of a definition, if it has one."""
        await self._revising.find(name)
        return await self._workspace.store.records.draft(self._workspace.id, name)

    @operation(
        "GET /definitions/{name}/draft", needs="read", name="drafts.get",
        raises=(UnknownDefinition, DraftNotFound),
    )  # fmt: skip
    async def get_draft(self, name: DefinitionRef) -> DraftRecord:
        """The draft of a definition."""
        return await self._require_draft(name)

    async def _require_draft(self, name: str) -> DraftRecord:
        """The draft of a definition; raises DraftNotFound."""
        found = await self.draft(name)
        if found is None:
            raise DraftNotFound(f"{name!r} has no draft.", definition=name)
        return found

    @operation(
        "PUT /definitions/{name}/draft", needs="build", name="drafts.save",
        caller={"author": "name"}, raises=(UnknownDefinition, Conflict),
        example={"document": TIDY_UP},
    )  # fmt: skip
    async def save_draft(
        self,
        name: DefinitionRef,
        document: Any,
        *,
        if_match: str | None = None,
        base_hash: str | None = None,
        author: str = "",
    ) -> DraftRecord:
        """Keep an edit of a definition that there is, whatever is wrong with it.

        `if_match` is the etag of the draft that was edited, or the hash of the current revision
        if there was none: Conflict if that is not what is there. `base_hash` says that the edit
        takes the current revision into account, also if the draft was begun before that one.
        """
        text = as_text(document)
        check_words(author, "author", MAX_AUTHOR)

        async def attempt() -> DraftRecord:
            head = await self._revising.head(name)
            if head is None:
                raise UnknownDefinition(
                    f"There is no definition {show(name)}; create it first.", definition=name
                )
            before = await self.draft(name)
            if before is not None and before.etag == etag_of(text) and base_hash is None:
                return before
            expected = head.hash if before is None else before.etag
            if if_match is not None and revision_in(if_match) != expected:
                raise await self._edited_meanwhile(head, before, if_match, text)
            if base_hash is not None and base_hash != head.hash:
                raise await self._revising.superseded(name, head, base_hash, readable(text))
            base = head.hash if before is None or base_hash is not None else before.base_hash
            draft = self._drafted(name, text, base, author)
            await self._revising.amend(
                Amendment(self._revising.changed(head, **labels(head, text)), draft=draft)
            )
            return draft

        return await self._revising.persist(attempt)

    def _drafted(self, name: str, text: str, base_hash: str | None, author: str) -> DraftRecord:
        now = self._workspace.clock.now()
        return DraftRecord(name, text, etag_of(text), base_hash, author, now)

    @operation(
        "DELETE /definitions/{name}/draft", needs="build", name="drafts.discard",
        result="discarded", destructive=True, raises=(UnknownDefinition, Conflict),
    )  # fmt: skip
    async def discard_draft(self, name: DefinitionRef, *, if_match: str | None = None) -> bool:
        """Forget the draft; whether there was one.

        `if_match` is the etag of the draft that is meant: Conflict if there is another one.
        """

        async def attempt() -> bool:
            head = await self._revising.find(name)
            draft = await self.draft(name)
            if draft is None:
                return False
            if if_match is not None and if_match != draft.etag:
                raise await self._edited_meanwhile(head, draft, if_match, None)
            await self._revising.amend(Amendment(self._revising.changed(head), draft=None))
            return True

        return await self._revising.persist(attempt)

    @operation(
        "POST /definitions/{name}/publish", needs="build", name="drafts.publish",
        caller={"author": "name"}, destructive=True,
        raises=(
            UnknownDefinition, DraftNotFound, Conflict, InvalidDefinition, DefinitionExists,
            QuotaExceeded,
        ),
    )  # fmt: skip
    async def publish_draft(
        self,
        name: DefinitionRef,
        *,
        if_match: str | None = None,
        version: str | None = None,
        enabled: bool | None = None,
        note: str = "",
        author: str = "",
    ) -> PublishResult:
        """Make the draft the current revision, if nothing is wrong with it.

        `if_match` is the etag of the draft that is meant. Conflict, too, if another revision
        became current after the draft was begun.
        """
        how = Publication("publish", author, note, version, enabled, draft=None)

        async def attempt() -> PublishResult:
            head = await self._revising.find(name)
            if if_match is not None:
                draft = await self.draft(name)
                if draft is None or draft.etag != if_match:
                    raise await self._edited_meanwhile(head, draft, if_match, None)
            draft = await self._require_draft(name)
            await self._revising.refuse_code(name)
            found = await self._revising.check(draft.document, name)
            if draft.base_hash != head.hash and found.hash != head.hash:
                raise await self._begun_before(head, draft)
            return await self._revising.make_current(head, found, how)

        return await self._revising.persist(attempt)

    async def _edited_meanwhile(
        self, head: DefinitionRecord, draft: DraftRecord | None, if_match: str, text: str | None
    ) -> Conflict:
        mine = None if text is None else readable(text)
        if draft is None:
            return await self._revising.superseded(head.name, head, revision_in(if_match), mine)
        return conflict(
            f"The draft of {head.name!r} was saved{by(draft.author)} at {shown(draft.saved_at)}, "
            "after what was edited here.",
            await self._revising.document(revision_in(if_match)) or mine,
            readable(draft.document),
            definition=head.name,
            etag=draft.etag,
            author=draft.author,
            at=moment(draft.saved_at),
        )

    async def _begun_before(self, head: DefinitionRecord, draft: DraftRecord) -> Conflict:
        found = await self._revising.superseded(
            head.name, head, draft.base_hash, readable(draft.document)
        )
        hint = " Save the draft again with the hash of that revision once it has what it needs."
        return Conflict(found.message + hint, **found.details)


def labels(head: DefinitionRecord, text: str) -> dict[str, Any]:
    """What lists show of a definition: of its draft, until something is published."""
    data = readable(text)
    if head.hash is not None or not isinstance(data, dict):
        return {}
    try:
        found = msgspec.convert(data, type=_Labels)
    except msgspec.ValidationError:
        return {}
    return {"title": as_title(found.title), "tags": found.tags}


class _Labels(msgspec.Struct):
    title: Annotated[str, msgspec.Meta(max_length=MAX_TITLE)] = ""
    tags: Annotated[list[str], msgspec.Meta(max_length=MAX_TAGS)] = []

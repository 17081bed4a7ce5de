"""Publishing: a document becomes the current one of its definition, or becomes it again."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import msgspec

from stepwell.errors import (
    AlreadyCurrent,
    Conflict,
    DefinitionExists,
    InvalidDefinition,
    InvalidInput,
    QuotaExceeded,
    RevisionNotFound,
    UnknownDefinition,
)
from stepwell.graph.documents import Checked, valid
from stepwell.kernel.names import show
from stepwell.kernel.records import DefinitionRecord, Source, revision_in
from stepwell.operation import TIDY_UP, DefinitionRef, Workspace, operation
from stepwell.operations.revising import Publication, Revising
from stepwell.record import PublishResult


class Seen(NamedTuple):
    """A definition as somebody saw it before changing it."""

    hash: str | None
    exists: bool = True
    # None unless it was seen as well; counts the changes of what no revision has.
    etag: str | None = None


class Publishing:
    """Makes revisions of documents."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._revising = Revising(workspace)

    @operation(
        "POST /definitions/publish", needs="build", caller={"author": "name"}, destructive=True,
        raises=(Conflict, InvalidDefinition, DefinitionExists, QuotaExceeded),
        example={"document": TIDY_UP},
    )  # fmt: skip
    async def publish(
        self,
        document: Any,
        *,
        if_match: str | None = None,
        source: Source = "publish",
        version: str | None = None,
        enabled: bool | None = None,
        note: str = "",
        author: str = "",
    ) -> PublishResult:
        """Make a document the current one of the definition it names, which may be new.

        To match (over HTTP by the header `If-Match`), give the hash of the revision it was made
        from, or the etag of the definition as it was then: Conflict if another one is current. A
        document that means the same as the current one makes no revision; if its texts differ they
        become those of the definition, unless the etag is an older one.
        """
        if source not in get_args(Source):
            raise InvalidInput(f"source is {', '.join(get_args(Source))}, not {show(source)}.")
        how = Publication(source, author, note, version, enabled)
        seen = None
        if if_match is not None:
            seen = Seen(revision_in(if_match), etag=if_match if "." in if_match else None)
        return await self._publish(await self._revising.check(document), how, seen)

    async def _publish(self, found: Checked, how: Publication, seen: Seen | None) -> PublishResult:
        """Make a document current; Conflict if that would replace anything else than was seen."""
        name = valid(found).name

        async def attempt() -> PublishResult:
            head = await self._revising.head(name)
            await self._revising.refuse_code(name)
            if seen is not None and not await self._writes_nothing(head, found, how):
                await self._refuse_unseen(name, head, found, seen)
            return await self._revising.make_current(head, found, how)

        return await self._revising.persist(attempt)

    async def _writes_nothing(
        self, head: DefinitionRecord | None, found: Checked, how: Publication
    ) -> bool:
        """Whether all is as it is to be: whoever repeats a publication undoes nobody's change."""
        if head is None or head.hash != found.hash or how.enabled not in (None, head.enabled):
            return False
        text = await self._workspace.store.records.document(self._workspace.id, found.hash)
        return text == found.text

    async def _refuse_unseen(
        self, name: str, head: DefinitionRecord | None, found: Checked, seen: Seen
    ) -> None:
        """Raise Conflict if the definition is not as it was seen."""
        if (seen.hash, seen.exists) != (None if head is None else head.hash, head is not None):
            raise await self._revising.superseded(name, head, seen.hash, found.document)
        # A new revision has been made from the current one, whatever happened to the rest.
        if head is not None and head.hash == found.hash and seen.etag not in (None, head.etag):
            raise Conflict(
                f"The texts of {name!r} were changed meanwhile.", changes=[], definition=name,
                etag=head.etag,
            )  # fmt: skip

    @operation(
        "POST /definitions/{name}/rollback", needs="build", caller={"author": "name"},
        destructive=True, example={"ref": "1.0.0"},
        raises=(
            UnknownDefinition, RevisionNotFound, AlreadyCurrent, Conflict, InvalidDefinition,
            DefinitionExists,
        ),
    )  # fmt: skip
    async def rollback(
        self,
        name: DefinitionRef,
        ref: str | int,
        *,
        if_match: str | None = None,
        version: str | None = None,
        note: str = "",
        author: str = "",
    ) -> PublishResult:
        """Make a revision current that the definition has had before.

        It gets a version of its own; without a `note`, that says which it had. `if_match` is the
        hash of the revision that it replaces, or an etag: Conflict if another one is current.
        """
        how = Publication("rollback", author, note, version)

        async def attempt() -> PublishResult:
            head = await self._revising.find(name)
            target = await self._revising.revision(name, ref)
            if target.hash == head.hash:
                raise AlreadyCurrent(
                    f"Revision {target.version} ({target.hash[:12]}) of {name!r} is current.",
                    definition=name,
                    hash=target.hash,
                )
            document = await self._revising.document(target.hash)
            if if_match is not None and (seen := revision_in(if_match)) != head.hash:
                raise await self._revising.superseded(name, head, seen, document)
            await self._revising.refuse_code(name)
            # Checked again: there may be node types that are gone since.
            found = await self._revising.check(document, name)
            told = how if note else msgspec.structs.replace(how, note=f"{target.version} again")
            return await self._revising.make_current(head, found, told)

        return await self._revising.persist(attempt)

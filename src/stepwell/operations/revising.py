"""Making documents current: what publishing, syncing, rolling back and proposals have in common.

A definition's record counts its changes. Whoever changes it reads it first, and the store refuses
a change that was not made from the latest one; then it is read again, and the change is made
after all if what the caller expects still holds.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from stepwell.errors import (
    Conflict,
    DefinitionExists,
    InvalidInput,
    Overtaken,
    RevisionNotFound,
    UnknownDefinition,
)
from stepwell.graph.definition import SLUG
from stepwell.graph.diff import describe, diff
from stepwell.graph.documents import Checked, readable, valid
from stepwell.graph.parse import parse
from stepwell.graph.problems import Problems
from stepwell.kernel.clock import moment, shown
from stepwell.kernel.names import show
from stepwell.kernel.records import (
    DefinitionRecord,
    DraftRecord,
    ProposalRecord,
    RevisionRecord,
    Source,
)
from stepwell.kernel.semver import Bump, next_version
from stepwell.operation import Workspace
from stepwell.operations.arming import Following
from stepwell.operations.checking import check_document
from stepwell.operations.trigger_views import upcoming
from stepwell.record import Action, Amendment, Paces, PublishResult, graph_paces, graph_version

T = TypeVar("T")

# How often a change is made again from what somebody else has just written.
TRIES = 50
# How many changes the message of a conflict names.
MAX_NAMED = 3
MIN_PREFIX = 6
MAX_AUTHOR = 200
MAX_NOTE = 10_000
_HASH = re.compile("[0-9a-f]{64}")
_BUMPS: dict[Source, Bump] = {"proposal": "patch", "rollback": "patch"}


class Publication(msgspec.Struct, frozen=True):
    """Who makes a document current, and how."""

    source: Source
    author: str = ""
    note: str = ""
    # Instead of the one that comes next.
    version: str | None = None
    # Unless said it stays as it is, and a new definition is enabled.
    enabled: bool | None = None
    draft: DraftRecord | msgspec.UnsetType | None = msgspec.UNSET
    # As it will be once it has been applied.
    proposal: ProposalRecord | None = None

    def __post_init__(self) -> None:
        check_words(self.author, "author", MAX_AUTHOR)
        check_words(self.note, "note", MAX_NOTE)
        if self.enabled is not None:
            check_flag(self.enabled, "enabled")


class Revising:
    """Finds definitions and changes them."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._id = workspace.id
        self._records = workspace.store.records
        self._following = Following(workspace)

    # -- finding -------------------------------------------------------------------------

    async def head(self, name: Any) -> DefinitionRecord | None:
        if not isinstance(name, str) or not SLUG.fullmatch(name):
            return None  # nothing can be called so
        return await self._records.definition(self._id, name)

    async def find(self, name: str) -> DefinitionRecord:
        found = await self.head(name)
        if found is None:
            raise UnknownDefinition(f"There is no definition {show(name)}.", definition=name)
        return found

    async def revision(self, name: str, ref: str | int | None) -> RevisionRecord:
        """The revision with that hash, beginning of a hash, version or number; else the current."""
        head = await self.find(name)
        listed = await self._records.revisions(self._id, name)
        wanted = head.hash if ref is None else await self._hash_of_number(name, ref)
        found = [each for each in listed if wanted == each.hash or ref == each.version]
        if not found and isinstance(ref, str) and ref.isprintable():
            earlier = await self._records.labelled(self._id, name, ref)
            found = [each for each in listed if each.hash == earlier]
        if not found and isinstance(ref, str) and len(ref) >= MIN_PREFIX:
            found = [each for each in listed if each.hash.startswith(ref.lower())]
        if len(found) == 1:
            return found[0]
        if ref is None:
            what = f"Nothing of {name!r} has been published yet."
        elif found:
            what = f"Several revisions of {name!r} begin with {show(ref)}; write more of it."
        else:
            what = f"The history of {name!r} has no revision {show(ref)}.{_labels(listed)}"
        raise RevisionNotFound(what, definition=name, ref=ref)

    async def _hash_of_number(self, name: str, ref: str | int) -> str | None:
        """The hash that had that number, also if it has got another one since."""
        if isinstance(ref, bool) or not isinstance(ref, int | str):
            raise InvalidInput(f"A revision is named by hash, version or number, not {show(ref)}.")
        text = str(ref)
        if text.isascii() and text.isdigit() and len(text) < 10:
            row = await self._workspace.store.version(self._id, name, int(text))
            if row is not None and row.revision is not None:
                return row.revision
        return text

    async def document(self, hash: Any) -> Any:
        """A document as plain data; None if there is none with that hash, or it is no hash."""
        known = isinstance(hash, str) and _HASH.fullmatch(hash) is not None
        text = await self._records.document(self._id, hash) if known else None
        return None if text is None else readable(text)

    # -- changing ------------------------------------------------------------------------

    async def check(self, document: Any, name: str | None = None) -> Checked:
        secrets = {each.name for each in await self._records.secrets(self._id)}
        now = self._workspace.clock.now()
        return await check_document(document, self._workspace.types(), name, secrets, now)

    async def refuse_code(self, name: str) -> None:
        """Raise if the name belongs to a workflow that is code."""
        row = await self._workspace.store.version(self._id, name, None)
        if row is not None and row.kind == "code":
            raise DefinitionExists(
                f"{name!r} is the name of a workflow in Python; choose another.", definition=name
            )

    async def refuse_one_more(self) -> None:
        """Raise if the plan allows no further definition.

        Who is overtaken by another one in this comes here again: the store counts when it writes.
        """
        most = self._workspace.plan.definitions
        if most is not None and len(await self._records.definitions(self._id)) >= most:
            raise self._workspace.plan.refusal("definitions", "definitions")

    async def persist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until nobody else is faster."""
        for _ in range(TRIES):
            try:
                return await attempt()
            except Overtaken:
                continue
        raise Conflict("Others change this all the time; try again.", changes=[])

    async def amend(self, amendment: Amendment) -> DefinitionRecord:
        amendment.most = self._workspace.plan.definitions
        self._workspace.changed(await self._records.amend(self._id, amendment))
        return amendment.definition

    def changed(self, head: DefinitionRecord, **fields: Any) -> DefinitionRecord:
        """The record as it will be."""
        return msgspec.structs.replace(
            head, serial=head.serial + 1, updated_at=self._workspace.clock.now(), **fields
        )

    async def switch(self, head: DefinitionRecord, enabled: bool) -> DefinitionRecord:
        """Enable a definition that is disabled, or the other way round."""
        triggers = await self._following.enabled(head.name) if enabled else []
        return await self.amend(Amendment(self.changed(head, enabled=enabled), triggers=triggers))

    def new(self, name: str, enabled: bool) -> DefinitionRecord:
        """A definition that is not there yet."""
        now = self._workspace.clock.now()
        return DefinitionRecord(name, 0, "", [], enabled, None, None, 0, None, now, now)

    async def make_current(
        self, head: DefinitionRecord | None, found: Checked, how: Publication
    ) -> PublishResult:
        """Make a document the current one of the definition, which was read just before.

        Raises Overtaken if the definition has changed since.
        """
        definition = valid(found)
        action: Action = "create" if head is None else "update"
        if head is None:
            await self.refuse_one_more()
            head = self.new(definition.name, enabled=True)
        enabled = head.enabled if how.enabled is None else how.enabled
        after = self.changed(
            head, title=as_title(definition.title), tags=definition.tags, enabled=enabled
        )
        listed = await self._records.revisions(self._id, head.name)
        before = next((each for each in listed if each.hash == found.hash), None)
        followed = await self._following.of(definition, anew=enabled and not head.enabled)
        schedules = upcoming(self._workspace, followed.kept, enabled)
        if before is not None and head.hash == found.hash:
            change = Amendment(
                after, draft=how.draft, document=found.text, revision=before,
                proposal=how.proposal, triggers=followed.changed, removed=followed.gone,
            )  # fmt: skip
            same = await self._refresh(head, change, found, how)
            return msgspec.structs.replace(same, schedules=schedules)
        now = self._workspace.clock.now()
        revision = RevisionRecord(
            definition=head.name,
            hash=found.hash,
            number=head.number + 1,
            version=next_version(head.version, _BUMPS.get(how.source, "minor"), how.version),
            source=how.source,
            author=how.author,
            note=how.note,
            proposal_id=None if how.proposal is None else how.proposal.id,
            created_at=now if before is None else before.created_at,
            published_at=now,
        )
        amendment = Amendment(
            msgspec.structs.replace(
                after, hash=revision.hash, version=revision.version, number=revision.number
            ),
            draft=how.draft,
            document=found.text,
            revision=revision,
            version=graph_version(definition, revision.number, revision.hash, revision.version),
            paces=graph_paces(definition),
            paces_before=await self._paces_before(head),
            proposal=how.proposal,
            triggers=followed.changed,
            removed=followed.gone,
        )
        return PublishResult(
            await self.amend(amendment), revision, action, True, found.problems, schedules
        )

    async def _paces_before(self, head: DefinitionRecord) -> list[Paces]:
        """What the current revision says, and those that runs were started from which queue."""
        queued = await self._records.queued_revisions(self._id, head.name)
        found = []
        for hash in {head.hash, *queued} - {None}:
            document = await self.document(hash)
            definition = parse(document, self._workspace.types().aliases, Problems())
            if definition is not None:
                found.append(graph_paces(definition))
        return found

    async def _refresh(
        self, head: DefinitionRecord, change: Amendment, found: Checked, how: Publication
    ) -> PublishResult:
        """The document is the current one but for texts that are for people only."""
        after, revision = change.definition, change.revision
        assert revision is not None
        if how.version not in (None, revision.version):
            raise InvalidInput(
                f"This document is current already, as version {revision.version}; it cannot get "
                f"{how.version} without a change.",
                definition=head.name,
            )
        same = msgspec.structs.replace(after, serial=head.serial, updated_at=head.updated_at)
        text = await self._records.document(self._id, revision.hash)
        told = same != head or text != found.text or how.draft is None
        action: Action = "unchanged"
        if told or how.proposal is not None or change.triggers or change.removed:
            head, action = await self.amend(change), "update"
        return PublishResult(head, revision, action, False, found.problems)

    # -- conflicts -----------------------------------------------------------------------

    async def superseded(
        self, name: str, head: DefinitionRecord | None, expected: str | None, mine: Any
    ) -> Conflict:
        """The current revision is not the expected one, from which `mine` was made.

        What was expected may also be that there is none.
        """
        if head is None or head.hash is None:
            said = f"Nothing of {name!r} is published; expected was {show(expected)}."
            if expected is None:
                there = "no definition" if head is None else "a definition"
                said = f"There is {there} {name!r} by now, other than expected."
            return Conflict(said, changes=[], definition=name, hash=None)
        current = await self.revision(name, head.hash)
        when = "after the one that this was made from"
        if expected is None:
            when = "and there was none when this was made"
        return conflict(
            f"Revision {current.version} of {name!r} was published{by(current.author)} at "
            f"{shown(current.published_at)}, {when}.",
            await self.document(expected) or mine,
            await self.document(current.hash),
            definition=name,
            hash=current.hash,
            author=current.author,
            at=moment(current.published_at),
        )


def _labels(listed: Sequence[RevisionRecord]) -> str:
    """By what revisions can be named: one that became current again has its latest version."""
    shown = ", ".join(f"{each.version} (number {each.number})" for each in listed[:MAX_NAMED])
    more = ", …" if len(listed) > MAX_NAMED else ""
    again = " One that was published again is found by its latest version, any of its numbers, "
    return f" There are {shown}{more}.{again}or its hash." if shown else ""


def conflict(message: str, started: Any, now: Any, **details: Any) -> Conflict:
    """Somebody else has made of `started` what there is `now`."""
    found = diff(started, now)
    changes = describe(found)
    named = "; ".join(changes[:MAX_NAMED])
    more = f"; and {len(changes) - MAX_NAMED} more" if len(changes) > MAX_NAMED else ""
    told = f" What differs: {named}{more}." if changes else ""
    return Conflict(f"{message}{told}", changes=changes, diff=found, **details)


def by(author: str) -> str:
    return f" by {author}" if author else ""


def as_title(text: str) -> str:
    """The text as it stands in a column of its own: documents may have U+0000, columns not."""
    return text.replace("\0", "")


def check_flag(value: Any, what: str) -> None:
    if not isinstance(value, bool):
        raise InvalidInput(f"{what} is true or false, not {show(value)}.")


def check_words(value: Any, what: str, longest: int) -> str:
    """A text by and for people, which may be empty."""
    if not isinstance(value, str) or len(value) > longest or "\0" in value:
        raise InvalidInput(f"{what} is a text of at most {longest:,} characters.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what} has what is no character: {error.reason}.") from None
    return value

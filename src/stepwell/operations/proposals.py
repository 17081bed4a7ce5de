"""Proposals: changes of a definition that somebody suggests, somebody else reviews, and then apply.

    pending → approved | rejected | expired        approved → applied | failed | expired

A proposal is made against the current revision and only applied while that is still the current
one. The proposed document is kept with it, so what is applied is what was reviewed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from stepwell.errors import (
    Conflict,
    DefinitionExists,
    InvalidDefinition,
    InvalidInput,
    ProposalNotFound,
    ProposalNotOpen,
    ProposalsForbidden,
    StepwellError,
    UnknownDefinition,
)
from stepwell.graph.definition import Policy
from stepwell.graph.diff import diff, differs
from stepwell.graph.documents import plain
from stepwell.graph.edits import edited
from stepwell.graph.reading import MAX_CHARACTERS
from stepwell.kernel.clock import SECOND, shown
from stepwell.kernel.codec import decode, encode
from stepwell.kernel.ids import is_id
from stepwell.kernel.names import check_text, show
from stepwell.kernel.records import (
    OPEN_PROPOSALS,
    DefinitionRecord,
    ProposalRecord,
    ProposalStatus,
    Review,
)
from stepwell.operation import DefinitionRef, Noun, Workspace, operation
from stepwell.operations.revising import (
    MAX_AUTHOR,
    MAX_NOTE,
    Publication,
    Revising,
    check_flag,
    check_words,
)
from stepwell.record import PublishResult

EXPIRY_SECONDS = 14 * 86_400


class Proposals(Noun):
    """The proposals of a workspace."""

    noun = "proposals"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._revising = Revising(workspace)
        self._records = workspace.store.records

    @operation(
        "POST /definitions/{name}/proposals", needs="run", status=201, caller={"author": "name"},
        raises=(UnknownDefinition, ProposalsForbidden, Conflict),
        example={"operations": [{"op": "set_meta", "set": {"title": "Tidy up"}}]},
    )  # fmt: skip
    async def propose(
        self,
        name: DefinitionRef,
        operations: Sequence[dict[str, Any]],
        *,
        author: str,
        base_hash: str | None = None,
        note: str = "",
    ) -> ProposalRecord:
        """Suggest a change of the current revision, whose hash `base_hash` is if given.

        `operations` are those of `stepwell.graph.edits`. What they lead to is checked, and what
        is wrong with it stands in the proposal.
        """
        check_text(author, "author", MAX_AUTHOR)
        check_words(note, "note", MAX_NOTE)
        wanted = decode(encode(operations, "operations", MAX_CHARACTERS))
        head = await self._revising.find(name)
        base = await self._base(head)
        if not (await self._policy(base)).proposals:
            raise ProposalsForbidden(
                f"{name!r} takes no proposals; its policy would have to say `proposals: true`.",
                definition=name,
            )
        if base_hash not in (None, head.hash):
            assert base_hash is not None
            raise await self._revising.superseded(name, head, base_hash, base)
        document = edited(base, wanted)
        found = diff(base, document)
        if not differs(found):
            raise InvalidInput("These operations change nothing.")
        checked = await self._revising.check(document, name)
        now = self._workspace.clock.now()
        assert head.hash is not None
        proposal = ProposalRecord(
            id=self._workspace.ids.new(),
            definition=name,
            status="pending",
            expires_at=now + EXPIRY_SECONDS * SECOND,
            base_hash=head.hash,
            operations=wanted,
            document=encode(document, "The proposed document", MAX_CHARACTERS),
            hash=checked.hash,
            diff=found,
            problems=plain(checked.problems),
            note=note,
            author=author,
            created_at=now,
        )
        await self._records.put_proposal(self._workspace.id, proposal, None)
        return proposal

    @operation(
        "GET /proposals/{proposal_id}", needs="read", raises=(ProposalNotFound,),
        also=("/definitions/{name}/proposals/{proposal_id}",),
    )  # fmt: skip
    async def get(self, proposal_id: str, name: DefinitionRef | None = None) -> ProposalRecord:
        """The proposal as it is now; `name` is the definition it is expected to be for."""
        return _as_shown(await self._find(proposal_id, name), self._workspace.clock.now())

    @operation(
        "GET /proposals", needs="read", raises=(UnknownDefinition,),
        also=("/definitions/{name}/proposals",),
    )  # fmt: skip
    async def list(
        self, name: DefinitionRef | None = None, status: ProposalStatus | None = None
    ) -> Sequence[ProposalRecord]:
        """The proposals for a definition, or for all of them, the newest first."""
        if status is not None and status not in get_args(ProposalStatus):
            known = ", ".join(get_args(ProposalStatus))
            raise InvalidInput(f"{show(status)} is no status of proposals; there are {known}.")
        if name is not None:
            await self._revising.find(name)
        now = self._workspace.clock.now()
        found = await self._records.proposals(self._workspace.id, name, status, now)
        return [_as_shown(each, now) for each in found]

    @operation(
        "POST /proposals/{proposal_id}/review", needs="build", caller={"reviewer": "name"},
        also=("/definitions/{name}/proposals/{proposal_id}/review",),
        raises=(ProposalNotFound, ProposalNotOpen, ProposalsForbidden),
        example={"approve": True, "note": "Fine."},
    )  # fmt: skip
    async def review(
        self, proposal_id: str, approve: bool, *, reviewer: str, note: str = "",
        name: DefinitionRef | None = None,
    ) -> ProposalRecord:  # fmt: skip
        """Approve a proposal, or reject it; one's own only if the policy allows that."""
        check_text(reviewer, "reviewer", MAX_AUTHOR)
        check_words(note, "note", MAX_NOTE)
        check_flag(approve, "approve")

        async def attempt() -> ProposalRecord:
            proposal = await self._open(proposal_id, "pending", name)
            if reviewer == proposal.author and not await self._allows_self_review(proposal):
                raise ProposalsForbidden(
                    f"{reviewer!r} made proposal {proposal.id}; somebody else has to review it.",
                    proposal_id=proposal.id,
                )
            review = Review(reviewer, approve, note, self._workspace.clock.now())
            status: ProposalStatus = "approved" if approve else "rejected"
            return await self._put(proposal, status, review=review)

        return await self._revising.persist(attempt)

    @operation(
        "POST /proposals/{proposal_id}/apply", needs="build", caller={"author": "name"},
        also=("/definitions/{name}/proposals/{proposal_id}/apply",),
        destructive=True,
        raises=(
            ProposalNotFound, ProposalNotOpen, UnknownDefinition, Conflict, InvalidDefinition,
            DefinitionExists,
        ),
    )  # fmt: skip
    async def apply(
        self, proposal_id: str, *, author: str = "", name: DefinitionRef | None = None
    ) -> PublishResult:
        """Publish what was approved.

        If another revision is current by now, or the document is invalid, the proposal has
        failed for good.
        """

        async def attempt() -> PublishResult:
            proposal = await self._open(proposal_id, "approved", name)
            head = await self._revising.find(proposal.definition)
            try:
                return await self._apply(proposal, head, author)
            except (Conflict, InvalidDefinition) as error:
                await self._put(proposal, "failed", error=_reason(error))
                raise

        return await self._revising.persist(attempt)

    async def _apply(
        self, proposal: ProposalRecord, head: DefinitionRecord, author: str
    ) -> PublishResult:
        document = decode(proposal.document)
        if head.hash != proposal.base_hash:
            raise await self._revising.superseded(head.name, head, proposal.base_hash, document)
        await self._revising.refuse_code(head.name)
        applied = msgspec.structs.replace(
            proposal, status="applied", applied_at=self._workspace.clock.now()
        )
        how = Publication("proposal", author or proposal.author, proposal.note, proposal=applied)
        found = await self._revising.check(document, head.name)
        return await self._revising.make_current(head, found, how)

    # -- states --------------------------------------------------------------------------

    async def _find(self, proposal_id: Any, name: str | None) -> ProposalRecord:
        known = isinstance(proposal_id, str) and is_id(proposal_id)
        found = await self._records.proposal(self._workspace.id, proposal_id) if known else None
        if found is None or name not in (None, found.definition):
            raise ProposalNotFound(
                f"There is no proposal {show(proposal_id)}.", proposal_id=proposal_id
            )
        return found

    async def _open(
        self, proposal_id: str, status: ProposalStatus, name: str | None
    ) -> ProposalRecord:
        """The proposal, if it has that status and time left."""
        proposal = await self._find(proposal_id, name)
        if _has_expired(proposal, self._workspace.clock.now()):
            proposal = await self._put(proposal, "expired")
        if proposal.status != status:
            since = f" since {shown(proposal.expires_at)}" if proposal.status == "expired" else ""
            raise ProposalNotOpen(
                f"Proposal {proposal.id} is {proposal.status}{since}; it would have to be "
                f"{status}.",
                proposal_id=proposal.id,
                status=proposal.status,
            )
        return proposal

    async def _put(
        self, proposal: ProposalRecord, status: ProposalStatus, **fields: Any
    ) -> ProposalRecord:
        after = msgspec.structs.replace(proposal, status=status, **fields)
        await self._records.put_proposal(self._workspace.id, after, proposal.status)
        return after

    # -- policy --------------------------------------------------------------------------

    async def _base(self, head: DefinitionRecord) -> Any:
        revision = await self._revising.revision(head.name, head.hash)
        return await self._revising.document(revision.hash)

    async def _policy(self, document: Any) -> Policy:
        definition = (await self._revising.check(document)).definition
        return Policy() if definition is None else definition.policy

    async def _allows_self_review(self, proposal: ProposalRecord) -> bool:
        # By what is current: a proposal does not allow itself.
        head = await self._revising.find(proposal.definition)
        return (await self._policy(await self._base(head))).self_review


def _has_expired(proposal: ProposalRecord, now: int) -> bool:
    return proposal.status in OPEN_PROPOSALS and proposal.expires_at <= now


def _as_shown(proposal: ProposalRecord, now: int) -> ProposalRecord:
    """Nobody may have noticed that its time is up."""
    if not _has_expired(proposal, now):
        return proposal
    return msgspec.structs.replace(proposal, status="expired")


def _reason(error: StepwellError) -> str:
    return error.message[:MAX_NOTE]

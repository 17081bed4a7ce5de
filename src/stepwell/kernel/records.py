"""Records that change seldom: definitions and what belongs to them, triggers, gates, secrets."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from stepwell.kernel.presenting import HIDDEN

Source = Literal["publish", "sync", "proposal", "rollback", "import", "record"]
ProposalStatus = Literal["pending", "approved", "rejected", "expired", "applied", "failed"]
GateStatus = Literal["open", "approved", "denied", "expired", "void"]
Decision = Literal["approve", "deny"]
OnTimeout = Literal["approve", "deny", "fail"]
# Who has written a trigger: the document of its definition, or somebody by hand.
Origin = Literal["document", "hand"]

# The statuses in which time can run out for a proposal.
OPEN_PROPOSALS: frozenset[ProposalStatus] = frozenset({"pending", "approved"})


class DefinitionRecord(msgspec.Struct, frozen=True):
    """A definition that is data, as it stands."""

    name: str
    # Counts the changes of this record; a change says which one it was made from.
    serial: int
    title: str
    tags: list[str]
    enabled: bool
    # Of its current revision; None until something has been published.
    hash: str | None
    version: str | None
    number: int
    layout: Any
    created_at: int
    updated_at: int
    # Its name, which never changes.
    id: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "id", self.name)

    @property
    def etag(self) -> str:
        """Another one after every change; begins with the hash, which edits are made from."""
        return f"{self.hash or ''}.{self.serial}"


def revision_in(etag: Any) -> Any:
    """The hash in the etag of a definition, which may also be given alone; else what it is."""
    return etag.partition(".")[0] or None if isinstance(etag, str) else etag


class DraftRecord(msgspec.Struct, frozen=True):
    """An edit that has not been published; its document may be wrong in any way."""

    definition: str
    document: str
    # Of the document as it was saved, for whoever edits it next.
    etag: str
    # The revision that it was made from.
    base_hash: str | None
    author: str
    saved_at: int


class RevisionRecord(msgspec.Struct, frozen=True):
    """A document that a definition has had published; one record for each hash."""

    definition: str
    hash: str
    number: int
    version: str
    source: Source
    author: str
    note: str
    proposal_id: str | None
    created_at: int
    published_at: int


class Review(msgspec.Struct, frozen=True):
    """What somebody has decided about a proposal."""

    reviewer: str
    approve: bool
    note: str
    reviewed_at: int


class ProposalRecord(msgspec.Struct, frozen=True):
    """A change of a definition that somebody suggests."""

    id: str
    definition: str
    status: ProposalStatus
    expires_at: int
    base_hash: str
    operations: list[dict[str, Any]]
    # What the definition would become.
    document: str
    hash: str
    diff: dict[str, Any]
    problems: list[dict[str, Any]]
    note: str
    author: str
    created_at: int
    review: Review | None = None
    applied_at: int | None = None
    error: str | None = None


class GateDecision(msgspec.Struct, frozen=True):
    """What one person has decided about a gate."""

    decision: Decision
    by: str
    note: str
    decided_at: int


class GateRecord(msgspec.Struct, frozen=True):
    """A decision that a run waits for."""

    id: str
    run_id: str
    key: str
    status: GateStatus
    serial: int
    definition: str
    prompt: str
    # What exactly is to be decided about, and the hash of that and of the run's revision.
    subject: Any
    subject_hash: str
    created_at: int
    deadline_at: int | None
    on_timeout: OnTimeout
    approvers: list[str]
    required: int
    decisions: list[GateDecision] = []
    # Hashes of tokens that were given out and not used yet.
    tokens: Annotated[list[str], HIDDEN] = []


class SecretRecord(msgspec.Struct, frozen=True):
    """A secret as it is stored: sealed with the key of that id."""

    name: str
    key_id: str
    sealed: str
    created_at: int
    updated_at: int


def trigger_etag(trigger_id: str, serial: int) -> str:
    """With its id: another one of that name begins anew."""
    return f"{trigger_id}.{serial}"


class TriggerRecord(msgspec.Struct, frozen=True):
    """What starts runs of a definition."""

    id: str
    definition: str
    # Unique among the triggers of the definition.
    name: str
    type: str
    origin: Origin
    # Counts the changes that somebody made; firings are none.
    serial: int
    enabled: bool
    config: dict[str, Any]
    timezone: str
    created_at: int
    updated_at: int
    # When it was made or enabled last; what happens in even steps is counted from then.
    since: int
    # The type of the events that it fires for, and the path of its webhook, if it has any.
    event: str | None = None
    path: str | None = None
    # When it has to fire next, if time is what it waits for.
    next_at: int | None = None
    # -- what became of it -----------------------------------------------------------------
    last_fired_at: int | None = None
    last_run_id: str | None = None
    last_error: str | None = None
    # How often in a row no run could be started; and why it was paused because of that.
    failures: int = 0
    paused: str | None = None
    # It knows of no event up to this place; None: of none that there is when it is written.
    place: int | None = None

    @property
    def etag(self) -> str:
        """Another one after every change that somebody made."""
        return trigger_etag(self.id, self.serial)

    @property
    def active(self) -> bool:
        """Whether it fires."""
        return self.enabled and self.paused is None


class Firing(msgspec.Struct, frozen=True):
    """What became of a trigger when it fired; the change of its record."""

    trigger: TriggerRecord
    # As the record was before.
    was: TriggerRecord


class RefusalRecord(msgspec.Struct, frozen=True):
    """A firing that started no run, and why."""

    id: str
    trigger_id: str
    code: str
    message: str
    refused_at: int
    # How many like it there were at that time.
    count: int = 1


class EventRecord(msgspec.Struct, frozen=True):
    """An event of the workspace, as it was emitted."""

    id: str
    type: str
    key: str | None
    payload: Any
    created_at: int
    # The trace of whoever emitted it; the runs that it starts join it.
    traceparent: str | None = None

"""The contract of records: what people make and change, beside the runs that come of it.

A record counts its changes, and a change says which one it was made from: the first one wins, and
whoever comes second is told so by Overtaken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from stepwell.graph.definition import Definition
from stepwell.graph.dialects.conversion import Loss
from stepwell.graph.problems import Problem
from stepwell.kernel.changes import Committed, SendSignal, StartRun
from stepwell.kernel.clock import SECOND
from stepwell.kernel.durations import Duration, seconds
from stepwell.kernel.programs import GRAPH_PROGRAM
from stepwell.kernel.records import (
    DefinitionRecord,
    DraftRecord,
    EventRecord,
    Firing,
    GateRecord,
    ProposalRecord,
    RefusalRecord,
    RevisionRecord,
    SecretRecord,
    TriggerRecord,
)

# How long runs are kept that need not be.
EPHEMERAL_RETENTION: Duration = "1h"


class VersionRow(msgspec.Struct):
    """A version of a definition: what a start needs to know of it."""

    name: str
    version: int
    kind: str
    program: str
    retention_seconds: int | None
    max_concurrent_runs: int | None
    deadline_seconds: float | None
    # The hash of its document, if the definition is data.
    revision: str | None = None
    enabled: bool = True
    # What people call it.
    label: str | None = None
    max_queued_runs: int | None = None


def graph_version(
    definition: Definition, number: int, revision: str, label: str | None = None
) -> VersionRow:
    """The version of a definition that is data."""
    policy = definition.policy
    retention = EPHEMERAL_RETENTION if policy.ephemeral else None
    if policy.retention is not None:
        retention = policy.retention
    return VersionRow(
        name=definition.name,
        version=number,
        kind="graph",
        program=GRAPH_PROGRAM,
        retention_seconds=None if retention is None else int(seconds(retention)),
        max_concurrent_runs=policy.max_concurrent_runs,
        deadline_seconds=None if policy.timeout is None else seconds(policy.timeout),
        revision=revision,
        label=label,
        max_queued_runs=policy.max_queued_runs,
    )


class Paces(msgspec.Struct, frozen=True):
    """What a definition says of how many, for runs of it that are queued already."""

    concurrency_limit: int | None
    throttle_limit: int | None
    # In microseconds.
    throttle_period: int | None


def graph_paces(definition: Definition) -> Paces:
    """What a definition that is data says of it."""
    concurrency, throttle = definition.policy.concurrency, definition.policy.throttle
    return Paces(
        None if concurrency is None else concurrency.limit,
        None if throttle is None else throttle.limit,
        None if throttle is None else int(seconds(throttle.per) * SECOND),
    )


class Amendment(msgspec.Struct):
    """A change of a definition and all that belongs to it, made at once or not at all."""

    # As it will be, with the serial it will have: made from the one before.
    definition: DefinitionRecord
    draft: DraftRecord | msgspec.UnsetType | None = msgspec.UNSET
    document: str | None = None
    revision: RevisionRecord | None = None
    version: VersionRow | None = None
    paces: Paces | None = None
    # What it has said of that to runs that are queued by now.
    paces_before: list[Paces] = []
    proposal: ProposalRecord | None = None
    # Triggers that are new or were changed, and those that are to go.
    triggers: list[TriggerRecord] = []
    removed: list[TriggerRecord] = []
    deleted: bool = False
    # How many definitions the workspace may have, if this makes one more.
    most: int | None = None


Action = Literal["create", "update", "unchanged"]


class Upcoming(msgspec.Struct, frozen=True):
    """A schedule of a definition, and when it fires next."""

    trigger: str
    description: str
    # Times with the offset of the zone; none while it does not fire.
    next: list[str]


class PublishResult(msgspec.Struct, frozen=True):
    """What became of a document that was to be the current one."""

    definition: DefinitionRecord
    revision: RevisionRecord
    action: Action
    # Whether another revision is current now; there is none if the document means the same.
    created: bool
    # Warnings: with errors, nothing is published.
    problems: list[Problem]
    # All that the definition has now, by name.
    schedules: list[Upcoming] = []

    @property
    def subject(self) -> str:
        """What was published, for the audit log."""
        return self.definition.name

    @property
    def etag(self) -> str:
        return self.definition.etag


class HistoryRow(RevisionRecord, frozen=True):
    """A revision in the history of its definition."""

    current: bool = False


class Validation(msgspec.Struct, frozen=True):
    """What is wrong with a document, and what it means."""

    ok: bool
    # Empty if it cannot be told.
    hash: str
    problems: list[Problem]
    # The language it was written in, and what could not be carried over from that.
    dialect: str
    losses: list[Loss]
    # In the language of this system.
    document: Any


class Records(Protocol):
    """Records that change seldom. Changes raise Overtaken if another one came first."""

    async def definition(self, workspace_id: str, name: str) -> DefinitionRecord | None: ...

    async def definitions(self, workspace_id: str) -> list[DefinitionRecord]:
        """All of them, by name; without their layouts."""
        ...

    async def draft(self, workspace_id: str, definition: str) -> DraftRecord | None: ...

    async def amend(self, workspace_id: str, amendment: Amendment) -> Committed: ...

    async def queued_revisions(self, workspace_id: str, definition: str) -> list[str]:
        """The hashes of what runs of a definition execute that are queued for a limit."""
        ...

    async def document(self, workspace_id: str, hash: str) -> str | None: ...

    async def keep(self, workspace_id: str, hash: str, document: str, now: int) -> None:
        """Keep a document under its hash, or the one there is, which means the same."""
        ...

    async def prune_documents(self, before: int, now: int, limit: int) -> int:
        """Look at so many documents that nobody has kept since then; 0 when none is left.

        Those go that no revision, no version and no run names; for the others it is as if they
        were kept now.
        """
        ...

    async def labelled(self, workspace_id: str, definition: str, label: str) -> str | None:
        """The hash of what was called so last, also if it is called otherwise by now."""
        ...

    async def revisions(self, workspace_id: str, definition: str) -> list[RevisionRecord]:
        """What a definition has had published, the newest first."""
        ...

    async def proposal(self, workspace_id: str, proposal_id: str) -> ProposalRecord | None: ...

    async def proposals(
        self, workspace_id: str, definition: str | None, status: str | None = None, now: int = 0
    ) -> list[ProposalRecord]:
        """All proposals, or those for a definition or with a status by now, the newest first."""
        ...

    async def put_proposal(
        self, workspace_id: str, proposal: ProposalRecord, was: str | None
    ) -> None:
        """Write a proposal whose status was that; None if it is new."""
        ...

    async def gate(self, workspace_id: str, gate_id: str) -> GateRecord | None: ...

    async def gates(
        self, workspace_id: str, run_id: str | None = None, *, only_open: bool = True
    ) -> list[GateRecord]:
        """Gates, oldest first: all, or those of a run and then those of runs below it.

        Nobody waits at those that are not open, nor at any of a run that has ended.
        """
        ...

    async def late_gates(self, workspace_id: str, now: int, limit: int) -> list[GateRecord]:
        """Some gates that are open although their time is up."""
        ...

    async def open_gate(self, workspace_id: str, gate: GateRecord) -> GateRecord:
        """Open a gate, unless its run has one under that key; the one there is."""
        ...

    async def change_gate(
        self, workspace_id: str, gate: GateRecord, signal: SendSignal | None = None
    ) -> Committed:
        """Write a gate with the next serial, and send a signal to its run along with it."""
        ...

    async def secrets(self, workspace_id: str) -> list[SecretRecord]: ...

    async def put_secret(self, workspace_id: str, secret: SecretRecord) -> None: ...

    async def replace_secret(self, workspace_id: str, secret: SecretRecord, was: str) -> bool:
        """Seal a secret anew if it is still sealed as it was; whether it is."""
        ...

    async def delete_secret(self, workspace_id: str, name: str) -> bool: ...


class Triggers(Protocol):
    """What starts runs. Changes raise Overtaken if another one came first."""

    async def trigger(self, workspace_id: str, trigger_id: str) -> TriggerRecord | None: ...

    async def trigger_at(self, workspace_id: str, path: str) -> TriggerRecord | None:
        """The webhook with that path."""
        ...

    async def triggers(
        self, workspace_id: str, definition: str | None = None
    ) -> list[TriggerRecord]: ...

    async def due(
        self, workspace_id: str, now: int, limit: int, after: TriggerRecord | None = None
    ) -> list[TriggerRecord]:
        """Those that have to fire by now, in order of time; those behind `after`."""
        ...

    async def next_at(self, workspace_id: str, now: int) -> int | None:
        """When the first of them has to fire that has not to by now."""
        ...

    async def listening(self, workspace_id: str, types: Sequence[str]) -> list[TriggerRecord]:
        """Those that fire for events of these types."""
        ...

    async def put(self, workspace_id: str, trigger: TriggerRecord) -> Committed:
        """Write a trigger with the next serial; one with the serial 1 is new."""
        ...

    async def delete(self, workspace_id: str, trigger_id: str) -> bool: ...

    async def fire(
        self, workspace_id: str, firings: Sequence[Firing], starts: Sequence[StartRun],
        refusals: Sequence[RefusalRecord] = (), events: Sequence[str] = (),
    ) -> Committed:  # fmt: skip
        """Start runs, and say in the same transaction that triggers have fired for that.

        `events` are those that were pending and have been seen to. A trigger whose last run is
        one that was not started, because there was one for it already, is said to have fired that.
        """
        ...

    async def pending_events(self, workspace_id: str, limit: int) -> list[tuple[int, EventRecord]]:
        """Events that some trigger may fire for, in order, with their places."""
        ...

    async def events(
        self, workspace_id: str, type: str | None, before: str | None, limit: int
    ) -> list[EventRecord]:
        """Events of the workspace, the newest first."""
        ...

    async def refuse(self, workspace_id: str, refusals: Sequence[RefusalRecord]) -> None: ...

    async def refusals(
        self, workspace_id: str, trigger_id: str | None, limit: int
    ) -> list[RefusalRecord]:
        """Firings that started nothing, the newest first."""
        ...

    async def prune_refusals(self, before: int, limit: int) -> int:
        """Delete up to so many refusals from before then; how many there were."""
        ...

    async def take(self, key: str, limit: int, period: int, now: int) -> int:
        """Take one of `limit` that a bucket holds and that come back within `period`.

        How long to wait, in microseconds, if it is empty; 0 if one was taken.
        """
        ...

    async def prune_buckets(self, before: int, limit: int) -> int:
        """Forget up to so many buckets that were full by then; how many there were."""
        ...

    async def prune_turns(self, before: int, limit: int) -> int:
        """Forget up to so many turns that no throttle counts any more; how many there were."""
        ...

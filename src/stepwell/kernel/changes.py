"""Changes: everything that alters a run, as plain values.

A change names what became true; a store applies it. Sending one twice does no harm: starts,
events and signals carry their own ids, and whatever belongs to a held run is checked
against its owner and fence and writes the same row again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stepwell.kernel.matching import filed_under
from stepwell.kernel.pacing import Debounce, Quota, Throttle


class Held(msgspec.Struct, gc=False):
    """A run as its worker holds it: the proof that goes along with every write."""

    run_id: str
    owner: str
    fence: int
    # The position last given to a journal entry of this run, and the batch it went with.
    position: int = 0
    batch: int = -1
    # What it was claimed as, for whoever tells of what becomes of it.
    claimed: ClaimedRun | None = None


# A journal position is the number of a commit, then the place within it: entries that share
# a commit became visible together, in that order.
GROUP_BITS = 20


class StartRun(msgspec.Struct, gc=False):
    """A run to be admitted. Outcome: (run id, whether it was created now)."""

    id: str
    workspace_id: str
    definition: str
    version: int
    program: str
    input: str
    created_at: int
    due_at: int
    retention_seconds: int
    priority: int = 0
    idempotency_key: str | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    parent_run_id: str | None = None
    forked_from: str | None = None
    key_base: str | None = None
    deadline_at: int | None = None
    ttl_at: int | None = None
    # (limit key, how many at once)
    limits: list[tuple[str, int]] = []
    # How many may queue for slots when none is free.
    max_queued: int | None = None
    # The parent as its worker holds it, when its program starts a child.
    held: Held | None = None
    # Journal entries a fork begins with: (key of the first step it leaves out, retry or not).
    fork_from_step: str | None = None
    fork_for_retry: bool = False
    # The hash of the document it executes, if its definition is data.
    revision: str | None = None
    # JSON that says what started it.
    trigger: str | None = None
    # What it may have to wait for, or be refused by.
    throttle: Throttle | None = None
    debounce: Debounce | None = None
    quota: Quota | None = None

    @property
    def filed(self) -> list[tuple[str, int, int | None]]:
        """All it has to find room in: (limit key, how many, for how long one of a throttle counts).

        A concurrency limit counts runs until they end.
        """
        found: list[tuple[str, int, int | None]] = [(key, n, None) for key, n in self.limits]
        if (throttle := self.throttle) is not None:
            found.append((throttle.key, throttle.limit, throttle.period))
        return found

    @property
    def terms(self) -> list[int]:
        """What it is found by: so say parts of its input."""
        return filed_under(self.input)

    @property
    def is_paced(self) -> bool:
        return not (self.throttle is None and self.debounce is None and self.quota is None)

    @property
    def expires_at(self) -> int | None:
        """When a pending run ends by itself."""
        return self.expires_if_due(self.due_at)

    def expires_if_due(self, due_at: int | None) -> int | None:
        """The same if it is due at another time, or only waits for room."""
        later = max(due_at or 0, self.created_at) - self.due_at
        ttl_at = None if self.ttl_at is None else self.ttl_at + later
        return min((at for at in (self.deadline_at, ttl_at) if at is not None), default=None)


class RecordStep(msgspec.Struct, gc=False):
    """A journal entry of a held run. With `settles`, the wait of that key has served.

    The first that settles a key stays, except that `skipped` replaces a result: the program gave
    the operation up before the result reached it. With `in_place`, it has its position already:
    that of the entry it replaces.
    """

    held: Held
    key: str
    seq: int
    kind: str
    status: str
    attempts: int
    output: str | None
    error: str | None
    started_at: int
    completed_at: int | None
    settles: bool = False
    position: int = 0
    in_place: bool = False
    # When the attempt began that it tells of, if it had several; this is not kept.
    began_at: int | None = None


class LogAttempt(msgspec.Struct, gc=False):
    """A failed attempt that another one may follow."""

    held: Held
    key: str
    number: int
    error: str
    started_at: int
    failed_at: int


class OpenWait(msgspec.Struct, gc=False):
    """What a held run waits for from now on."""

    held: Held
    key: str
    seq: int
    kind: str
    created_at: int
    due_at: int | None = None
    event: str | None = None
    match: str | None = None
    term: str = ""
    since: int | None = None
    child_run_id: str | None = None
    # JSON that says what is wanted, for people and agents.
    about: str | None = None


class ParkRun(msgspec.Struct, gc=False):
    """A held run that waits for these keys only. It is given back until one of them ends."""

    held: Held
    keys: list[str]
    # When to take it up again all the same: its program may be busy with something unseen, which
    # is lost with its worker.
    look_at: int | None = None


class RestRun(msgspec.Struct, gc=False):
    """A parked run that was seen to do nothing but wait: there is no need to look at it before."""

    held: Held
    keys: list[str]


class WatchWaits(msgspec.Struct, gc=False):
    """A held run that waits while it also works: its worker is to be told when a wait ends."""

    held: Held
    keys: list[str]


class ResumeRun(msgspec.Struct, gc=False):
    """A parked run whose program goes on by itself after all. Outcome: its new fence, or None."""

    held: Held


class ReleaseRun(msgspec.Struct, gc=False):
    """A held run its worker gives back unfinished, to be taken up at once by anyone.

    By anyone who has `program`, if it turned out to need another one.
    """

    held: Held
    program: str | None = None


class EndRun(msgspec.Struct, gc=False):
    """The end of a held run."""

    held: Held
    status: str
    output: str | None
    error: str | None
    completed_at: int


class EmitEvent(msgspec.Struct, gc=False):
    """An event of the workspace. Outcome: whether it is new."""

    id: str
    workspace_id: str
    type: str
    payload: str
    created_at: int
    key: str | None = None
    once: bool = False
    held: Held | None = None
    # Another one of its type with this is the same, sent again.
    idempotency_key: str | None = None
    # The trace of whoever emitted it.
    traceparent: str | None = None

    @property
    def once_key(self) -> str | None:
        """What no other event of its type may have; what is chosen for `once` is printable."""
        if self.once:
            return self.key or ""
        return None if self.idempotency_key is None else f"\x1f{self.idempotency_key}"


class SendSignal(msgspec.Struct, gc=False):
    """An event addressed to one run. Outcome: whether the run could still receive it."""

    id: str
    workspace_id: str
    run_id: str
    type: str
    payload: str
    created_at: int
    # Another one of its name to the same run with this is the same, sent again.
    idempotency_key: str | None = None

    @property
    def once_key(self) -> str | None:
        """What no other signal or event of its name may have."""
        key = self.idempotency_key
        return None if key is None else f"\x1d{self.run_id}\x1d{key}"


class CancelRun(msgspec.Struct, gc=False):
    """The end of a run and its children, asked for from outside. Outcome: whether it did."""

    run_id: str
    workspace_id: str
    cancelled_at: int
    # The run that has started it and does not want it any more, if one asks for it.
    held: Held | None = None
    # Sent once more, because the acknowledgement was lost: it may have been this that did it.
    resent: bool = False

    def did(self, status: str, completed_at: int | None) -> bool:
        """Whether a run that has ended so was ended by this very change."""
        return self.resent and (status, completed_at) == ("cancelled", self.cancelled_at)


class ClaimRuns(msgspec.Struct, gc=False):
    """A worker asks for runs it can execute. Outcome: Claimed."""

    workspace_id: str
    worker_id: str
    programs: list[str]
    limit: int
    # Set when the claim is sent, so that it sees all that its own batch makes due; and again, if
    # the writer sends it, when a store gets to it.
    now: int = 0
    dated: bool = False
    sweep: bool = False
    # What the worker knows it holds. Anything else it holds was claimed in a commit whose
    # acknowledgement got lost; when sweeping or resending, it is claimed again.
    known: list[str] = []
    resent: bool = False
    # How many that may take their worker down it takes up, also before they are due, because
    # others of them got on; none of these: one that is due.
    suspects: int = 0


Change = (
    StartRun
    | RecordStep
    | LogAttempt
    | OpenWait
    | ParkRun
    | RestRun
    | WatchWaits
    | ResumeRun
    | ReleaseRun
    | EndRun
    | EmitEvent
    | SendSignal
    | CancelRun
    | ClaimRuns
)


def run_ids_of(change: Change) -> list[str]:
    """The runs that exist already and that the change is about."""
    held = getattr(change, "held", None)
    found = (getattr(held, "run_id", None), getattr(change, "run_id", None))
    return [run_id for run_id in found if run_id is not None]


class JournalRow(msgspec.Struct, array_like=True, gc=False):
    """A journal entry as a claim brings it along."""

    key: str
    seq: int
    position: int
    kind: str
    status: str
    attempts: int
    output: str | None
    error: str | None
    started_at: int
    completed_at: int | None


class WaitRow(msgspec.Struct, array_like=True, gc=False):
    """A wait as a claim brings it along; `result` is set once it has ended."""

    key: str
    seq: int
    kind: str
    due_at: int | None
    child_run_id: str | None
    created_at: int
    ended_at: int | None
    result: str | None


class ClaimedRun(msgspec.Struct, gc=False):
    """A run with all that is needed to go on with it."""

    id: str
    definition: str
    version: int
    program: str
    fence: int
    attempt: int
    input: str
    created_at: int
    deadline_at: int | None
    idempotency_key: str | None
    key_base: str | None
    revision: str | None = None
    trigger: str | None = None
    # True when this worker holds the run already: only its waits have news.
    nudge: bool = False
    journal: list[JournalRow] = []
    waits: list[WaitRow] = []
    # Since when it could have been claimed, if the store can tell.
    due_at: int | None = None


class Claimed(msgspec.Struct):
    """What a claim found, and when to look again."""

    runs: list[ClaimedRun]
    next_at: int | None
    more: bool = False
    # The worker's lease has ended: it holds nothing any more and gets nothing.
    lease_lost: bool = False
    # Whether a sweep that was asked for left something to the next one.
    unswept: bool = False


class Committed(msgspec.Struct):
    """What a commit did: an outcome for each change, and what others should hear of."""

    outcomes: list[Any]
    # Runs that were ended or set free by others than their worker, with the worker that held them.
    stopped: list[tuple[str, str | None]] = []
    ended: list[str] = []
    # Whether some run became due.
    due: bool = False
    # Whether some trigger may have to fire.
    firing: bool = False
    # How long it took, in microseconds, as its writer saw it.
    took: int = 0


FENCED = "fenced"

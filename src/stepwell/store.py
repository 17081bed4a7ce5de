"""The contract of a store: where runs, journals, waits and events live.

A store applies *changes* in batches: all of a batch is durable when `commit` returns. A batch is
one transaction, except where nobody could tell: ends of runs that concern no other run, and a
start before the claim that shares its batch. Within a batch, kinds are applied in a fixed order —
starts, journal entries, failed attempts, waits, signals, events, ends, parks, rests, watches,
resumes, releases, cancels, claims — so that what shares a commit sees itself in the order of
cause and effect. A batch holds nothing that a run asked for after the change by which it began
to wait: that comes with the next one. A change of a held run whose owner or fence no longer fits
has the outcome `FENCED` and writes nothing.

A store raises StoreUnavailable when it cannot be reached; the same batch may then be sent
again, whether or not it was applied. It raises ChangeBlocked when some change of a batch has
to wait for a transaction that is not a store's own, and names the runs that this one holds if
it can tell; nothing of the batch was applied then but what is apart from the rest of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from stepwell.access import Access
from stepwell.kernel.changes import Change, Committed, StartRun
from stepwell.kernel.clock import SECOND, Clock
from stepwell.kernel.explaining import RunFacts
from stepwell.kernel.ids import lowest_id
from stepwell.kernel.progress import Place, Progress
from stepwell.kernel.run import Run, Step, WorkerInfo
from stepwell.record import Records, Triggers, VersionRow


class WorkerRow(msgspec.Struct):
    """What a worker says of itself when it starts."""

    id: str
    workspace_id: str
    host: str
    pid: int
    pid_started: str
    concurrency: int
    programs: list[str]
    started_at: int
    lease_seconds: float


class RunFilter(msgspec.Struct):
    """Which runs a list shows."""

    workspace_id: str
    status: list[str] | None = None
    definition: str | None = None
    since: int | None = None
    until: int | None = None
    input: dict[str, Any] | None = None
    before_id: str | None = None
    limit: int = 50

    @property
    def since_id(self) -> str | None:
        """Runs created since then have no lower id.

        A run has its id and its time from the same clock, the id right after the time. The
        seconds to spare are for a clock that is set back just then.
        """
        return None if self.since is None else lowest_id(self.since - 10 * SECOND)

    @property
    def until_id(self) -> str | None:
        """Runs created before then have no higher id.

        Ids do not go back when a clock is set back, which this has ten minutes to spare for.
        """
        return None if self.until is None else lowest_id(self.until + 600 * SECOND)


class Found(NamedTuple):
    """A part of a list of runs."""

    runs: list[Run]
    # The run behind which the list goes on; None at its end.
    after: str | None


class RunOutline(msgspec.Struct, frozen=True, gc=False):
    """The little that is told of a run to those who watch the engine."""

    id: str
    definition: str
    version: int
    status: str
    created_at: int
    completed_at: int | None
    # JSON that says what started it.
    trigger: str | None


class Heard(msgspec.Struct, frozen=True):
    """What another process may have done."""

    # A run that was stopped, and the worker that held it; else some run may have become due.
    stopped: tuple[str, str | None] | None = None
    # Whether some trigger may have to fire.
    firing: bool = False


Notice = Callable[[Heard], None]


class Store(Protocol):
    """What every store does. All methods may raise StoreUnavailable."""

    clock: Clock

    @property
    def records(self) -> Records: ...

    @property
    def triggers(self) -> Triggers: ...

    @property
    def access(self) -> Access: ...

    async def open(self) -> None:
        """Connect and check the schema; an empty store is given its tables."""
        ...

    async def close(self) -> None: ...

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; the names of the migrations applied."""
        ...

    async def commit(self, batch: Sequence[Change]) -> Committed:
        """Apply changes in one durable transaction."""
        ...

    def watch(self, notice: Notice) -> None:
        """Call back when another process may have made something due, or stopped a run."""
        ...

    def announce(self, committed: Committed) -> None:
        """Let other processes know; may be lost, so nothing may depend on it."""
        ...

    async def register(self, workspace_id: str, definitions: Sequence[VersionRow]) -> None:
        """Make definitions known, and bring their limits up to date."""
        ...

    async def version(self, workspace_id: str, name: str, version: int | None) -> VersionRow | None:
        """That version of a definition, or its highest."""
        ...

    async def definition_names(self, workspace_id: str) -> list[str]:
        """The names of all that were registered, in order."""
        ...

    async def enlist(self, worker: WorkerRow) -> None:
        """Begin a worker's lease."""
        ...

    async def heartbeat(self, worker_id: str, lease_seconds: float) -> bool:
        """Renew a lease; False if it was lost."""
        ...

    async def retire(self, worker_ids: Sequence[str], *, alive: bool = False) -> None:
        """End leases at once. What workers that are `alive` still hold is free, and no crash."""
        ...

    async def workers(self, workspace_id: str) -> list[WorkerInfo]: ...

    async def worker_processes(self) -> list[tuple[str, str, int, str]]:
        """Id, host, pid and start of the process of every worker with a lease or runs."""
        ...

    async def lost(self, held: Sequence[tuple[str, str, int]]) -> list[str]:
        """Of these runs (id, owner, fence), those no longer held so."""
        ...

    async def get_run(self, workspace_id: str, run_id: str) -> Run | None: ...

    async def started(self, workspace_id: str, definition: str, key: str) -> str | None:
        """The run that a start of the definition with that idempotency key has given."""
        ...

    async def ended(self, run_ids: Sequence[str]) -> list[str]:
        """Of these runs, those that have ended, or are gone."""
        ...

    async def list_runs(self, where: RunFilter) -> Found:
        """Runs that fit, the newest first; fewer than wanted if looking on would take long."""
        ...

    async def count_runs(self, workspace_id: str) -> dict[str, dict[str, int]]:
        """How many runs of each definition are in each status."""
        ...

    async def outlines(self, run_ids: Sequence[str]) -> list[RunOutline]:
        """What these runs are of and how they stand, as far as they are there."""
        ...

    async def unclaimed(self, workspace_id: str, before: int) -> tuple[int, str | None]:
        """How many runs have been due since then without anyone taking them, and the oldest."""
        ...

    async def steps(self, run_id: str) -> list[Step]:
        """The journal of a run, in order of call, its open waits included."""
        ...

    async def progress(self, workspace_id: str, places: Sequence[Place]) -> list[Progress | None]:
        """What lies behind these places in the journals of runs; None for a run there is not."""
        ...

    async def facts(self, workspace_id: str, run_id: str) -> RunFacts | None:
        """What an explanation of the run's state needs to know."""
        ...

    async def prune(self, now: int, limit: int, rows: int) -> int:
        """Delete runs whose retention has passed; how many there were, 0 when none is left.

        At a time go up to `limit` runs, and no more than have `rows` rows between them (steps,
        signals and the like); a run that has more by itself goes alone.
        """
        ...

    async def prune_events(self, before: int, limit: int) -> int:
        """Delete up to so many events of workspaces from before then; how many there were."""
        ...

    async def sweep(self) -> Committed:
        """Do what claims do now and then: free what dead workers held, end what is late."""
        ...

    async def take_duty(self, name: str, worker_id: str, seconds: float) -> bool:
        """Whether this worker has the duty for so long; one worker at a time does."""
        ...

    async def start_in(self, connection: Any, change: StartRun) -> tuple[str, bool]:
        """Start a run inside a transaction of the caller's own."""
        ...

"""The one door: everything that starts a run or sends an event is prepared here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from stepwell.engine.admission import (
    Bounds,
    policy_key,
    read_debounce,
    read_throttle,
    with_policy,
)
from stepwell.engine.revisions import Revision, Revisions
from stepwell.engine.sharing import SharedReads
from stepwell.errors import DefinitionDisabled, InvalidInput, InvalidName, UnknownDefinition
from stepwell.graph.inputs import WHAT
from stepwell.kernel.changes import CancelRun, EmitEvent, SendSignal, StartRun
from stepwell.kernel.clock import SECOND, Clock, to_micros
from stepwell.kernel.codec import encode
from stepwell.kernel.durations import Duration, check_deadline, seconds
from stepwell.kernel.gates import SIGNALS
from stepwell.kernel.ids import Ids
from stepwell.kernel.limits import definition_limit, has_queue, key_limit
from stepwell.kernel.names import (
    MAX_LENGTH,
    check_count,
    check_run_id,
    check_text,
    did_you_mean,
    some_of,
)
from stepwell.kernel.pacing import faulty_priority
from stepwell.kernel.programs import code_program
from stepwell.kernel.run import Run
from stepwell.kernel.tracing import TRACEPARENT, read_traceparent
from stepwell.record import VersionRow, graph_version
from stepwell.store import Store

DEFAULT_RETENTION_SECONDS = 30 * 86_400
# What started a run that no trigger did; with `by`, who.
MANUAL = {"type": "manual"}


class StartOptions(TypedDict, total=False):
    """What whoever starts a run may say besides definition and input."""

    # A second start with this key gives back the first one's run.
    idempotency_key: str | None
    # Of the definition; unless said, the highest that this process has, else the store.
    version: int | None
    # How long to wait before it may be claimed.
    delay: Duration | None
    # When it ends as timed_out at the latest: so long after its start, or a time.
    deadline: Duration | datetime | None
    # Higher first.
    priority: int
    # At most `concurrency_limit` runs with this key are active at once.
    concurrency_key: str | None
    concurrency_limit: int
    # Refused if no slot is free and so many are queued already.
    max_queued_runs: int | None
    # How long it is kept after its end.
    retention: Duration | None
    # How long it may stay pending once it may begin.
    ttl: Duration | None
    # Who starts it, as the run's trigger says; the operator may limit how many each has at once.
    user: str | None
    # {"limit", "per", "key"}: at most so many begin in any time of that length.
    throttle: Mapping[str, Any] | None
    # {"wait", "max", "key"}: begins when nothing has come for so long, with the last input.
    debounce: Mapping[str, Any] | None
    # The W3C trace context that it belongs to; one that is malformed counts as none.
    traceparent: str | None


class Starter:
    """Turns the arguments of a start into a change, checking every one of them."""

    def __init__(
        self, store: Store, clock: Clock, ids: Ids, workspace_id: str,
        versions: Iterable[VersionRow], revisions: Revisions, bounds: Bounds,
    ) -> None:  # fmt: skip
        self._store = store
        self._clock = clock
        self._ids = ids
        self._workspace_id = workspace_id
        self._revisions = revisions
        self._bounds = bounds
        self._max_bytes = bounds.max_bytes
        self._stored = SharedReads(self._read_version)
        self._known: dict[str, VersionRow] = {}
        self._versions: dict[tuple[str, int], VersionRow] = {}
        for row in versions:
            self._versions[row.name, row.version] = row
            best = self._known.get(row.name)
            if best is None or row.version > best.version:
                self._known[row.name] = row

    async def prepare(
        self, definition: str, input: Any = None, *, parent_run_id: str | None = None,
        parent_deadline_at: int | None = None, trigger: Mapping[str, Any] | None = None,
        pinned: VersionRow | None = None, loose: bool = False, copied: bool = False,
        **options: Unpack[StartOptions],
    ) -> StartRun:  # fmt: skip
        """A start of the named definition's highest version, or of the one given.

        `trigger` is what started it, which is told the user; `pinned` is a version that nobody has
        to look for. With `loose`, the input may have fields that the definition does not know:
        they are left out.
        What is `copied` has a journal of its own, and a child is waited for: neither is debounced.
        """
        if unknown := options.keys() - StartOptions.__annotations__.keys():
            raise InvalidInput(
                f"A start has no option {', '.join(sorted(unknown))}; "
                f"it has {', '.join(sorted(StartOptions.__annotations__))}."
            )
        if "concurrency_limit" in options and options.get("concurrency_key") is None:
            raise InvalidInput("concurrency_limit needs a concurrency_key, whose runs it counts.")
        if (deadline := options.get("deadline")) is not None:
            check_deadline(deadline)
        if (trace := _written(options.get("traceparent"))) is not None:
            trigger = {**(trigger or MANUAL), TRACEPARENT: trace}
        if (user := options.get("user")) is not None:
            trigger = {**(trigger or MANUAL), "by": check_text(user, "A user's name")}
        check_text(definition, "A definition's name")
        row = pinned or await self.find(definition, options.get("version"))
        if not row.enabled:
            raise DefinitionDisabled(
                f"The definition {definition!r} is disabled. Enable it: `stepwell definitions "
                f"enable {definition}`.",
                definition=definition,
            )
        paced_by = row
        if row.revision is not None:
            revision = current = await self._revisions.get(row.revision)
            inputs = revision.inputs
            input = inputs.prepared(inputs.known(input) if loose else input, self._max_bytes)
            if copied or options.get("version") is not None:
                paced_by, current = await self._current(row, revision)
            options = with_policy(options, revision.definition, current.definition, input, trigger)
        if copied or parent_run_id is not None:
            options["debounce"] = None
        change = self._prepare(row, paced_by, input, parent_deadline_at, **options)
        change.parent_run_id = parent_run_id
        if trigger is not None:
            change.trigger = encode(trigger, "What started the run")
        return change

    def _prepare(
        self,
        row: VersionRow,
        paced_by: VersionRow,
        input: Any,
        parent_deadline_at: int | None,
        *,
        idempotency_key: str | None = None,
        version: int | None = None,
        delay: Duration | None = None,
        deadline: Duration | datetime | None = None,
        priority: int = 0,
        concurrency_key: str | None = None,
        concurrency_limit: int = 1,
        retention: Duration | None = None,
        ttl: Duration | None = None,
        user: str | None = None,
        throttle: Mapping[str, Any] | None = None,
        debounce: Mapping[str, Any] | None = None,
        max_queued_runs: int | None = None,
        traceparent: str | None = None,
    ) -> StartRun:
        now = self._clock.now()
        definition = row.name
        _checked(idempotency_key)
        if (said := faulty_priority(priority)) is not None:
            raise InvalidInput(said)
        if debounce is not None and not (throttle is None and delay is None):
            raise InvalidInput(
                "A debounce says when the run begins: it cannot have a throttle or a delay too."
            )
        debounced = read_debounce(debounce, f"{self._workspace_id}/{definition}")
        due_at = now + (_micros(delay, "delay") if debounced is None else debounced.wait)
        deadline_at = self._deadline(row, deadline, now, parent_deadline_at)
        if debounced is not None and deadline_at is not None and deadline_at <= due_at:
            raise InvalidInput("The deadline is over before the debounced run begins.")
        limits = []
        # The highest version decides for all of them, as far as it is known here.
        best = self._known.get(definition, paced_by)
        best = best if best.version > paced_by.version else paced_by
        most = best.max_concurrent_runs
        if most is not None:
            limits.append((definition_limit(self._workspace_id, definition), most))
        limits += self._bounds.limits(self._workspace_id, definition, user)
        check_count(concurrency_limit, "concurrency_limit")
        if concurrency_key is not None:
            check_text(concurrency_key, "concurrency_key")
            limits.append((key_limit(self._workspace_id, concurrency_key), concurrency_limit))
        if max_queued_runs is not None:
            check_count(max_queued_runs, "max_queued_runs", least=0)
            if not any(has_queue(key) for key, _ in limits):
                raise InvalidInput("max_queued_runs is for what has to wait for slots of a limit.")
        else:
            max_queued_runs = best.max_queued_runs
        return StartRun(
            id=self._ids.new(),
            workspace_id=self._workspace_id,
            definition=definition,
            version=row.version,
            program=row.program,
            input=encode(input, WHAT, self._max_bytes),
            created_at=now,
            due_at=due_at,
            retention_seconds=self._retention(row, retention),
            priority=priority,
            idempotency_key=idempotency_key,
            concurrency_key=concurrency_key,
            concurrency_limit=None if concurrency_key is None else concurrency_limit,
            deadline_at=deadline_at,
            # It counts from when the run may begin.
            ttl_at=None if ttl is None else due_at + _micros(ttl, "ttl"),
            limits=limits,
            max_queued=max_queued_runs,
            revision=row.revision,
            throttle=read_throttle(throttle, f"{self._workspace_id}/{definition}"),
            debounce=debounced,
            quota=self._bounds.quota(self._workspace_id, now),
        )

    async def _current(self, row: VersionRow, revision: Revision) -> tuple[VersionRow, Revision]:
        """The current version of a definition that is data, for runs of another one.

        A document that was never published, or whose definition is gone, is its own.
        """
        found = await self._stored.get((row.name, None)) if row.version else None
        if found is None or found.revision is None:
            return row, revision
        return found, await self._revisions.get(found.revision)

    async def is_keyed_by_policy(self, run: Run) -> bool:
        """Whether a run has its concurrency key of its definition, and was not given it.

        Of some revision: the one that was current when it was started may not be its own.
        """
        if run.revision is None:
            return False
        for revision in await self._revisions.known(run.definition, run.revision):
            if run.concurrency_key == policy_key(revision.definition, run.input, run.trigger):
                return True
        return False

    async def version_of(self, revision: str, number: int) -> VersionRow:
        """The version that a document is, whether or not it was published."""
        found = await self._revisions.get(revision)
        return graph_version(found.definition, number, revision)

    async def check_readable(self, definition: str) -> None:
        """Raise if this process cannot read what a start of the definition would execute."""
        row = await self.find(definition, None)
        if row.revision is not None:
            await self._revisions.get(row.revision)

    async def find(self, name: str, version: int | None) -> VersionRow:
        """The version of a definition that a start is of: the one given, else the highest."""
        if version is not None:
            check_count(version, "version")
        known = self._known.get(name) if version is None else self._versions.get((name, version))
        row = known or await self._stored.get((name, version))
        if row is None and version is not None:
            # A version nobody has registered yet: some worker may bring it.
            latest = self._known.get(name) or await self._stored.get((name, None))
            if latest is not None and latest.kind == "graph":
                raise UnknownDefinition(
                    f"The definition {name!r} has no version {version}; its last is "
                    f"{latest.version}.",
                    definition=name,
                )
            if latest is not None:
                row = VersionRow(
                    name, version, latest.kind, code_program(name, version),
                    latest.retention_seconds, latest.max_concurrent_runs, latest.deadline_seconds,
                    max_queued_runs=latest.max_queued_runs,
                )  # fmt: skip
        if row is None:
            raise await self._unknown(name)
        return row

    async def _unknown(self, name: str) -> UnknownDefinition:
        if await self._store.records.definition(self._workspace_id, name) is not None:
            said = (
                f"The definition {name!r} has not been published yet. Publish its draft: "
                f"`stepwell definitions draft publish {name}`."
            )
        else:
            names = await self._store.definition_names(self._workspace_id)
            said = (
                f"There is no definition {name!r} in this store.{did_you_mean(name, names)} It has "
                f"{some_of(names) or 'none'}. Pass what is missing to Stepwell(workflows=…), start "
                "a worker that has it, or publish it: `stepwell definitions publish FILE`."
            )
        return UnknownDefinition(said, definition=name)

    async def _read_version(self, wanted: tuple[str, int | None]) -> VersionRow | None:
        return await self._store.version(self._workspace_id, *wanted)

    def _retention(self, row: VersionRow, retention: Duration | None) -> int:
        wanted: float = DEFAULT_RETENTION_SECONDS
        if retention is not None:
            wanted = seconds(retention, "retention")
        elif row.retention_seconds is not None:
            wanted = row.retention_seconds
        return int(min(wanted, self._bounds.max_retention_seconds))

    def _deadline(
        self, row: VersionRow, deadline: Duration | datetime | None, now: int, parent: int | None
    ) -> int | None:
        found = [] if parent is None else [parent]
        if isinstance(deadline, datetime):
            found.append(to_micros(deadline))
        elif deadline is not None:
            found.append(now + _micros(deadline, "deadline"))
        elif row.deadline_seconds is not None:
            found.append(now + int(row.deadline_seconds * SECOND))
        return min(found, default=None)

    def cancellation(self, run_id: str) -> CancelRun:
        """The end of a run and of all below it."""
        return CancelRun(run_id, self._workspace_id, self._clock.now())

    def event(
        self, type: str, payload: Any, key: str | None, once: bool,
        idempotency_key: str | None = None, traceparent: str | None = None,
    ) -> EmitEvent:  # fmt: skip
        """An event of the workspace; `traceparent` is the trace of whoever emits it."""
        return EmitEvent(
            id=self._ids.new(),
            workspace_id=self._workspace_id,
            type=_open_name(check_text(type, "An event's type")),
            payload=encode(payload, "The event's payload", self._max_bytes),
            created_at=self._clock.now(),
            key=None if key is None else check_text(key, "An event's key"),
            once=once,
            idempotency_key=_checked(idempotency_key),
            traceparent=_written(traceparent),
        )

    def signal(
        self, run_id: str, type: str, payload: Any, *, idempotency_key: str | None = None
    ) -> SendSignal:
        """An event addressed to one run."""
        return SendSignal(
            id=self._ids.new(),
            workspace_id=self._workspace_id,
            run_id=check_run_id(run_id),
            # Also `resolve:` and the key of a step, which may be a long name with a number.
            type=_open_name(check_text(type, "A signal's name", MAX_LENGTH + 50)),
            payload=encode(payload, "The signal's payload", self._max_bytes),
            created_at=self._clock.now(),
            idempotency_key=_checked(idempotency_key),
        )


def without_starter(trigger: Any) -> Any:
    """What started a run, for a copy of it that somebody else may start."""
    if not isinstance(trigger, dict):
        return trigger
    return {name: value for name, value in trigger.items() if name != "by"}


def _written(traceparent: str | None) -> str | None:
    """A `traceparent` as it is kept; one that is malformed counts as none."""
    trace = read_traceparent(traceparent)
    return None if trace is None or trace.span_id is None else trace.at(trace.span_id)


def _checked(idempotency_key: str | None) -> str | None:
    return None if idempotency_key is None else check_text(idempotency_key, "idempotency_key")


def _micros(duration: Duration | None, what: str) -> int:
    return 0 if duration is None else int(seconds(duration, what) * SECOND)


def _open_name(name: str) -> str:
    """The name, unless it is one by which a gate tells its run of the decision."""
    if name.startswith(SIGNALS):
        raise InvalidName(f"{name!r} cannot be sent: gates are decided about, not signalled.")
    return name

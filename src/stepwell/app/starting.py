"""Starting runs: of definitions, of documents, and of what other runs have done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from stepwell.app.reading import Reading
from stepwell.app.run_handle import RunHandle
from stepwell.catalog import node_types
from stepwell.engine.crew import Crew
from stepwell.engine.observer import Observer
from stepwell.engine.starting import Starter, StartOptions, without_starter
from stepwell.errors import (
    DefinitionDisabled,
    InputInvalid,
    InputTooLarge,
    InvalidInput,
    QuotaExceeded,
    RunNotFailed,
    UnknownDefinition,
)
from stepwell.graph.documents import valid
from stepwell.kernel.changes import Committed, StartRun
from stepwell.kernel.names import check_text, copy_key, no_such_step
from stepwell.kernel.run import Run
from stepwell.operations.checking import check_document
from stepwell.record import VersionRow, graph_version
from stepwell.telemetry import Telemetry, trace_at_hand

# What may come to be in the way of a start after one with the same key has succeeded.
REFUSALS = (DefinitionDisabled, InputInvalid, InputTooLarge, QuotaExceeded, UnknownDefinition)


class Starting(Reading):
    """A workspace in which runs can be started."""

    _crew: Crew
    _observer: Observer
    _starter: Starter
    _telemetry: Telemetry

    async def start(
        self, definition: str, input: Any = None, *, connection: Any = None,
        **options: Unpack[StartOptions],
    ) -> RunHandle:  # fmt: skip
        """Start a run of the definition with this name; `options` are those of a start.

        With `connection` (asyncpg, PostgreSQL only) it starts in the caller's own transaction.
        """
        self._writer.check_open()
        try:
            change = await self._starter.prepare(definition, input, **self._traced(options))
        except REFUSALS:
            if (earlier := await self._earlier(definition, options)) is None:
                raise
            return earlier
        if connection is not None:
            run_id, created = await self.store.start_in(connection, change)
            self._observer.started([change], Committed([(run_id, created)]))
            return RunHandle(self, run_id, created, committed=False)
        return (await self._start([change]))[0]

    async def start_document(
        self, document: Mapping[str, Any], input: Any = None, *,
        trigger: Mapping[str, Any] | None = None, **options: Unpack[StartOptions],
    ) -> RunHandle:  # fmt: skip
        """Start a run of a document, whether or not it is published; the run is pinned to it."""
        found = await check_document(document, node_types())
        definition = valid(found)
        now = self.store.clock.now()
        await self.store.records.keep(self._workspace, found.hash, found.text, now)
        try:
            change = await self._starter.prepare(
                definition.name, input, trigger=trigger or {"type": "manual"},
                pinned=graph_version(definition, 0, found.hash), **self._traced(options),
            )  # fmt: skip
        except REFUSALS:
            if (earlier := await self._earlier(definition.name, options)) is None:
                raise
            return earlier
        return (await self._start([change]))[0]

    async def start_many(self, starts: Sequence[Mapping[str, Any]]) -> list[RunHandle]:
        """Start several runs in one commit; each mapping has `definition`, `input` and options."""
        given: object = starts
        if not isinstance(given, Iterable) or isinstance(given, Mapping):
            raise InvalidInput(f"start_many takes a list of mappings, not {starts!r}.")
        self._writer.check_open()
        changes: list[StartRun] = []
        rows: dict[Any, VersionRow] = {}
        for index, start in enumerate(starts):
            if not hasattr(start, "keys") or "definition" not in start:
                raise InvalidInput(f"start_many: item {index} must be a mapping with `definition`.")
            options: Any = {k: v for k, v in start.items() if k not in ("definition", "input")}
            definition = check_text(start["definition"], "A definition's name")
            wanted = (definition, options.get("version"))
            if wanted not in rows:
                rows[wanted] = await self._starter.find(*wanted)
            changes.append(
                await self._starter.prepare(
                    definition, start.get("input"), pinned=rows[wanted], **self._traced(options)
                )
            )
        return await self._start(changes) if changes else []

    def _traced(self, options: StartOptions) -> StartOptions:
        """The options of a start, which is part of the trace that whoever asks for it is."""
        trace = trace_at_hand(self._telemetry)
        if trace is None or "traceparent" in options:
            return options
        return {**options, "traceparent": trace}

    async def _earlier(self, definition: str, options: StartOptions) -> RunHandle | None:
        """The run that a start with the same key has given before this one was refused.

        Whoever repeats a start because its answer was lost must not hear that nothing was started.
        """
        if (key := options.get("idempotency_key")) is None:
            return None
        check_text(key, "idempotency_key")
        found = await self.store.started(self._workspace, definition, key)
        return None if found is None else RunHandle(self, found, created=False)

    async def _start(self, changes: Sequence[StartRun]) -> list[RunHandle]:
        submitted = self._writer.submit(*changes)
        self._crew.claim_soon()
        return [RunHandle(self, run_id, created) for run_id, created in await submitted]

    async def fork(
        self, run_id: str, from_step: str, *, input: Any = ..., version: int | None = None,
        idempotency_key: str | None = None, user: str | None = None,
    ) -> RunHandle:  # fmt: skip
        """A new run that has the journal of another up to `from_step` and goes on from there.

        `from_step` is a step's key, and the first that is executed anew. A second fork of the run
        with the same `idempotency_key` gives back the first one.
        """
        check_text(from_step, "from_step")
        origin = await self.get_run(run_id)
        keys = [step.key for step in await self.steps(run_id)]
        if from_step not in keys:
            raise no_such_step(run_id, from_step, keys)
        changed = origin.input if input is ... else input
        change = await self._copy(origin, changed, version, "fork", idempotency_key, user)
        change.fork_from_step = from_step
        return (await self._start([change]))[0]

    async def retry(
        self, run_id: str, *, idempotency_key: str | None = None, user: str | None = None
    ) -> RunHandle:
        """A new run that goes on where a failed, cancelled or timed out one stopped."""
        origin = await self.get_run(run_id)
        if not origin.ended or origin.status == "completed":
            raise RunNotFailed(
                f"Run {run_id} is {origin.status}; only failed, cancelled or timed out runs can "
                "be retried.",
                run_id=run_id,
            )
        change = await self._copy(origin, origin.input, None, "retry", idempotency_key, user)
        change.fork_for_retry = True
        change.fork_from_step = origin.error.step if origin.error is not None else None
        change.key_base = origin.key_base
        return (await self._start([change]))[0]

    async def _copy(
        self, origin: Run, input: Any, version: int | None, how: str, key: str | None,
        user: str | None,
    ) -> StartRun:  # fmt: skip
        options = StartOptions(
            user=user,
            version=origin.version if version is None else version,
            priority=origin.priority,
            retention=origin.retention_seconds,
        )
        if origin.concurrency_key is not None and not await self._starter.is_keyed_by_policy(
            origin
        ):
            options["concurrency_key"] = origin.concurrency_key
            options["concurrency_limit"] = origin.concurrency_limit or 1
        # As much time again as it had, if it had any.
        if origin.deadline_at is not None and origin.deadline_at > origin.created_at:
            options["deadline"] = origin.deadline_at - origin.created_at
        if key is not None:  # one that starts of the definition have may be the same
            options["idempotency_key"] = copy_key(how, origin.id, key)
        pinned = None
        if origin.revision is not None and version is None:
            pinned = await self._starter.version_of(origin.revision, origin.version)
        trigger = without_starter(origin.trigger)
        change = await self._starter.prepare(
            origin.definition, input, trigger=trigger, pinned=pinned, copied=True,
            **self._traced(options),
        )  # fmt: skip
        change.forked_from = origin.id
        return change

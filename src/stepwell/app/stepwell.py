"""The composition root: one Stepwell is a store, a writer, a starter and perhaps workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from stepwell.app.automation import Automation
from stepwell.app.keys import own_files
from stepwell.app.observing import Observing
from stepwell.app.operations import Operations
from stepwell.app.premises import Premises
from stepwell.app.reading import Reading
from stepwell.app.starting import Starting
from stepwell.catalog import check_url, node_types, plugged_in, store_for
from stepwell.engine.admission import Bounds
from stepwell.engine.crew import Crew
from stepwell.engine.feed import Feed
from stepwell.engine.graph_runs import GraphProgram
from stepwell.engine.node_call import NodeHost
from stepwell.engine.program import Program
from stepwell.engine.pruner import prune_once
from stepwell.engine.revisions import Revisions
from stepwell.engine.room import Room
from stepwell.engine.starting import Starter
from stepwell.engine.worker import Worker
from stepwell.errors import (
    InvalidName,
    NotOpen,
    StepNotFound,
)
from stepwell.graph.plan import Plan
from stepwell.kernel.clock import SystemClock
from stepwell.kernel.durations import Duration, lease_seconds, seconds
from stepwell.kernel.ids import Ids
from stepwell.kernel.names import (
    check_count,
    check_run_id,
    check_text,
    no_such_run,
)
from stepwell.kernel.programs import graph_programs
from stepwell.kernel.run import Run
from stepwell.kernel.tasks import advance_name, report_of
from stepwell.sdk.function import functions_by_name
from stepwell.sdk.workflow import Workflow, registry
from stepwell.settings import Settings
from stepwell.store import Store
from stepwell.telemetry import Telemetry, trace_at_hand


class Stepwell(Starting, Automation, Operations, Reading):
    """Durable runs in one store."""

    def __init__(
        self,
        url: str | None = None,
        workflows: Iterable[Workflow] = (),
        *,
        functions: Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]] = (),
        workspace: str = "default",
        settings: Settings | None = None,
        telemetry: Sequence[Telemetry] = (),
        store: Store | None = None,
        ids: Ids | None = None,
        premises: Premises | None = None,
    ) -> None:
        """To be opened once, with `async with`.

        `url` names the store, the setting STEPWELL_STORE unless said. `workflows` are those that
        its workers execute; without any it can still start, signal and look at runs of others.
        `functions` are what nodes of type `python` may call, by their names.
        Definitions, runs and events of one `workspace` do not see those of another. `settings`,
        a `stepwell.settings.Settings`, are read from the environment unless given. `telemetry`
        hears what becomes of runs. `store` and `ids` are for tests, `premises` for those who have
        several workspaces open: what it shares with them, and neither opens nor closes.
        """
        self._settings = settings or Settings.read()
        self._shares = premises is not None
        if premises is None:
            if store is None:
                url = check_url(self._settings.store, "STEPWELL_STORE") if url is None else url
                store = store_for(url, SystemClock())
            premises = Premises(store, self._settings, telemetry, ids)
        self._premises = premises
        self.store = premises.store
        self._url = url
        self._workspace = check_text(workspace, "A workspace's name")
        if "/" in workspace:
            raise InvalidName(f"A workspace's name has no '/'; {workspace!r} has.")
        self._ids = premises.ids
        self._workflows = registry(workflows)
        self._functions = functions_by_name(functions)
        self._endings = premises.endings
        self._telemetry = premises.telemetry
        self._observer = premises.observer
        self._writer = premises.writer
        self._feed = Feed(self.store, self._workspace)
        self._crew = Crew(self._workspace, self._feed)
        self._observing = Observing(self.store, self._crew)
        self._used = False
        self._definitions = rows = [found.row() for found in self._workflows.values()]
        self._revisions = Revisions(self.store.records, self._workspace, node_types)
        bounds = Bounds(
            self._settings.max_retention_seconds, self._settings.max_result_bytes,
            self._settings.plan_of(self._workspace), self._settings.max_runs,
            self._settings.max_runs_per_user, self._settings.max_runs_in_all,
        )  # fmt: skip
        self._starter = Starter(
            self.store, self.store.clock, self._ids, self._workspace, rows, self._revisions, bounds
        )

    async def __aenter__(self) -> Stepwell:
        if self._used:
            raise NotOpen("A Stepwell opens once, and this one did; make a new one: Stepwell(…).")
        self._used = True
        if not self._shares:
            await self._premises.open()
        try:
            await self.store.register(self._workspace, self._definitions)
        except BaseException:
            if not self._shares:
                await self._premises.finish()
                await self._premises.close()
            raise
        self._premises.dispatcher.crews.append(self._crew)
        self._telemetry.opened(self._observing)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tally.close()
        if not self._shares:
            await self._premises.finish()
        await self._feed.close()
        self._premises.dispatcher.crews.remove(self._crew)
        self._telemetry.closed(self._observing)
        if not self._shares:
            await self._premises.close()

    # -- talking to runs -----------------------------------------------------------------

    async def signal(
        self, run_id: str, name: str, payload: Any = None, *, idempotency_key: str | None = None
    ) -> bool:
        """Send a signal to a run; False if the run has already ended.

        A second one of that name with the same `idempotency_key` is not sent again.
        """
        signal = self._starter.signal(run_id, name, payload, idempotency_key=idempotency_key)
        submitted = self._writer.submit(signal)
        self._crew.claim_soon()
        delivered = (await submitted)[0]
        if delivered is None:
            raise no_such_run(run_id)
        return bool(delivered)

    async def emit(
        self, type: str, payload: Any = None, *, key: str | None = None, once: bool = False,
        idempotency_key: str | None = None,
    ) -> bool:  # fmt: skip
        """Emit an event of the workspace; False if an earlier `once` of that type and key won.

        False also if one of that type has had the same `idempotency_key`.
        """
        trace = trace_at_hand(self._telemetry)
        event = self._starter.event(type, payload, key, once, idempotency_key, trace)
        submitted = self._writer.submit(event)
        self._crew.claim_soon()
        return bool((await submitted)[0])

    async def tasks(self, run_id: str) -> list[Any]:
        """What a run waits for somebody to do: title, instructions and the step's key."""
        return [
            step.about
            for step in await self.steps(run_id)
            if step.kind == "task" and step.status == "waiting"
        ]

    async def advance(
        self, run_id: str, step: str, *, summary: str = "", output: Any = None,
        failed: bool = False,
    ) -> None:  # fmt: skip
        """Say that a task was done, or could not be; its run goes on."""
        waiting = [task["step"] for task in await self.tasks(run_id)]
        if step not in waiting:
            raise StepNotFound(
                f"Run {run_id} has no task {step!r} to be advanced; "
                f"it waits for {', '.join(waiting) or 'none'}.",
                run_id=run_id,
            )
        await self.signal(run_id, advance_name(step), report_of(summary, output, failed=failed))

    async def plan_of(self, run: Run) -> Plan:
        """The plan that a run of a graph executes."""
        assert run.revision is not None
        return (await self._revisions.get(run.revision)).plan

    async def definition_exists(self, name: str) -> bool:
        """Whether runs of that definition can be started."""
        return await self.store.version(self._workspace, name, None) is not None

    async def cancel(self, run_id: str) -> bool:
        """Cancel a run and its children; False if it had already ended."""
        change = self._starter.cancellation(check_run_id(run_id))
        outcome = (await self._writer.submit(change))[0]
        if outcome is None:
            raise no_such_run(run_id)
        return bool(outcome)

    # -- working -------------------------------------------------------------------------

    @asynccontextmanager
    async def worker(
        self, concurrency: int = 100, lease: Duration = "15s", grace: Duration = "1s"
    ) -> AsyncIterator[Worker]:
        """Execute runs while inside; `grace` is given to steps in progress at the end."""
        self._writer.check_open()
        worker = Worker(
            self.store, self._writer, self._starter, self._ids, self._workspace,
            self._programs(),
            room=self._premises.room or Room(check_count(concurrency, "concurrency")),
            lease_seconds=lease_seconds(lease),
            grace_seconds=seconds(grace, "grace"),
            max_result_bytes=self._settings.max_result_bytes, telemetry=self._telemetry,
        )  # fmt: skip
        await worker.start()
        self._crew.workers.append(worker)
        try:
            async with self.housekeeping():
                yield worker
        finally:
            self._crew.workers.remove(worker)
            await worker.stop()

    def _programs(self) -> dict[str, Program]:
        """What a worker of this process can execute, by the names of the programs."""
        found: dict[str, Program] = {each.program: each for each in self._workflows.values()}
        types = [name for each in plugged_in() for name in (each.name, *each.aliases)]
        return found | dict.fromkeys(graph_programs(types, self._functions), self._graphs())

    def _graphs(self) -> GraphProgram:
        """What executes runs of graphs."""
        settings = self._settings
        host = NodeHost(
            self.store.records, self._vault, self.store.clock, self._workspace,
            self._functions, allow_private=settings.http_allow_private, folder=settings.folder,
            environment=settings.environment, hidden=own_files(settings, self._url),
        )  # fmt: skip
        return GraphProgram(self._revisions, host, settings.plan_of(self._workspace))

    def wind_down(self) -> None:
        """About to be closed: begin no run any more, and keep nobody waiting for one."""
        for worker in self._crew.workers:
            worker.wind_down()
        self._endings.wind_down()

    async def prune(self) -> int:
        """Delete what is old, as workers do too; how many runs there were."""
        await self._writer.drained()
        pruned = await prune_once(self.store)
        self._telemetry.runs_swept(pruned)
        return pruned

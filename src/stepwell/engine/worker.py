"""The worker: keeps a lease, claims runs, executes them, and lets go of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stepwell.engine.context import Context
from stepwell.engine.execution import Execution
from stepwell.engine.lease import enlist, retire_dead_neighbours
from stepwell.engine.program import Program, execute
from stepwell.engine.pruner import prune_now_and_then
from stepwell.engine.starting import Starter
from stepwell.engine.writer import Writer
from stepwell.errors import StepwellError
from stepwell.kernel.changes import (
    Claimed,
    ClaimedRun,
    ClaimRuns,
    Committed,
    EndRun,
    Held,
    ReleaseRun,
)
from stepwell.kernel.clock import SECOND, Timer, sleep
from stepwell.kernel.ids import Ids
from stepwell.kernel.retry import DEFAULT_RETRY
from stepwell.store import Store

log = logging.getLogger("stepwell.worker")

# How long a parked program stays in memory, in case its wait is short.
WARM_SECONDS = 1.0
# The same when only branches of it wait: it may be busy with something nobody can see.
BRANCHES_WARM_SECONDS = 30.0
SWEEP_SECONDS = 1.0
# An idle worker sweeps at least this often, however long the lease: dead ones are found by it.
UNSWEPT_SECONDS = 4.0
# How often runs that are being executed are checked for having been cancelled elsewhere.
CHECK_SECONDS = 0.4


class Worker:
    """Executes runs of the programs it was given, up to `concurrency` at a time."""

    def __init__(
        self, store: Store, writer: Writer, starter: Starter, ids: Ids, workspace_id: str,
        programs: Mapping[str, Program], *, concurrency: int, lease_seconds: float,
        grace_seconds: float, max_result_bytes: int,
    ) -> None:  # fmt: skip
        self._store = store
        self._clock = store.clock
        self._writer = writer
        self._starter = starter
        self._ids = ids
        self._workspace_id = workspace_id
        self._programs = programs
        self._program_names = sorted(programs)
        self._concurrency = concurrency
        self._lease_seconds = lease_seconds
        self._grace_seconds = grace_seconds
        self._max_result_bytes = max_result_bytes
        # As many again, for programs that are parked and stay warm.
        self._program_threads = ThreadPoolExecutor(2 * concurrency, "stepwell-program")
        self._step_threads = ThreadPoolExecutor(max(concurrency, 8), "stepwell-step")
        self.id = ""
        self._active: dict[str, Execution] = {}
        # Runs whose end has been submitted but is not durable yet.
        self._ending: set[str] = set()
        self._warm: dict[str, tuple[Execution, Timer]] = {}
        # The claim that is being gathered or under way, and whether another must follow it.
        self._ask: ClaimRuns | None = None
        self._again = False
        # Whether the last claim may have left something for want of room.
        self._behind = False
        self._stopping = True
        self._timer: Timer | None = None
        self._timer_at: int | None = None
        self._next_sweep_at = 0
        self._renewed_at = 0
        self._duties: list[asyncio.Task[None]] = []
        self._idle = asyncio.Event()
        self._enlisting: asyncio.Task[None] | None = None

    # -- life ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin the lease, take over from predecessors that are gone, start claiming."""
        await self._enlist()
        await self._retire_dead_neighbours()
        self._stopping = False
        create = asyncio.get_running_loop().create_task
        self._duties = [
            create(self._beat()),
            create(self._check()),
            create(prune_now_and_then(self._store, self._ids.new())),
        ]
        self.look()

    async def stop(self) -> None:
        """Stop claiming, let steps in progress finish for a moment, give the rest back."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self._active and self._grace_seconds > 0:
            self._idle.clear()
            waiter = asyncio.ensure_future(self._idle.wait())
            pause = asyncio.ensure_future(sleep(self._clock, self._grace_seconds))
            await asyncio.wait([waiter, pause], return_when=asyncio.FIRST_COMPLETED)
            waiter.cancel()
            pause.cancel()
        for duty in (*self._duties, self._enlisting):  # the lease lasted through the grace
            if duty is not None:
                duty.cancel()
        tasks = [e.task for e in self._active.values() if e.task is not None]
        released = [execution.release() for execution in self._active.values()]
        for execution, timer in self._warm.values():
            timer.cancel()
            execution.suspend()
        if released:
            await asyncio.wait(released, timeout=5)
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        with contextlib.suppress(StepwellError, TimeoutError):
            await asyncio.wait_for(self._writer.drained(), 5)
            await asyncio.wait_for(self._store.retire([self.id]), 5)
        self._active.clear()
        self._warm.clear()
        self._program_threads.shutdown(wait=False, cancel_futures=True)
        self._step_threads.shutdown(wait=False, cancel_futures=True)

    async def _enlist(self) -> None:
        self.id = f"w-{self._ids.new()}"
        self._renewed_at = self._clock.now()
        await enlist(
            self._store, self.id, self._workspace_id, self._program_names, self._concurrency,
            self._lease_seconds,
        )  # fmt: skip

    async def _retire_dead_neighbours(self) -> None:
        """Processes of this host that are gone need not be waited for until their lease ends."""
        if await retire_dead_neighbours(self._store):
            self._next_sweep_at = 0

    async def _beat(self) -> None:
        """Renew the lease; a worker that cannot drops everything and begins anew."""
        pause = self._lease_seconds / 3
        while True:
            await sleep(self._clock, pause)
            asked_at, worker_id = self._clock.now(), self.id
            alive: bool | None = None
            try:
                alive = await asyncio.wait_for(
                    self._store.heartbeat(worker_id, self._lease_seconds), self._lease_seconds / 3
                )
                if alive:
                    self._renewed_at = asked_at
                    await self._retire_dead_neighbours()
                    self.look()
            except Exception as error:  # whatever it is, the next beat may go through
                log.warning("Worker %s could not renew its lease: %r", self.id, error)
            # In trouble it asks more often, so as to know by the end of the lease.
            pause = self._lease_seconds / (3 if alive else 10)
            expired = self._clock.now() - self._renewed_at > self._lease_seconds * SECOND
            if alive is False or expired:
                self._lose_lease(worker_id)

    def _lose_lease(self, worker_id: str) -> None:
        """Let go of everything, then come back as another worker."""
        if worker_id == self.id and self._enlisting is None and not self._stopping:
            log.warning("Worker %s lost its lease and lets go of its runs.", worker_id)
            self.drop_all()
            self._enlisting = asyncio.get_running_loop().create_task(self._begin_anew(worker_id))

    async def _begin_anew(self, lost_id: str) -> None:
        while True:
            try:
                # A claim may still be under way in the old name: whatever it gets is free again.
                await self._store.retire([lost_id])
                await self._enlist()
                break
            except Exception as error:
                log.warning("Worker %s cannot begin anew yet: %r", self.id, error)
                await sleep(self._clock, 1)
        self._enlisting = None
        self._next_sweep_at = 0  # what the old name held is to be taken over
        self.look()

    def drop_all(self) -> None:
        """Let go of every run at once, recording nothing."""
        for execution in [*self._active.values(), *(pair[0] for pair in self._warm.values())]:
            execution.stop()
        self._active.clear()
        self._warm.clear()

    async def _check(self) -> None:
        """Find out which workers are dead, and which runs others cancelled, ended or took over."""
        while True:
            await sleep(self._clock, CHECK_SECONDS)
            if self._clock.now() >= self._next_sweep_at + int(UNSWEPT_SECONDS * SECOND):
                self.look()
            held = [(e.held.run_id, e.held.owner, e.held.fence) for e in self._active.values()]
            if not held:
                continue
            try:
                fences = {run_id: fence for run_id, _, fence in held}
                for run_id in await self._store.lost(held):
                    execution = self._active.get(run_id)
                    current = execution is not None and execution.held.fence == fences[run_id]
                    if current and execution is not None and execution.state == "active":
                        self.let_go(run_id)
            except Exception as error:
                log.warning("Runs could not be checked: %r", error)

    # -- claiming ------------------------------------------------------------------------

    def look(self) -> None:
        """Something may have become due: claim, in the commit that is being gathered."""
        if self._stopping or self._enlisting is not None or self._writer.closed:
            return
        room, known = self._concurrency - len(self._active), [*self._active, *self._ending]
        if self._ask is not None:
            if self._ask.now:
                self._again = True  # it is under way already and may not see what is new
            else:
                self._ask.limit, self._ask.known = room, known
            return
        now = self._clock.now()
        sweep = now >= self._next_sweep_at
        if sweep:
            self._next_sweep_at = now + int(SWEEP_SECONDS * SECOND)
        self._again = False
        self._ask = ask = ClaimRuns(
            self._workspace_id, self.id, self._program_names, room, sweep=sweep, known=known
        )
        self._writer.submit(ask).add_done_callback(lambda done: self._on_claimed(done, ask))

    def _on_claimed(self, done: asyncio.Future[list[Any]], ask: ClaimRuns) -> None:
        self._ask = None
        if done.cancelled() or self._enlisting is not None:
            return
        if ask.worker_id != self.id:
            self.look()
            return
        if self._stopping:
            if done.exception() is None:
                self._give_back(done.result()[0])
            return
        if done.exception() is not None:
            log.error("A claim failed.", exc_info=done.exception())
            self._look_at(self._clock.now() + SECOND)
            return
        claimed = done.result()[0]
        if claimed.lease_lost:
            self._lose_lease(ask.worker_id)
            return
        for run in claimed.runs:
            self._take(run)
        self._behind = claimed.more or ask.limit <= 0
        self._look_at(claimed.next_at)
        if self._again or (claimed.more and len(self._active) < self._concurrency):
            self.look()

    def _give_back(self, claimed: Claimed) -> None:
        """Runs that were claimed when this worker had already decided to stop."""
        for run in claimed.runs:
            if not run.nudge:
                self._writer.submit(ReleaseRun(Held(run.id, self.id, run.fence)))

    def _look_at(self, at: int | None) -> None:
        """Look again then, and not before unless something happens."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = None if at is None else self._clock.call_at(at, self._on_time)

    def _look_by(self, at: int | None) -> None:
        """Look again then at the latest."""
        if at is not None and (self._timer_at is None or at < self._timer_at):
            self._look_at(at)

    def _on_time(self) -> None:
        self._timer_at = None
        self._next_sweep_at = 0
        if len(self._active) >= self._concurrency:
            self._store.announce(Committed([], due=True))  # somebody else may have room
        self.look()

    def _take(self, run: ClaimedRun) -> None:
        if run.nudge:
            held = self._active.get(run.id)
            if held is not None and held.state == "active" and held.held.fence == run.fence:
                held.news(run)
            return
        warm = self._warm.pop(run.id, None)
        if warm is not None:
            execution, timer = warm
            timer.cancel()
            current = execution.held.fence + 1 == run.fence
            if current and execution.task is not None and not execution.task.done():
                self._active[run.id] = execution
                execution.news(run)
                return
            execution.suspend()
        execution = Execution(
            run,
            self.id,
            self._writer,
            self._clock,
            self._on_waiting,
            self._on_resumed,
            self._ids.fraction,
        )
        replaced = self._active.get(run.id)
        if replaced is not None:
            replaced.stop()  # claimed again: what it was claimed for before is fenced off
        self._active[run.id] = execution
        execution.task = asyncio.get_running_loop().create_task(self._execute(execution))

    # -- executing -----------------------------------------------------------------------

    async def _execute(self, execution: Execution) -> None:
        program = self._programs[execution.claimed.program]
        context = Context(
            execution, self._starter, self._step_threads, program.retry or DEFAULT_RETRY,
            self._max_result_bytes,
        )  # fmt: skip
        try:
            end = await execute(
                program, context, execution, self._program_threads, self._max_result_bytes
            )
            if end is not None:
                await self._end(execution, end)
        finally:
            self._forget(execution)

    async def _end(self, execution: Execution, end: EndRun) -> None:
        ended = self._writer.submit(*execution.take_notes(), end)
        self._ending.add(execution.run_id)
        self._forget(execution)  # frees the slot, so that the next claim shares this commit
        try:
            await ended
        except Exception:
            log.exception("The end of run %s could not be recorded.", execution.run_id)
        finally:
            self._ending.discard(execution.run_id)

    def _forget(self, execution: Execution) -> None:
        if self._active.get(execution.run_id) is execution:
            del self._active[execution.run_id]
            if self._behind:
                self.look()
        if not self._active:
            self._idle.set()

    def _on_waiting(self, execution: Execution) -> None:
        """A run has opened its waits. If that is all it does, it has been given back."""
        self._look_by(execution.next_due_at)
        if execution.state != "parked":
            return
        self._forget(execution)
        now = self._clock.now()
        # Kept for a moment if its program may be needed again soon.
        at = execution.sleeps_until
        far = execution.rests and at is not None and at > now + WARM_SECONDS * SECOND
        if far or self._stopping or len(self._warm) >= self._concurrency:
            execution.suspend()
        else:
            warm = WARM_SECONDS if execution.rests else BRANCHES_WARM_SECONDS
            cooling = now + int(warm * SECOND)
            timer = self._clock.call_at(cooling, lambda: self._cool(execution))
            self._warm[execution.run_id] = (execution, timer)

    def _on_resumed(self, execution: Execution) -> None:
        """A program that had been parked went on by itself."""
        warm = self._warm.pop(execution.run_id, None)
        if warm is not None:
            warm[1].cancel()
        self._active[execution.run_id] = execution

    def _cool(self, execution: Execution) -> None:
        found = self._warm.get(execution.run_id)
        if found is not None and found[0] is execution:
            del self._warm[execution.run_id]
            execution.suspend()

    def let_go(self, run_id: str) -> None:
        """The run was cancelled, ended or taken over: interrupt its program."""
        warm = self._warm.pop(run_id, None)
        if warm is not None:
            warm[1].cancel()
            warm[0].stop()
        execution = self._active.pop(run_id, None)
        if execution is not None:
            execution.stop()
            self.look()

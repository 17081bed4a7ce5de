"""The worker: keeps a lease, claims runs, executes them, and lets go of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from stepwell.engine.calls import PASSED_ON, CancelledFromWithin
from stepwell.engine.claims import Claims
from stepwell.engine.context import Context
from stepwell.engine.departures import hush
from stepwell.engine.execution import Execution
from stepwell.engine.failures import describe_failure
from stepwell.engine.lease import enlist, retire_dead_neighbours
from stepwell.engine.program import Program, execute, refused_end
from stepwell.engine.room import Room
from stepwell.engine.starting import Starter
from stepwell.engine.surroundings import nobodys
from stepwell.engine.threads import Threads
from stepwell.engine.turns import Turns
from stepwell.engine.unwinding import Losses
from stepwell.engine.writer import Writer
from stepwell.errors import ChangeRefused, NotOpen, StepwellError, StoreUnavailable
from stepwell.kernel.changes import Claimed, ClaimedRun, ClaimRuns, EndRun, Held, ReleaseRun
from stepwell.kernel.clock import SECOND, Timer, sleep, wait_by
from stepwell.kernel.ids import Ids
from stepwell.kernel.retry import DEFAULT_RETRY
from stepwell.store import Store
from stepwell.telemetry import Telemetry

log = logging.getLogger("stepwell.worker")

# How long a parked program stays in memory, in case its wait is short.
WARM_SECONDS = 1.0
# The same when only branches of it wait: it may be busy with something nobody can see.
BRANCHES_WARM_SECONDS = 30.0
# How often runs that are being executed are checked for having been cancelled elsewhere.
CHECK_SECONDS = 0.4


class Worker:
    """Executes runs of the programs it was given, as many at a time as there is room for."""

    def __init__(
        self, store: Store, writer: Writer, starter: Starter, ids: Ids, workspace_id: str,
        programs: Mapping[str, Program], *, room: Room, lease_seconds: float,
        grace_seconds: float, max_result_bytes: int, telemetry: Telemetry,
    ) -> None:  # fmt: skip
        self._store = store
        self._clock = store.clock
        self._writer = writer
        self._starter = starter
        self._ids = ids
        self._workspace_id = workspace_id
        self._programs = programs
        self._program_names = sorted(programs)
        self._room = room
        self._lease_seconds, self._grace_seconds = lease_seconds, grace_seconds
        self._max_result_bytes = max_result_bytes
        self.telemetry = telemetry
        # As many again, for programs that are parked and stay warm.
        self._program_threads = Threads("stepwell-program", 2 * room.most)
        # Many more: a function that ran into its timeout may hold its thread for ever.
        self._step_threads = Threads("stepwell-step", 4 * room.most + 64)
        self.id = ""
        # Programs see the context variables that were set when the worker was started.
        self.surroundings = nobodys()
        self._active: dict[str, Execution] = {}
        # Runs whose end, or parking, has been submitted but is not durable yet.
        self._ending: set[str] = set()
        self._parking: dict[str, Execution] = {}
        self._warm: dict[str, tuple[Execution, Timer]] = {}
        self._stopping, self._stop_at = True, 0
        self.claims = Claims(store, writer, self, room)
        self.turns, self.losses = Turns(), Losses()
        self._renewed_at = 0
        self._duties: list[asyncio.Task[None]] = []
        self._idle = asyncio.Event()
        self._enlisting: asyncio.Task[None] | None = None

    # -- life ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin the lease, take over from predecessors that are gone, start claiming."""
        hush(asyncio.get_running_loop())
        await self._enlist()
        await self._retire_dead_neighbours()
        self._room.enter(self.claims)
        self._stopping = False
        create = asyncio.get_running_loop().create_task
        self._duties = [create(self._beat()), create(self._check())]
        self.claims.soon()

    def wind_down(self) -> None:
        """Claim nothing any more; the time that steps in progress have begins now."""
        if not self._stopping:
            self._stopping = True
            self._stop_at = self._clock.now() + int(self._grace_seconds * SECOND)
            self.claims.stop()

    async def stop(self) -> None:
        """Stop claiming, let steps in progress finish for a moment, give the rest back."""
        self.wind_down()
        if self._active:
            self._idle.clear()
            await wait_by(self._clock, self._stop_at, self._idle)
        for duty in (*self._duties, self._enlisting):  # the lease lasted through the grace
            if duty is not None:
                duty.cancel()
        tasks = [e.task for e in self._active.values() if e.task is not None]
        released = [execution.release() for execution in self._active.values()]
        for execution in self._let_go_waiting():
            execution.suspend()
        if released:
            await asyncio.wait(released, timeout=5)
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        with contextlib.suppress(StepwellError, TimeoutError):
            await asyncio.wait_for(self._writer.drained(), 5)
            await asyncio.wait_for(self._store.retire([self.id], alive=True), 5)
        self._active.clear()
        self._room.leave(self.claims)
        self._program_threads.shutdown(wait=False)
        self._step_threads.shutdown(wait=False)

    async def _enlist(self) -> None:
        self.id = f"w-{self._ids.new()}"
        self._renewed_at = self._clock.now()
        await enlist(
            self._store, self.id, self._workspace_id, self._program_names, self._room.most,
            self._lease_seconds,
        )  # fmt: skip

    async def _retire_dead_neighbours(self) -> None:
        """Processes of this host that are gone need not be waited for until their lease ends."""
        if self._room.is_first(self.claims) and await retire_dead_neighbours(self._store):
            self.claims.sweep_soon()

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
                await self._store.retire([lost_id], alive=True)
                await self._enlist()
                break
            except Exception as error:
                log.warning("Worker %s cannot begin anew yet: %r", self.id, error)
                await sleep(self._clock, 1)
        self._enlisting = None
        self.claims.sweep_soon()  # what the old name held is to be taken over

    def drop_all(self) -> None:
        """Let go of every run at once, recording nothing."""
        for execution in [*self._active.values(), *self._let_go_waiting()]:
            execution.stop()
        self._active.clear()
        self._room.made(but=self.claims)

    def _let_go_waiting(self) -> list[Execution]:
        """Programs in memory whose runs are parked, or about to be; they are forgotten here."""
        waiting = [*self._parking.values()]
        for execution, timer in self._warm.values():
            timer.cancel()
            waiting.append(execution)
        self._parking.clear()
        self._warm.clear()
        return waiting

    async def _check(self) -> None:
        """Find out which workers are dead, and which runs others cancelled, ended or took over."""
        while True:
            await sleep(self._clock, CHECK_SECONDS)
            self.claims.sweep_if_idle()
            held = [(e.held.run_id, e.held.owner, e.held.fence) for e in self._active.values()]
            try:
                for run_id in await self._store.ended(list(self._warm)) if self._warm else ():
                    if run_id in self._warm:
                        self.let_go(run_id)
                if not held:
                    continue
                fences = {run_id: fence for run_id, _, fence in held}
                for run_id in await self._store.lost(held):
                    execution = self._active.get(run_id)
                    current = execution is not None and execution.held.fence == fences[run_id]
                    if current and execution is not None and execution.state == "active":
                        self.let_go(run_id)
            except Exception as error:
                log.warning("Runs could not be checked: %r", error)

    # -- claiming ------------------------------------------------------------------------

    def claim_soon(self) -> None:
        """Something may have become due."""
        self.claims.soon()

    @property
    def definitions(self) -> list[str]:
        """The definition of each run that is being executed."""
        return [execution.claimed.definition for execution in self._active.values()]

    @property
    def active(self) -> int:
        return len(self._active)

    def ask(self) -> ClaimRuns | None:
        """What to claim as things stand now."""
        if self._stopping or self._enlisting is not None:
            return None
        known = [*self._active, *self._ending, *self._parking]
        return ClaimRuns(self._workspace_id, self.id, self._program_names, 0, known=known)

    def take(self, claimed: Claimed) -> None:
        """Begin with what was claimed."""
        if claimed.lease_lost:
            self._lose_lease(self.id)
        elif self._stopping:
            for run in claimed.runs:
                if not run.nudge:
                    self._writer.submit(ReleaseRun(Held(run.id, self.id, run.fence)))
        elif self._enlisting is None:
            for run in claimed.runs:
                self._take(run)

    def _take(self, run: ClaimedRun) -> None:
        if run.nudge:
            active = self._active.get(run.id)
            if active is not None and active.state == "active" and active.held.fence == run.fence:
                active.news(run)
            return
        waiting = self._forget_waiting(run.id)
        if waiting is not None:
            current = waiting.held.fence + 1 == run.fence
            if current and not waiting.departed:
                self._active[run.id] = waiting
                waiting.news(run)
                return
            waiting.suspend()
        execution = Execution(run, self.id, self._writer, self._clock, self, self._ids.fraction)
        replaced = self._active.get(run.id)
        if replaced is not None:
            if replaced.state == "parked" and replaced.held.fence + 1 == run.fence:
                replaced.news(run)  # it was being resumed, and has been claimed instead
                return
            replaced.stop()  # claimed again: what it was claimed for before is fenced off
        self._active[run.id] = execution
        around = self.surroundings.copy()
        execution.task = asyncio.create_task(self._execute(execution), context=around)

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
        except BaseException as error:
            if not execution.departed and not isinstance(error, Exception):
                await self._end_or_stop(execution)
            if isinstance(error, PASSED_ON):
                raise
        finally:
            self._forget(execution)
            execution.over()

    async def _end_or_stop(self, execution: Execution) -> None:
        """The program's task was cancelled, but not by us: by itself, or because all of it stops.

        In the second case the run goes on elsewhere, so it fails only when this comes again.
        Until then nothing more of it may be recorded, least of all that it gave up its waits.
        """
        if not self.losses.stopped(execution.claimed):
            execution.stop()
        else:
            error = CancelledFromWithin("the workflow cancelled its own task")
            end = execution.end("failed", None, describe_failure(error, None))
            await self._end(execution, end)

    async def _end(self, execution: Execution, end: EndRun) -> None:
        self.losses.forget(execution.run_id)
        ended = execution.notes.submit(end)
        self._ending.add(execution.run_id)
        self._forget(execution)  # makes room, so that the next claim shares this commit
        try:
            await ended
        except (StoreUnavailable, NotOpen):
            log.warning("The end of run %s could not be recorded.", execution.run_id)
        except ChangeRefused as error:
            log.exception("The end of run %s was refused; it fails instead.", execution.run_id)
            with contextlib.suppress(Exception):
                await self._writer.submit(refused_end(end, error))
        except Exception:  # without an end the run is begun again
            log.exception("The end of run %s could not be recorded.", execution.run_id)
        finally:
            self._ending.discard(execution.run_id)

    def _forget(self, execution: Execution) -> None:
        if self._parking.get(execution.run_id) is execution:
            del self._parking[execution.run_id]
        self._make_room(execution)

    def _make_room(self, execution: Execution) -> None:
        if self._active.get(execution.run_id) is execution:
            del self._active[execution.run_id]
            self._room.made()
        if not self._active:
            self._idle.set()

    def parking(self, execution: Execution) -> None:
        """Makes room, so that the next claim shares the commit that parks the run."""
        self._parking[execution.run_id] = execution  # first: the claim has to know of it
        self._make_room(execution)

    def opened(self, execution: Execution, parks: bool) -> None:
        """A run has opened its waits. If that is all it does, it has been given back."""
        self.claims.by(execution.waits.next_due_at)
        if not parks or self._parking.pop(execution.run_id, None) is None:
            return
        now = self._clock.now()
        # Kept for a moment if its program may be needed again soon, and for longer if something
        # would be lost: one that had to begin again because of that would do so for ever.
        at = execution.waits.sleeps_until
        kept = self.losses.keeps(execution.run_id)
        rests = execution.waits.rests and not kept
        far = rests and at is not None and at > now + WARM_SECONDS * SECOND
        full = len(self._warm) >= self._room.most and not kept
        if far or self._stopping or full:
            execution.suspend()
        else:
            warm = WARM_SECONDS if rests else BRANCHES_WARM_SECONDS
            cooling = now + int(warm * SECOND)
            timer = self._clock.call_at(cooling, lambda: self._cool(execution))
            self._warm[execution.run_id] = (execution, timer)

    def resumed(self, execution: Execution) -> None:
        """A program that had been parked went on by itself."""
        self._forget_waiting(execution.run_id)
        self._active[execution.run_id] = execution
        self.claims.known_changed()

    def _forget_waiting(self, run_id: str) -> Execution | None:
        """The program in memory of a run that is parked or about to be; it is forgotten here."""
        warm = self._warm.pop(run_id, None)
        if warm is None:
            return self._parking.pop(run_id, None)
        execution, timer = warm
        timer.cancel()
        return execution

    def _cool(self, execution: Execution) -> None:
        found = self._warm.get(execution.run_id)
        if found is not None and found[0] is execution:
            del self._warm[execution.run_id]
            execution.suspend()

    def let_go(self, run_id: str) -> None:
        """The run was cancelled, ended or taken over: interrupt its program."""
        execution = self._active.pop(run_id, None) or self._forget_waiting(run_id)
        self.losses.forget(run_id)
        if execution is not None:
            execution.stop()
            self.claims.soon()
            self._room.made(but=self.claims)

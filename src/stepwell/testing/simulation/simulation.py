"""One simulation: a seed, a cluster, faults, and the verdict."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

from stepwell.app import Stepwell
from stepwell.app.logs import quiet_below
from stepwell.errors import StepwellError
from stepwell.testing.simulation.database import pristine_database
from stepwell.testing.simulation.graph_runs import GraphRuns, make_act
from stepwell.testing.simulation.loop import VirtualClock, VirtualLoop
from stepwell.testing.simulation.process import (
    Faults,
    Process,
    SharedStore,
    current_process,
    task_factory,
)
from stepwell.testing.simulation.programs import EXPECTED, SIGNALS, STARTS, UNLUCKY, make_programs
from stepwell.testing.simulation.weaving import Traces

WORKERS = 3
LEASE = 6.0
# The share of simulations that are about graphs.
GRAPHS = 0.2
# Virtual seconds of trouble, and how long everything may take to come to its end afterwards.
TROUBLE, PATIENCE = 40.0, 900.0


class Violation(AssertionError):
    """A guarantee did not hold."""


def simulate(seed: int) -> str:
    """Run the simulation of this seed; a digest of what happened. Raises Violation."""
    loop = VirtualLoop()
    loop.set_task_factory(task_factory)
    with quiet_below(logging.CRITICAL):
        try:
            simulation = _Simulation(seed, loop)
            return loop.run_until_complete(simulation.run())
        finally:
            _end(loop)
            loop.close()


def _end(loop: VirtualLoop) -> None:
    """Let what is left come to its end: what is thrown away in the middle complains later."""
    for _ in range(10):
        tasks = asyncio.all_tasks(loop)
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks, timeout=10))


class _Simulation:
    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock = VirtualClock(loop)
        self.db = pristine_database()
        self.faults = Faults(self.rng)
        self.mended = False
        self.traces = Traces(seed)
        self.workflows = make_programs(self.perform, lambda: self.mended, self.traces)
        self.functions = {"act": make_act(self.perform)}
        self.processes: list[Process] = []
        self.executions: dict[tuple[str, str], int] = {}
        self.problems: list[str] = []
        # Some simulations are about graphs, with few other programs beside them.
        count = self.rng.randint(2, 6) if self.rng.random() < GRAPHS else 0
        self.graphs = GraphRuns(self.rng, count, self.problems)
        self.share = 0.1 if count else 0.6
        self.started = 0

    async def run(self) -> str:
        client = self._process("client", mortal=False)
        async with client.stepwell as stepwell:
            for number in range(WORKERS):
                self._start_worker(f"worker-{number}")
            chaos = asyncio.ensure_future(self._chaos())
            await self.graphs.start(stepwell)
            tending = asyncio.ensure_future(self.graphs.tend(stepwell))
            ids = await self._drive(stepwell)
            ids |= await self._retry(stepwell, {key: ids[key] for key in UNLUCKY & ids.keys()})
            quiet = TROUBLE - asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, quiet))
            chaos.cancel()
            self._end_of_trouble()
            await self._wait_for_all(stepwell)
            tending.cancel()
            await self._judge(stepwell, ids)
            await self.graphs.judge(stepwell)
            self.problems += self.traces.problems()
        for process in self.processes:
            process.kill()
        if self.problems:
            raise Violation(f"seed {self.seed}: " + "; ".join(self.problems))
        return f"{len(ids)} runs, {sum(self.executions.values())} executions, {self.clock.now()}"

    def _process(self, name: str, *, mortal: bool = True) -> Process:
        return Process(
            name, self.db, self.clock, self.workflows, self.functions, self.rng, self.faults,
            mortal=mortal,
        )  # fmt: skip

    def _start_worker(self, name: str) -> None:
        process = self._process(name)
        self.processes.append(process)
        process.spawn(process.serve(LEASE))

    # -- the client ----------------------------------------------------------------------

    async def _drive(self, stepwell: Stepwell) -> dict[str, str]:
        """Start runs and send them what they wait for, now and then twice."""
        ids: dict[str, str] = {}
        names = [name for name in EXPECTED if self.rng.random() < self.share] or ["steps"]
        for name in names:
            definition, input, number_of_runs = STARTS[name]
            for number in range(number_of_runs):
                key = f"{name}-{number}"
                for _ in range(self.rng.choice([1, 1, 2])):
                    run = await stepwell.start(definition, input, idempotency_key=key)
                    if ids.setdefault(key, run.id) != run.id:
                        self.problems.append(f"{key} was started twice")
                await asyncio.sleep(self.rng.random() * 3)
                for signal, payload in SIGNALS.get(name, ()):
                    for _ in range(self.rng.choice([1, 2])):
                        await stepwell.signal(run.id, signal, payload)
                        await asyncio.sleep(self.rng.random() * 4)
        return ids

    async def _retry(self, stepwell: Stepwell, ids: dict[str, str]) -> dict[str, str]:
        """Wait until these runs have failed, as they must, and retry them; the retries."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        for run_id in ids.values():
            while (await stepwell.get_run(run_id)).status != "failed":
                if asyncio.get_running_loop().time() > deadline:
                    why = await stepwell.explain(run_id)
                    self.problems.append(f"{run_id} has not failed: {why}")
                    return {}
                await asyncio.sleep(1)
        await asyncio.sleep(self.rng.random() * 5)
        self.mended = True
        return {key: (await stepwell.retry(ids[key])).id for key in sorted(ids)}

    # -- chaos ---------------------------------------------------------------------------

    async def _chaos(self) -> None:
        while True:
            await asyncio.sleep(self.rng.random() * 6)
            index = self.rng.randrange(len(self.processes))
            process = self.processes[index]
            fault = self.rng.choice(["kill", "freeze", "down", "none"])
            if process.dead or (fault == "kill" and not process.spared):
                process.kill()
                self.processes.pop(index)
                await asyncio.sleep(self.rng.random() * 4)
                self.started += 1
                self._start_worker(f"worker-{WORKERS + self.started}")
            elif fault == "freeze" and not process.spared:
                process.freeze()
                asyncio.get_running_loop().call_later(self.rng.random() * 12, process.thaw)
            elif fault == "down":
                self.faults.store_down = True
                await asyncio.sleep(self.rng.random() * 8)
                self.faults.store_down = False

    def _end_of_trouble(self) -> None:
        self.faults.cease()
        for process in self.processes:
            process.thaw()
        if all(process.dead for process in self.processes):
            self._start_worker("last-resort")

    # -- the verdict ---------------------------------------------------------------------

    async def perform(self, run_id: str, step: str, attempt: int) -> None:
        """A step function is being executed: it must not have been recorded before."""
        key = (run_id, step)
        self.executions[key] = self.executions.get(key, 0) + 1
        process = current_process.get()
        row = self.db.execute(
            """SELECT s.status, r.owner FROM steps s JOIN runs r ON r.id = s.run_id
               WHERE s.run_id = ? AND s.key = ? AND s.status IN ('completed', 'failed')""",
            key,
        ).fetchone()
        worker = None if process is None or process.dead else process.worker
        if worker is not None and row is not None and row[1] == worker.id:
            self.problems.append(f"step {step} of {run_id} ran again after it was recorded")
        await asyncio.sleep(self.rng.random() * self.rng.choice([0, 0.1, 1]))

    async def _wait_for_all(self, stepwell: Stepwell) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            self._check_limits()
            live = [
                str(row[0])
                for row in self.db.execute(
                    "SELECT id FROM runs WHERE completed_at IS NULL ORDER BY id"
                )
            ]
            if not live:
                return
            if asyncio.get_running_loop().time() > deadline:
                for run_id in live:
                    why = await stepwell.explain(run_id)
                    self.problems.append(f"{run_id} is stuck: {why.code}: {why.message}")
                return
            await asyncio.sleep(1)

    def _check_limits(self) -> None:
        over = self.db.execute(
            """SELECT limit_key, count(DISTINCT slot), max(capacity) FROM limits
               WHERE admitted = 1 AND capacity IS NOT NULL GROUP BY limit_key
               HAVING count(DISTINCT slot) > max(capacity)"""
        ).fetchall()
        for limit_key, taken, capacity in over:
            self.problems.append(f"{limit_key}: {taken} of {capacity} slots taken")

    async def _judge(self, stepwell: Stepwell, ids: dict[str, str]) -> None:
        for key, run_id in ids.items():
            run = await stepwell.get_run(run_id)
            expected: Any = EXPECTED[key.rpartition("-")[0]]
            if run.status != "completed" or run.output != expected:
                self.problems.append(
                    f"{key} ended {run.status} with {run.output!r} {run.error}, not {expected!r}"
                )
            try:
                journal = await stepwell.steps(run_id)
            except StepwellError as error:
                self.problems.append(f"{key}: {error}")
                continue
            for step in journal:
                executed = {(run_id, step.key), (run.forked_from or run_id, step.key)}
                settled = step.kind == "step" and step.status != "skipped"
                if settled and executed.isdisjoint(self.executions):
                    self.problems.append(f"{key}: {step.key} was recorded but never executed")
                if step.status in ("running", "retrying", "waiting"):
                    self.problems.append(f"{key}: {step.key} was left {step.status}")
        for definition, most in (("between", 1), ("unlucky", 5)):
            runs = await stepwell.list_runs(definition=definition)
            if len(runs.items) > most:
                self.problems.append(f"{len(runs.items)} runs of {definition}, not {most}")
        for table in ("waits", "limits"):
            left = self.db.execute(f"SELECT count(*) FROM {table}").fetchone()
            if left != (0,):
                self.problems.append(f"{left} rows left in {table}")
        held = self.db.execute("SELECT count(*) FROM runs WHERE owner IS NOT NULL").fetchone()
        if held != (0,):
            self.problems.append("ended runs still have an owner")


__all__ = ["SharedStore", "Violation", "simulate"]

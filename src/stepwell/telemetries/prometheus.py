"""Prometheus: counts what it hears, and shows it when it is asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import generate_latest

from stepwell.kernel.changes import ClaimedRun, RecordStep, SendSignal
from stepwell.kernel.clock import SECOND
from stepwell.store import RunOutline
from stepwell.telemetries import metrics
from stepwell.telemetries.series import Counts, Distribution, Histogram
from stepwell.telemetry import Observed, Telemetry, event_name, step_name

log = logging.getLogger("stepwell.metrics")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# How old the depth of a queue may be, however often somebody asks; and how many times as old as
# it took to find out, lest a long queue keep the store busy with being counted.
FRESH_SECONDS, FRESH_TIMES = 5.0, 50
# How many keys of steps are remembered with the series that they belong to.
MOST_KEYS = 10_000


class Prometheus(Telemetry):
    """The metrics of a process, in a registry of their own; shared by all that is open in it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        self._started = Counts(metrics.RUNS_STARTED)
        self._completed = Counts(metrics.RUNS_COMPLETED)
        self._run_duration = Histogram(metrics.RUN_DURATION)
        self._step_duration = Histogram(metrics.STEP_DURATION)
        self._retries = Counts(metrics.STEP_RETRIES)
        self._signals = Counts(metrics.SIGNALS)
        self._swept = Counts(metrics.RETENTION_SWEPT)
        self._claim_latency = Histogram(metrics.CLAIM_LATENCY)
        self._batch_size = Histogram(metrics.COMMIT_BATCH_SIZE)
        self._commit_seconds = Histogram(metrics.COMMIT_SECONDS)
        self._outbox_lag = Histogram(metrics.OUTBOX_LAG)
        self._lateness = Histogram(metrics.SCHEDULE_LATENESS)
        self._requests = Counts(metrics.HTTP_REQUESTS)
        self._request_duration = Histogram(metrics.HTTP_DURATION)
        # Those that have one series, and the series of steps by definition and key: these are
        # looked up for every commit and every step.
        self._claims = self._claim_latency.of()
        self._sizes = self._batch_size.of()
        self._seconds = self._commit_seconds.of()
        self._by_key: dict[tuple[str, str], Distribution] = {}
        self._places: list[Observed] = []
        self._depths: dict[str, int] = {}
        self._fresh_until = 0.0

    async def render(self) -> bytes:
        """All metrics as text, of the type CONTENT_TYPE."""
        await self._ask_for_depths()
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Family]:
        """What the registry shows; depths of queues are as they were last asked for."""
        in_flight = Counts(metrics.RUNS_IN_FLIGHT)
        for place in list(self._places):
            for definition, number in place.in_flight().items():
                in_flight.add(definition, amount=number)
        depths = Counts(metrics.QUEUE_DEPTH)
        for workspace, depth in self._depths.items():
            depths.add(workspace, amount=depth)
        for each in (
            self._started, self._completed, in_flight, self._run_duration, self._step_duration,
            self._retries, self._signals, self._swept, self._claim_latency, self._batch_size,
            self._commit_seconds, depths, self._outbox_lag, self._lateness, self._requests,
            self._request_duration,
        ):  # fmt: skip
            yield each.family()

    async def _ask_for_depths(self) -> None:
        time = asyncio.get_running_loop().time
        began = time()
        if began < self._fresh_until:
            return
        self._fresh_until = began + FRESH_SECONDS  # also for those who ask meanwhile
        for place in list(self._places):
            try:
                self._depths[place.workspace] = await place.queue_depth()
            except Exception as error:  # the other metrics are needed all the more
                self._depths.pop(place.workspace, None)
                log.warning("The depth of a queue is not known: %r", error)
        self._fresh_until = max(self._fresh_until, time() + FRESH_TIMES * (time() - began))

    def request_answered(
        self, method: str, operation: str, status: int, took_seconds: float
    ) -> None:
        """A request was answered; `operation` is the name of what it asked for, not its path."""
        self._requests.add(method, operation, f"{status // 100}xx")
        self._request_duration.of(method, operation).observe(took_seconds)

    def opened(self, place: Observed) -> None:
        self._places.append(place)
        self._fresh_until = 0.0

    def closed(self, place: Observed) -> None:
        self._places.remove(place)
        if all(each.workspace != place.workspace for each in self._places):
            self._depths.pop(place.workspace, None)

    def committed(self, changes: int, seconds: float) -> None:
        self._sizes.observe(changes)
        self._seconds.observe(seconds)

    def run_started(self, definition: str) -> None:
        self._started.add(definition)

    def run_claimed(self, run: ClaimedRun, waited_seconds: float | None) -> None:
        if waited_seconds is not None:
            self._claims.observe(waited_seconds)

    def run_ended(self, run: RunOutline) -> None:
        self._completed.add(run.definition, run.status)
        if run.completed_at is not None:
            took = (run.completed_at - run.created_at) / SECOND
            self._run_duration.of(run.definition).observe(took)

    def step_ended(self, run: ClaimedRun, step: RecordStep, logged: bool) -> None:
        if step.kind != "step" or step.completed_at is None:
            return
        key = (run.definition, step.key)
        series = self._by_key.get(key)
        if series is None:
            if len(self._by_key) >= MOST_KEYS:
                self._by_key.clear()
            name = step_name(run, step.key, step.kind)
            series = self._by_key[key] = self._step_duration.of(run.definition, name)
        series.observe((step.completed_at - step.started_at) / SECOND)

    def step_retried(self, run: ClaimedRun, step: RecordStep) -> None:
        self._retries.add(run.definition, step_name(run, step.key, step.kind))

    def run_signalled(self, run: RunOutline, signal: SendSignal) -> None:
        self._signals.add(run.definition, event_name(signal))

    def schedule_fired(self, late_seconds: float) -> None:
        self._lateness.of().observe(late_seconds)

    def event_delivered(self, waited_seconds: float) -> None:
        self._outbox_lag.of().observe(waited_seconds)

    def runs_swept(self, count: int) -> None:
        self._swept.add(amount=count)

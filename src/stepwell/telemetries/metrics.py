"""What is measured: every metric by its name, with its labels and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Upper bounds of buckets, in seconds: of what takes moments, and of what may take days.
MOMENTS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SPANS = (*MOMENTS, 60.0, 300.0, 1_800.0, 3_600.0, 21_600.0, 86_400.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_000.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = ()
    # How many values each label may have among those with the same before it.
    most: tuple[int, ...] = (200, 50)


RUNS_STARTED = Metric(
    "workflow_runs_started_total", "counter", ("workflow",), "Runs that this process has started."
)
RUNS_COMPLETED = Metric(
    "workflow_runs_completed_total", "counter", ("workflow", "status"),
    "Runs that this process has seen end, by how they ended: completed, failed, cancelled or "
    "timed_out.",
)  # fmt: skip
RUNS_IN_FLIGHT = Metric(
    "workflow_runs_in_flight", "gauge", ("workflow",),
    "Runs that this process executes now; those that only wait are not among them.",
)  # fmt: skip
RUN_DURATION = Metric(
    "workflow_run_duration_seconds", "histogram", ("workflow",),
    "From the start of a run to its end, its waits included.", SPANS,
)  # fmt: skip
STEP_DURATION = Metric(
    "workflow_step_duration_seconds", "histogram", ("workflow", "step"),
    "From the first attempt of a step to its end, its retries included; sleeps and waits are no "
    "steps.", SPANS,
)  # fmt: skip
STEP_RETRIES = Metric(
    "workflow_step_retries_total", "counter", ("workflow", "step"),
    "Attempts of steps that have failed and are followed by another.",
)  # fmt: skip
SIGNALS = Metric(
    "workflow_signals_total", "counter", ("workflow", "event"),
    "Signals that this process has sent and that have reached their runs, by name: "
    "`advance:` or `resolve:` and the step, and `other` for names with more than letters.",
)  # fmt: skip
RETENTION_SWEPT = Metric(
    "workflow_retention_swept_total", "counter", (),
    "Runs that were deleted because their retention had passed.",
)  # fmt: skip
CLAIM_LATENCY = Metric(
    "stepwell_claim_latency_seconds", "histogram", (),
    "From when a run was due to when this process has taken it up.", MOMENTS,
)  # fmt: skip
COMMIT_BATCH_SIZE = Metric(
    "stepwell_commit_batch_size", "histogram", (), "Changes that share a commit.", SIZES
)
COMMIT_SECONDS = Metric(
    "stepwell_commit_seconds", "histogram", (),
    "How long a commit takes until it is durable, however often it had to be sent.", MOMENTS,
)  # fmt: skip
QUEUE_DEPTH = Metric(
    "stepwell_queue_depth", "gauge", ("workspace",),
    "Runs that are due and that no process has taken up; the same from every process.",
)  # fmt: skip
OUTBOX_LAG = Metric(
    "stepwell_outbox_lag_seconds", "histogram", (),
    "From when an event was emitted to when its triggers have heard of it.", SPANS,
)  # fmt: skip
SCHEDULE_LATENESS = Metric(
    "stepwell_schedule_lateness_seconds", "histogram", (),
    "From when a schedule is to start a run to when it does.", SPANS,
)  # fmt: skip
HTTP_REQUESTS = Metric(
    "stepwell_http_requests_total", "counter", ("method", "operation", "status"),
    "Requests that were answered, by operation and by class of status: 2xx, 4xx.",
    most=(10, 300, 10),
)  # fmt: skip
HTTP_DURATION = Metric(
    "stepwell_http_request_duration_seconds", "histogram", ("method", "operation"),
    "How long requests took to be answered.", MOMENTS, most=(10, 300),
)  # fmt: skip

METRICS = (
    RUNS_STARTED, RUNS_COMPLETED, RUNS_IN_FLIGHT, RUN_DURATION, STEP_DURATION, STEP_RETRIES,
    SIGNALS, RETENTION_SWEPT, CLAIM_LATENCY, COMMIT_BATCH_SIZE, COMMIT_SECONDS, QUEUE_DEPTH,
    OUTBOX_LAG, SCHEDULE_LATENESS, HTTP_REQUESTS, HTTP_DURATION,
)  # fmt: skip

"""OpenTelemetry: makes spans of runs, steps and signals, and sends them over OTLP.

A span is made when what it is about has become durable, with the times that are recorded. Its ids
come from the run and the step, so it is the same span whoever makes it. Sending is the business
of a thread: the loop only leaves spans in its queue, and if nobody takes them they are dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags

from stepwell.kernel.changes import ClaimedRun, LogAttempt, RecordStep, SendSignal
from stepwell.kernel.outcomes import read_error
from stepwell.kernel.tracing import Trace, run_span, signal_span, step_span, trace_of
from stepwell.store import RunOutline
from stepwell.telemetry import Telemetry, step_name

# How many spans wait to be sent, how many at a time are, and how long one waits for others.
MOST_WAITING, BATCH, DELAY_MILLIS = 65_536, 512, 1_000
# How long closing waits until all are sent.
CLOSE_SECONDS = 3.0
# What a step is to a trace, by its kind in the journal; a patch is no work and takes no time.
KINDS = {"sleep": "sleep", "event": "wait", "child": "wait", "gate": "wait", "task": "wait"}
UNTOLD = frozenset({"patch"})

_SCOPE = InstrumentationScope("stepwell")
_FAILED = Status(StatusCode.ERROR)
_FINE = Status(StatusCode.UNSET)

Attributes = Mapping[str, str | int]


class OpenTelemetry(Telemetry):
    """Sends spans to a collector."""

    traces = True

    def __init__(self, endpoint: str) -> None:
        # Headers, timeout and certificates are read from the variables that OpenTelemetry names.
        base = endpoint.rstrip("/").removesuffix("/v1/traces")
        exporter = OTLPSpanExporter(f"{base}/v1/traces")
        self._processor = BatchSpanProcessor(
            exporter,
            MOST_WAITING,
            schedule_delay_millis=DELAY_MILLIS,
            max_export_batch_size=BATCH,
        )
        own = Resource({SERVICE_NAME: "stepwell"})
        self._resource = own.merge(OTELResourceDetector().detect())

    def close(self) -> None:
        # A collector that does not answer must not hold up whoever wants to leave.
        closing = threading.Thread(target=self._processor.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    # -- the trace of the code at hand ---------------------------------------------------

    def current(self) -> str | None:
        found = trace.get_current_span().get_span_context()
        if not found.is_valid:
            return None
        whole = Trace(f"{found.trace_id:032x}", None, found.trace_flags.sampled)
        return whole.at(f"{found.span_id:016x}")

    def step_entered(self, run: ClaimedRun, key: str, attempt: int) -> object:
        span = _context(trace_of(run.id, run.trigger), step_span(run.id, key, attempt))
        return contexts.attach(trace.set_span_in_context(NonRecordingSpan(span)))

    def step_left(self, entered: object) -> None:
        contexts.detach(entered)  # type: ignore[arg-type]

    # -- what became durable -------------------------------------------------------------

    def run_ended(self, run: RunOutline) -> None:
        whole = trace_of(run.id, run.trigger)
        status = _FAILED if run.status in ("failed", "timed_out") else _FINE
        self._send(
            "workflow.run", whole, run_span(run.id), whole.span_id, run.created_at,
            run.completed_at or run.created_at, status,
            {"workflow.name": run.definition, "workflow.version": run.version, "run_id": run.id,
             "status": run.status},
        )  # fmt: skip

    def step_ended(self, run: ClaimedRun, step: RecordStep, logged: bool) -> None:
        if logged or step.kind in UNTOLD or step.completed_at is None:
            return
        failed = step.status == "failed"
        began_at = step.began_at or step.started_at
        self._step(
            run, step.key, step.kind, step.attempts, began_at, step.completed_at,
            step.error if failed else None,
        )  # fmt: skip

    def attempt_failed(self, run: ClaimedRun, attempt: LogAttempt) -> None:
        self._step(
            run, attempt.key, "step", attempt.number, attempt.started_at, attempt.failed_at,
            attempt.error,
        )  # fmt: skip

    def run_signalled(self, run: RunOutline, signal: SendSignal) -> None:
        whole = trace_of(run.id, run.trigger)
        self._send(
            "workflow.signal", whole, signal_span(signal.id), run_span(run.id),
            signal.created_at, signal.created_at, _FINE,
            {"workflow.name": run.definition, "run_id": run.id, "event": signal.type},
        )  # fmt: skip

    def _step(
        self, run: ClaimedRun, key: str, kind: str, attempt: int, began_at: int, ended_at: int,
        error: str | None,
    ) -> None:  # fmt: skip
        attributes: dict[str, str | int] = {
            "workflow.name": run.definition,
            "run_id": run.id,
            "step.name": step_name(run, key, kind),
            "step.key": key,
            "step.kind": KINDS.get(kind, "run"),
            "step.attempt": attempt,
        }
        if (found := read_error(error)) is not None:
            attributes["error.type"] = found.type  # its message may hold anything
        self._send(
            "workflow.step", trace_of(run.id, run.trigger), step_span(run.id, key, attempt),
            run_span(run.id), began_at, ended_at, _FINE if error is None else _FAILED, attributes,
        )  # fmt: skip

    def _send(
        self, name: str, whole: Trace, span_id: str, parent_id: str | None, began_at: int,
        ended_at: int, status: Status, attributes: Attributes,
    ) -> None:  # fmt: skip
        span = ReadableSpan(
            name, _context(whole, span_id),
            None if parent_id is None else _context(whole, parent_id),
            self._resource, attributes, status=status, start_time=began_at * 1000,
            end_time=max(ended_at, began_at) * 1000, instrumentation_scope=_SCOPE,
        )  # fmt: skip
        self._processor.on_end(span)


def _context(whole: Trace, span_id: str) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if whole.sampled else TraceFlags.DEFAULT)
    return SpanContext(
        int(whole.trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=flags
    )

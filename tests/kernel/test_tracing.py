"""Trace context: what is read, what counts as none, and ids that are the same every time."""

from __future__ import annotations

import json

import pytest

from stepwell.kernel.tracing import (
    Trace,
    carried_by,
    passed_on,
    read_traceparent,
    run_span,
    signal_span,
    step_span,
    trace_of,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (GIVEN, True),
        (f"  {GIVEN} ", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"01-{TRACE}-{SPAN}-01-what-is-to-come", True),
    ],
)
def test_a_traceparent_is_read(text: str, sampled: bool) -> None:
    assert read_traceparent(text) == Trace(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "hello",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{GIVEN}-more",
        f"01-{TRACE}-{SPAN}-01more",
        f"{GIVEN}, {GIVEN}",
    ],
)
def test_one_that_is_malformed_counts_as_none(text: object) -> None:
    assert read_traceparent(text) is None


def test_a_run_belongs_to_the_trace_it_was_started_in_or_to_one_of_its_own() -> None:
    trigger = json.dumps({"type": "manual", "traceparent": GIVEN})
    assert trace_of("run", trigger) == carried_by(trigger) == Trace(TRACE, SPAN)
    assert carried_by(None) is None
    assert carried_by('{"type": "manual"}') is None
    own = trace_of("run", None)
    assert own == trace_of("run", '{"traceparent": "nonsense"}')
    assert own.span_id is None
    assert read_traceparent(own.at(run_span("run"))) == Trace(own.trace_id, run_span("run"))


def test_ids_of_spans_are_the_same_every_time_and_differ_from_each_other() -> None:
    ids = [
        run_span("a"), run_span("b"), step_span("a", "b", 1), step_span("a", "b", 2),
        step_span("a", "b1", 1), signal_span("a"),
    ]  # fmt: skip
    assert ids[2] == step_span("a", "b", 1)
    assert len({*ids}) == len(ids)


def test_what_nobody_traces_is_passed_on_as_it_came() -> None:
    trigger = json.dumps({"traceparent": GIVEN})
    span = step_span("run", "call", 1)
    assert passed_on("run", trigger, span, traces=True) == f"00-{TRACE}-{span}-01"
    assert passed_on("run", trigger, span, traces=False) == GIVEN
    assert passed_on("run", None, span, traces=False) is None
    assert passed_on("run", None, span, traces=True) is not None

"""Traces: what a run belongs to, as W3C Trace Context writes it, and the ids of its spans.

A run carries the `traceparent` it was started with in its trigger, so whoever executes it, and
however often, adds to the same trace. The ids of spans are made from what they are about: a span
that is told of twice is one span, and a step can name the span it will be part of beforehand.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

import msgspec

# Where a trigger has it.
TRACEPARENT = "traceparent"
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = 1


class Trace(NamedTuple):
    """A trace, and the span in it that what comes next belongs to, if there is one."""

    trace_id: str
    span_id: str | None
    sampled: bool = True

    def at(self, span_id: str) -> str:
        """The `traceparent` of a span in this trace."""
        return f"00-{self.trace_id}-{span_id}-{_SAMPLED if self.sampled else 0:02x}"


def read_traceparent(text: object) -> Trace | None:
    """What a `traceparent` says; None if it is malformed, which is as good as none."""
    if not isinstance(text, str):
        return None
    form = text.strip()
    # A version to come may have more behind a further dash.
    found = _FORM.match(form)
    if found is None or (len(form) > 55 and (form[:2] == "00" or form[55] != "-")):
        return None
    trace_id, span_id, flags = found.groups()
    if not (int(trace_id, 16) and int(span_id, 16)):
        return None
    return Trace(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def carried_by(trigger: str | None) -> Trace | None:
    """The trace that a run was started in, from the JSON that says what started it."""
    if trigger is None or TRACEPARENT not in trigger:
        return None
    return read_traceparent(msgspec.json.decode(trigger).get(TRACEPARENT))


def trace_of(run_id: str, trigger: str | None) -> Trace:
    """The trace that a run belongs to: the one it was started in, or one of its own."""
    return carried_by(trigger) or Trace(_digest("trace", run_id, size=16), None)


def run_span(run_id: str) -> str:
    return _digest("run", run_id)


def step_span(run_id: str, key: str, attempt: int) -> str:
    return _digest("step", run_id, key, str(attempt))


def signal_span(signal_id: str) -> str:
    return _digest("signal", signal_id)


def passed_on(run_id: str, trigger: str | None, span_id: str, *, traces: bool) -> str | None:
    """The `traceparent` for whoever is asked to do something by that span of a run.

    Where nobody `traces`, there will be no such span: then what the run carries is passed on.
    """
    if traces:
        return trace_of(run_id, trigger).at(span_id)
    carried = carried_by(trigger)
    return None if carried is None or carried.span_id is None else carried.at(carried.span_id)


def _digest(*parts: str, size: int = 8) -> str:
    # A zero between them keeps ("a", "bc") and ("ab", "c") apart; no part has one.
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=size).hexdigest()

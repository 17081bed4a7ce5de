"""Handing out signals: each to one wait, each wait one signal, first come first served."""

from __future__ import annotations

from typing import Any

from stepwell.kernel.changes import SendSignal
from stepwell.kernel.codec import encode
from stepwell.kernel.signals import Awaiting, hand_out


def _signal(id: str, payload: Any = None, run_id: str = "run", type: str = "go") -> SendSignal:
    return SendSignal(id, "default", run_id, type, encode(payload, "The payload"), created_at=0)


def _wait(key: str, match: Any = None, run_id: str = "run", event: str = "go") -> Awaiting:
    encoded = None if match is None else encode(match, "The match")
    return Awaiting(run_id, event, key, encoded, created_at=0)


def test_signals_go_to_waits_in_order() -> None:
    signals = [_signal("s1"), _signal("s2"), _signal("s3")]
    assert hand_out(signals, [_wait("a"), _wait("b")]) == {"s1": "a", "s2": "b"}


def test_one_signal_serves_one_wait_only() -> None:
    assert hand_out([_signal("s1")], [_wait("a"), _wait("b"), _wait("c")]) == {"s1": "a"}


def test_a_signal_skips_the_waits_it_does_not_match() -> None:
    waits = [_wait("a", {"by": "ada"}), _wait("b", {"by": "bob"}), _wait("c")]
    signals = [_signal("s1", {"by": "bob", "at": 9}), _signal("s2", {"by": "bob"})]
    assert hand_out(signals, waits) == {"s1": "b", "s2": "c"}


def test_a_signal_that_matches_no_wait_is_left_for_a_later_one() -> None:
    signals = [_signal("s1", {"by": "eve"}), _signal("s2", {"by": "ada"})]
    assert hand_out(signals, [_wait("a", {"by": "ada"})]) == {"s2": "a"}


def test_a_signal_reaches_no_other_run_and_no_other_event() -> None:
    waits = [_wait("a", run_id="other"), _wait("b", event="stop"), _wait("c")]
    assert hand_out([_signal("s1"), _signal("s2")], waits) == {"s1": "c"}
    assert hand_out([_signal("s3", run_id="other"), _signal("s4", type="stop")], waits) == {
        "s3": "a",
        "s4": "b",
    }


def test_waits_that_look_alike_are_served_one_by_one() -> None:
    waits = [_wait("a", {"n": 1}), _wait("b", {"n": 1})]
    signals = [_signal("s1", {"n": 1}), _signal("s2", {"n": 1.0}), _signal("s3", {"n": 1})]
    assert hand_out(signals, waits) == {"s1": "a", "s2": "b"}

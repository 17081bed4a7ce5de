"""The states of a run: how it may go on, and when it has ended."""

from __future__ import annotations

import pytest

from stepwell.kernel.states import ENDED, SETTLED, TRANSITIONS

LIVE = ("pending", "running", "waiting")
FINAL = ("completed", "failed", "cancelled", "timed_out")


def test_a_run_has_ended_in_exactly_four_states() -> None:
    assert frozenset(FINAL) == ENDED
    assert {*LIVE, *FINAL} == TRANSITIONS.keys()


@pytest.mark.parametrize("status", FINAL)
def test_nothing_leaves_an_ended_state(status: str) -> None:
    assert TRANSITIONS[status] == ()


@pytest.mark.parametrize("status", LIVE)
def test_a_live_run_can_be_cancelled_and_run_out_of_time(status: str) -> None:
    assert {"running", "cancelled", "timed_out"} <= set(TRANSITIONS[status])


def test_only_a_running_run_can_wait_complete_or_fail() -> None:
    for outcome in ("waiting", "completed", "failed"):
        assert [status for status in TRANSITIONS if outcome in TRANSITIONS[status]] == ["running"]


def test_nothing_becomes_pending_again() -> None:
    assert all("pending" not in following for following in TRANSITIONS.values())


def test_a_step_that_runs_waits_or_retries_is_not_settled() -> None:
    assert not SETTLED & {"running", "waiting", "retrying"}
    assert {"completed", "failed", "timed_out", "skipped"} <= SETTLED

"""Verdicts on dead workers: the run that takes them down is found, and no other is failed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from stepwell.kernel.clock import SECOND
from stepwell.kernel.crashes import (
    APART_SECONDS,
    CRASH_LIMIT,
    SUSPECT,
    Stopped,
    Verdict,
    admits,
    judge,
)

NOW = 1000 * SECOND


def _stuck(run_id: str, crashes: int, claimed_at: int = 0) -> Stopped:
    """A run that has recorded nothing since its last crash."""
    return Stopped(run_id, crashes, 3 if crashes else None, 3, claimed_at)


def _counts(verdicts: Iterable[Verdict]) -> dict[str, int]:
    return {verdict.run_id: verdict.crashes for verdict in verdicts}


def _waits(verdicts: Iterable[Verdict]) -> list[tuple[str, float]]:
    """Who is taken up when, in seconds from now."""
    found = [(verdict.run_id, (verdict.due_at - NOW) / SECOND) for verdict in verdicts]
    return sorted(found, key=lambda pair: pair[1])


def test_a_worker_without_runs_leaves_no_verdict() -> None:
    assert judge([], NOW) == []


def test_the_first_crashes_count_for_every_run() -> None:
    first = judge([_stuck("a", 0, 1), _stuck("b", 0, 2)], NOW)
    assert _counts(first) == {"a": 1, "b": 1}
    assert _waits(first) == [("a", 0), ("b", 0)]
    third = judge([_stuck("a", SUSPECT - 1, 1), _stuck("b", SUSPECT - 1, 2)], NOW)
    assert _counts(third) == {"a": SUSPECT, "b": SUSPECT}


def test_progress_since_the_last_crash_starts_the_count_again() -> None:
    (verdict,) = judge([Stopped("a", 4, crash_progress=3, progress=4, claimed_at=0)], NOW)
    assert (verdict.crashes, verdict.progress, verdict.looping) == (1, 4, False)


def test_only_the_suspect_claimed_last_is_blamed() -> None:
    stopped = [_stuck("a", 3, 10), _stuck("b", 3, 30), _stuck("c", 4, 20)]
    assert _counts(judge(stopped, NOW)) == {"a": 3, "b": 4, "c": 4}


def test_a_run_that_is_no_suspect_yet_does_not_clear_one_claimed_before_it() -> None:
    progressed = Stopped("progressed", 4, crash_progress=3, progress=4, claimed_at=40)
    stopped = [_stuck("suspect", 3, 10), _stuck("second", 1, 20), _stuck("new", 0, 30), progressed]
    assert _counts(judge(stopped, NOW)) == {"suspect": 4, "second": 2, "new": 1, "progressed": 1}


def test_suspects_are_taken_up_apart_the_likeliest_first() -> None:
    stopped = [_stuck("b", 3, 20), _stuck("a", 3, 10), _stuck("last", 3, 30), _stuck("four", 4, 5)]
    waits = _waits(judge(stopped, NOW))
    assert waits == [
        ("four", 0),
        ("last", APART_SECONDS),  # four crashes as well by now, but claimed later
        ("a", 2 * APART_SECONDS),
        ("b", 3 * APART_SECONDS),
    ]


def test_runs_above_suspicion_go_on_at_once() -> None:
    stopped = [_stuck("new", 0, 30), _stuck("a", 3, 10), _stuck("b", 3, 20)]
    assert dict(_waits(judge(stopped, NOW))) == {"new": 0, "b": 0, "a": APART_SECONDS}


def test_the_fifth_crash_makes_it_looping_and_keeps_nobody_waiting() -> None:
    verdicts = judge([_stuck("poison", 4, 30), _stuck("a", 3, 10)], NOW)
    assert {verdict.run_id: verdict.looping for verdict in verdicts} == {"poison": True, "a": False}
    assert _counts(verdicts) == {"poison": 5, "a": 3}
    assert dict(_waits(verdicts))["a"] == 0


def _live_through(takeover_seconds: int, poison_at: int) -> tuple[set[str], int]:
    """Which runs loop, and after how many crashes, when one of 21 kills its worker in a second.

    None of them records anything meanwhile; each new worker takes up whatever is due.
    """
    run_ids = [f"run-{number:02}" for number in range(21)]
    poison = run_ids[poison_at]
    known = {run_id: Verdict(run_id, 0, -1, due_at=0) for run_id in run_ids}
    now = crashes = 0
    while not known[poison].looping and crashes < 100:
        claimed_at = {run_id: max(now, known[run_id].due_at) for run_id in run_ids}
        died_at = claimed_at[poison] + SECOND
        now = died_at + takeover_seconds * SECOND
        stopped = [
            Stopped(run_id, known[run_id].crashes, known[run_id].progress, 0, claimed_at[run_id])
            for run_id in run_ids
            if claimed_at[run_id] <= died_at
        ]
        known |= {verdict.run_id: verdict for verdict in judge(stopped, now)}
        crashes += 1
    return {run_id for run_id in run_ids if known[run_id].looping}, crashes


@pytest.mark.parametrize("takeover_seconds", [0, 15, 300])
@pytest.mark.parametrize("poison_at", [0, 10, 20])
def test_of_many_runs_only_the_poisonous_one_is_ever_found_looping(
    takeover_seconds: int, poison_at: int
) -> None:
    looping, crashes = _live_through(takeover_seconds, poison_at)
    assert looping == {f"run-{poison_at:02}"}
    assert crashes == CRASH_LIMIT


@pytest.mark.parametrize(
    ("taken", "crashes", "most", "admitted"),
    [
        ([], SUSPECT, 0, True),
        ([], SUSPECT + 1, 0, True),
        ([SUSPECT], SUSPECT, 0, False),
        ([SUSPECT], SUSPECT, 2, True),
        ([SUSPECT, SUSPECT], SUSPECT, 2, False),
        ([SUSPECT], SUSPECT + 1, 2, False),
        ([SUSPECT + 1], SUSPECT, 2, False),
    ],
)
def test_suspects_that_were_blamed_are_taken_alone(
    taken: list[int], crashes: int, most: int, admitted: bool
) -> None:
    assert admits(taken, crashes, most) is admitted

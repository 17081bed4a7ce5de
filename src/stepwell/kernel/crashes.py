"""Whom to blame when a worker is gone: the run that took it down, not those beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepwell.kernel.clock import SECOND

# A step that takes its worker down so often in a row, without any progress, fails its run.
CRASH_LIMIT = 5
# From this many on a run is a suspect: they are taken up apart, so that the next crash tells them
# apart. One that got on calls the next ones up, each time twice as many.
SUSPECT = 3
APART_SECONDS = 5
MOST_CALLED = 64


class Stopped(NamedTuple):
    """A run whose worker is gone: its earlier crashes, at how many recorded steps, and now."""

    run_id: str
    crashes: int
    crash_progress: int | None
    progress: int
    claimed_at: int


class Verdict(NamedTuple):
    """How often the run is now held to have taken its worker down, and when it may go on."""

    run_id: str
    crashes: int
    progress: int
    due_at: int

    @property
    def looping(self) -> bool:
        return self.crashes >= CRASH_LIMIT


def judge(stopped: Sequence[Stopped], now: int) -> list[Verdict]:
    """A verdict for each run that one dead worker held.

    The first crashes count for all of them. After that only the suspect that was claimed last is
    blamed: the others had been running beside it without harm.
    """
    last = max((run.claimed_at for run in stopped if _is_suspect(run)), default=None)
    counted = [(_crashes(run, last), run) for run in stopped]
    # The likeliest culprit first: it then fails before the others are taken up again.
    counted.sort(key=lambda pair: (-pair[0], pair[1].claimed_at, pair[1].run_id))
    verdicts, suspects = [], 0
    for crashes, run in counted:
        due_at = now
        if SUSPECT <= crashes < CRASH_LIMIT:
            due_at = set_apart(suspects, now)
            suspects += 1
        verdicts.append(Verdict(run.run_id, crashes, run.progress, due_at))
    return verdicts


def admits(taken: Sequence[int], crashes: int, most: int) -> bool:
    """Whether a claim that takes suspects with these crashes takes another one with so many.

    One that was blamed as a suspect already is taken alone: it did it, or one taken with it.
    """
    return not taken or (len(taken) < most and max(*taken, crashes) == SUSPECT)


def set_apart(number: int, now: int) -> int:
    """When the suspect of this number, of several that could be taken up now, is to be."""
    return now + number * APART_SECONDS * SECOND


def _is_suspect(run: Stopped) -> bool:
    return run.crashes >= SUSPECT and run.crash_progress == run.progress


def _crashes(run: Stopped, last_suspect_claimed_at: int | None) -> int:
    if run.crash_progress != run.progress:
        return 1
    spared = _is_suspect(run) and run.claimed_at != last_suspect_claimed_at
    return run.crashes if spared else run.crashes + 1

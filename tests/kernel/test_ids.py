"""Ids: unique, of one length, and sorted by when they were made."""

from __future__ import annotations

import random
import re

from stepwell.kernel.clock import LAST, SECOND
from stepwell.kernel.ids import Ids, lowest_id
from stepwell.testing.clock import FakeClock

MILLISECOND = SECOND // 1000


class WanderingClock(FakeClock):
    """A clock that a test sets, also back."""

    def set(self, now: int) -> None:
        self._now = now


class Ones(random.Random):
    """Chance that leaves no room for counting up."""

    def getrandbits(self, k: int, /) -> int:
        return (1 << k) - 1


def test_an_id_is_26_lower_case_characters(clock: FakeClock) -> None:
    ids = Ids(clock)
    assert all(re.fullmatch(r"[0-9a-v]{26}", ids.new()) for _ in range(100))
    assert re.fullmatch(r"0{10}[0-9a-v]{16}", Ids(FakeClock(0), random.Random(1)).new())


def test_processes_that_share_a_millisecond_make_different_ids(clock: FakeClock) -> None:
    made = [Ids(clock).new() for _ in range(1000)]
    assert len(set(made)) == 1000


def test_ids_sort_by_time_across_processes() -> None:
    clock = FakeClock()
    made = []
    for seed in range(100):
        made.append(Ids(clock, random.Random(seed)).new())
        clock.advance("1ms")
    assert made == sorted(made)


def test_ids_of_one_moment_sort_as_they_were_made(clock: FakeClock) -> None:
    ids = Ids(clock)
    made = [ids.new() for _ in range(1000)]
    assert made == sorted(set(made))


def test_ids_go_on_upwards_when_the_clock_goes_back() -> None:
    clock = WanderingClock(1000 * SECOND)
    ids = Ids(clock)
    made = []
    for now in (1000 * SECOND, 999 * SECOND, 0, 1000 * SECOND, 1000 * SECOND + 1, 1001 * SECOND):
        clock.set(now)
        made.append(ids.new())
    assert made == sorted(set(made))


def test_counting_up_may_run_into_the_next_millisecond() -> None:
    clock = WanderingClock(1000 * SECOND)
    ids = Ids(clock, Ones())
    made = [ids.new(), ids.new()]
    for later in (1, 2, 3):
        clock.set(1000 * SECOND + later * MILLISECOND)
        made.append(ids.new())
    assert made == sorted(set(made))


def test_no_id_is_lower_than_the_lowest_of_its_time() -> None:
    clock = WanderingClock(0)
    ids = Ids(clock)
    for now in (0, 1, 999, 1000, 1001, 1000 * SECOND, 999 * SECOND, LAST):
        clock.set(now)
        assert ids.new() >= lowest_id(now)
        assert lowest_id(now - MILLISECOND) <= lowest_id(now) < lowest_id(now + MILLISECOND)
    assert Ids(FakeClock(10 * SECOND - 1)).new() < lowest_id(10 * SECOND)


def test_a_seed_makes_the_same_ids_again(clock: FakeClock) -> None:
    first, second = (Ids(clock, random.Random(7)) for _ in range(2))
    assert [first.new() for _ in range(3)] == [second.new() for _ in range(3)]
    assert first.fraction() == second.fraction()

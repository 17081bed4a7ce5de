"""Clusters under faults: many seeds, some about graphs, and that a seed tells one story twice."""

from __future__ import annotations

import pytest

from stepwell.testing.simulate import attempt
from stepwell.testing.simulation.simulation import simulate

SEEDS = 2000
BATCH = 100


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_every_seed_holds(first: int) -> None:
    failed = [
        problem for seed in range(first, first + BATCH) if (problem := attempt(seed)[1]) is not None
    ]
    assert not failed, f"{len(failed)} seeds failed, the first:\n{failed[0]}"


def test_a_seed_reproduces() -> None:
    assert [simulate(seed) for seed in range(20)] == [simulate(seed) for seed in range(20)]

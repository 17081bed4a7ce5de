"""What is told of a graph: of each node that is more than a step once that it begins, and ends."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from stepwell.kernel.feed import MOST_NODES
from stepwell.kernel.progress import Entry, Place, Progress, node_of
from stepwell.kernel.told import nothing_told, read_id
from tests.kernel.test_feed import RUN, Model, line, look

NODES = 4


class GraphModel(Model):
    """A run of a graph, most of whose steps belong to a few nodes."""

    def __init__(self, rng: random.Random, page: int = 3) -> None:
        super().__init__(rng, page)
        self.run.graph = True

    def step(self) -> None:
        if self.rng.random() < 0.2:
            self.finish()
        else:
            super().step()

    def begin(self) -> None:
        super().begin()
        key, entry = self.unseen.popitem()
        node = f"n{self.rng.randrange(NODES)}"
        if node not in self.entries:
            del self.history[f"step.started {key}"]
            entry.key = key = f"{node}.{key}"
            self.history[f"step.started {key}"] += 1
        self.unseen[key] = entry

    def finish(self) -> None:
        """End a node; what it leaves open ends some other time, or never."""
        open_nodes = sorted({node_of(key) or key for key in self.entries} - self.entries.keys())
        if open_nodes:
            key = self.rng.choice(open_nodes)
            now = self.now
            self._write(Entry(key, 99, 0, "node", "completed", 1, None, False, None, now, now))
            self.history[f"step.completed {key}"] += 1

    def end(self) -> None:
        super().end()
        for key in {node for each in self.entries if (node := node_of(each)) is not None}:
            self.history[f"step.started {key}"] += 1
            if key not in self.entries:
                self.history[f"step.cancelled {key}"] += 1

    def progress(self, place: Place) -> Progress:
        found = super().progress(place)
        found.nodes = {
            key: entry.position
            for key in found.node_keys()
            if (entry := self.entries.get(key)) is not None
        }
        return found


@pytest.mark.parametrize("seed", range(300))
def test_whoever_looks_now_and_then_is_told_of_every_node_once(seed: int) -> None:
    rng = random.Random(seed)
    model, told = GraphModel(rng), nothing_told(RUN)
    heard = []
    for _ in range(rng.randint(0, 60)):
        model.step()
        if rng.random() < 0.3:
            found = look(model, told)
            if found and rng.random() < 0.5:  # cut off in the middle, and back with the last id
                found = found[: rng.randint(1, len(found))]
                told = read_id(found[-1].id, RUN)
            heard += found
    model.end()
    heard += look(model, told)
    lines = list(map(line, heard))
    assert Counter(lines) == model.history
    for number, each in enumerate(lines):
        kind, _, step = each.partition(" ")
        if kind in ("step.completed", "step.failed", "step.cancelled"):
            assert f"step.started {step}" in lines[:number]


@pytest.mark.parametrize("seed", range(100))
def test_from_every_id_of_a_graph_the_very_same_rest_follows(seed: int) -> None:
    model = GraphModel(random.Random(seed), page=1000)
    for _ in range(40):
        model.step()
    model.end()
    events = look(model, nothing_told(RUN))
    for number, event in enumerate(events, 1):
        assert look(model, read_id(event.id, RUN)) == events[number:]


def test_no_id_names_more_than_a_few_nodes() -> None:
    model, told = GraphModel(random.Random(0)), nothing_told(RUN)
    for _ in range(3 * MOST_NODES):
        model.ask()
    heard = look(model, told)
    assert len(told.nodes) == MOST_NODES
    assert max(len(event.id) for event in heard) < 8000

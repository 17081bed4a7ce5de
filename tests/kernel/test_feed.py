"""What is told of a run: whenever a listener looks, and wherever it goes on, all of it, once."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from stepwell.errors import InvalidCursor
from stepwell.kernel.feed import MOST_GATES, RunEvent, news
from stepwell.kernel.outcomes import error_text
from stepwell.kernel.progress import (
    ENDING,
    Entry,
    Failure,
    GateState,
    Place,
    Progress,
    RunState,
)
from stepwell.kernel.records import GateDecision
from stepwell.kernel.told import Told, mark_of, nothing_told, read_id, write_id

RUN = "0" * 26


class Model:
    """A run as a store keeps it, to which things happen by chance."""

    def __init__(self, rng: random.Random, page: int = 3) -> None:
        self.rng = rng
        self.page = page
        self.now = 1000
        self.position = 0
        self.run = RunState(
            "running", "made", 1, 1, 1, True, False, 1, 2, 2, None, None, False, None,
            False,
        )  # fmt: skip
        self.entries: dict[str, Entry] = {}
        self.failures: list[Failure] = []
        self.gates: dict[str, GateState] = {}
        # What has begun and is not written down yet.
        self.unseen: dict[str, Entry] = {}
        # All that happened and has to be told.
        self.history: Counter[str] = Counter(["run.started"])

    def step(self) -> None:
        """Let something happen."""
        self.now += self.rng.randint(0, 2)
        happenings = [self.begin, self.show, self.fail, self.settle, self.ask, self.decide]
        self.rng.choice(happenings)()

    def begin(self) -> None:
        key = f"s{len(self.history)}"
        self.history[f"step.started {key}"] += 1
        entry = Entry(
            key, len(self.history), 0, "step", "running", 1, None, False, None, self.now, None
        )
        self.unseen[key] = entry

    def show(self) -> None:
        if self.unseen:
            self._write(self.unseen.pop(self.rng.choice(list(self.unseen))))

    def fail(self) -> None:
        if entry := self._some_open():
            number = entry.attempts
            entry.attempts += 1
            error = error_text("Oops", "no luck")
            self.failures.append(Failure(entry.key, number, error, self.now))
            self.history[f"step.retrying {entry.key} {number}"] += 1
            self._write(entry)

    def settle(self) -> None:
        if entry := self._some_open():
            self.unseen.pop(entry.key, None)
            entry.status = self.rng.choice(["completed", "failed"])
            entry.completed_at = self.now
            self.history[f"step.{entry.status} {entry.key}"] += 1
            self._write(entry)

    def ask(self) -> None:
        step = f"g{len(self.history)}"
        gate = GateState("id", f"{step}[0123456789ab]", "open", "?", self.now, None, [], 1)
        self.gates[gate.key] = gate
        self.history[f"gate.required {step}"] += 1
        entry = Entry(
            gate.decision_key, len(self.history), 0, "gate", "waiting", 1, None, False, None,
            self.now, None, self.now,
        )  # fmt: skip
        self.history[f"step.started {entry.key}"] += 1
        self._write(entry)

    def decide(self) -> None:
        waiting = [gate for gate in self.gates.values() if gate.status == "open"]
        if waiting:
            gate = self.rng.choice(waiting)
            entry = self.entries[gate.decision_key]
            if entry.status == "waiting" and self.rng.random() < 0.5:
                # Its time is up: the wait ends before the gate.
                entry.status, entry.completed_at = "timed_out", self.now
                self.history[f"step.completed {entry.key}"] += 1
                self._write(entry)
                gate.deadline_at = self.now
                return
            timed_out = entry.status == "timed_out"
            gate.status = "expired" if timed_out else self.rng.choice(["approved", "denied"])
            gate.decisions = [GateDecision("approve", "ada", "", self.now)]
            self.history[f"gate.{gate.status} {gate.step}"] += 1

    def end(self) -> None:
        self.unseen.clear()
        for entry in self.entries.values():
            if entry.completed_at is None:
                entry.status, entry.position = "skipped", ENDING
                self.history[f"step.cancelled {entry.key}"] += 1
        begun = {f"step.started {key}" for key in self.entries}
        for line in [each for each in self.history if each.startswith("step.started")]:
            if line not in begun:  # nobody ever wrote it down
                del self.history[line]
        self.run.status, self.run.completed_at, self.run.held = "failed", self.now, False
        self.history["run.finished"] += 1

    def _some_open(self) -> Entry | None:
        found = [each for each in self.entries.values() if each.status == "running"]
        found += self.unseen.values()
        return self.rng.choice(found) if found else None

    def _write(self, entry: Entry) -> None:
        self.position += self.rng.choice([1, 1 << 20])
        entry.position = self.position
        self.entries[entry.key] = entry

    def progress(self, place: Place) -> Progress:
        """What a store finds behind a place."""
        ended = [e for e in self.entries.values() if e.completed_at or e.position == ENDING]
        behind = sorted(
            (
                e for e in ended
                if e.position > place.position
                or (e.position == place.position and place.key is not None and e.key > place.key)
            ),
            key=lambda entry: (entry.position, entry.key),
        )  # fmt: skip
        more = len(behind) > self.page
        waiting = [] if more else [e for e in self.entries.values() if e not in ended]
        found = Progress(
            self.run, behind[: self.page], more, waiting, self.failures, list(self.gates.values()),
            {e.key for e in ended if e.kind == "gate"},
        )  # fmt: skip
        return msgspec.json.decode(msgspec.json.encode(found), type=Progress)


def look(model: Model, told: Told) -> list[RunEvent]:
    """Everything there is to be told now."""
    found: list[RunEvent] = []
    while not told.finished:
        progress = model.progress(told.place(RUN))
        found += news(RUN, told, progress)
        if not progress.more:
            break
    return found


def line(event: RunEvent) -> str:
    number = str(event.data["attempt"]) if event.type == "step.retrying" else ""
    return " ".join(filter(None, [event.type, event.data.get("step", ""), number]))


@pytest.mark.parametrize("seed", range(300))
def test_whoever_looks_now_and_then_and_reconnects_anywhere_is_told_all_once(seed: int) -> None:
    rng = random.Random(seed)
    model = Model(rng)
    told = nothing_told(RUN)
    heard: list[RunEvent] = []
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
    assert Counter(map(line, heard)) == model.history
    assert [int(event.id.partition("-")[0]) for event in heard] == list(range(1, len(heard) + 1))
    for event in heard:
        step = event.data.get("step")
        if event.type in ("step.completed", "step.failed", "step.cancelled"):
            assert heard.index(event) > [line(each) for each in heard].index(f"step.started {step}")


@pytest.mark.parametrize("seed", range(100))
def test_from_every_id_of_a_journal_of_one_page_the_very_same_rest_follows(seed: int) -> None:
    model = Model(random.Random(seed), page=1000)
    for _ in range(40):
        model.step()
    model.end()
    events = look(model, nothing_told(RUN))
    for number, event in enumerate(events, 1):
        assert look(model, read_id(event.id, RUN)) == events[number:]


def test_of_very_many_gates_each_is_told_and_no_id_tells_of_all() -> None:
    model, told = Model(random.Random(0)), nothing_told(RUN)
    for _ in range(3 * MOST_GATES):
        model.ask()
    heard = look(model, told)
    assert [event.type for event in heard].count("gate.required") == MOST_GATES
    for entry, gate in zip(model.entries.values(), model.gates.values(), strict=True):
        gate.status, gate.decisions = "approved", [GateDecision("approve", "ada", "", model.now)]
        entry.status, entry.completed_at = "completed", model.now
        model.history[f"gate.approved {gate.step}"] += 1
        model.history[f"step.completed {entry.key}"] += 1
    model.end()
    heard += look(model, told)
    assert Counter(map(line, heard)) == model.history
    assert all(read_id(event.id, RUN) for event in heard)
    assert max(len(event.id) for event in heard) < 8000


def test_an_id_of_something_else_is_refused() -> None:
    told = nothing_told(RUN)
    told.open = {mark_of("step", "a"): 2}
    found = write_id(told)
    assert read_id(found, RUN) == told
    told.position = 1 << 63
    for wrong in ("", "0", "0-", "1" + found, found + "A", write_id(told), "0-" + "A" * 100_000):
        with pytest.raises(InvalidCursor):
            read_id(wrong, RUN)
    with pytest.raises(InvalidCursor):
        read_id(found, "1" * 26)

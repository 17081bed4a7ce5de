"""The live feed of a run: what its stored state tells that a listener has not been told yet.

Nothing is written for it. Everything that happens to a run leaves its trace in the journal, the
waits, the gates or the run itself, and `news` compares these with what was told. Ends of steps
come in the order in which they became visible; what else happened is put between them by its time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from stepwell.kernel.clock import moment
from stepwell.kernel.codec import decode
from stepwell.kernel.outcomes import read_error
from stepwell.kernel.progress import (
    ENDING,
    MOST_OPEN,
    Entry,
    Failure,
    GateState,
    Progress,
    RunState,
    node_of,
)
from stepwell.kernel.states import ENDED, SETTLED
from stepwell.kernel.told import Told, mark_of, write_id

# Texts are cut, lists shortened: an event says what happened, the rest can be looked up.
MOST_TEXT, MOST_LISTED = 1000, 20
# Ids must not grow with what is open. Gates are told among more of it than steps: they matter more.
MOST_GATES = 2 * MOST_OPEN
# Of nodes that are more than a step, so many are told to have begun before their ends are; ids have
# their names in them.
MOST_NODES = 20

_ENDS = {
    "completed": "step.completed",
    "timed_out": "step.completed",
    "failed": "step.failed",
    "skipped": "step.skipped",
}
_DECIDED = {"approved": "gate.approved", "denied": "gate.denied", "expired": "gate.expired"}


class RunEvent(msgspec.Struct, frozen=True):
    """Something that happened to a run."""

    # Where to go on after it; its number counts the events before it.
    id: str
    type: str
    run_id: str
    at: datetime
    data: dict[str, Any]


class _Happening(msgspec.Struct, gc=False):
    """An event in the making, and what has been told once it is."""

    type: str
    at: int
    data: dict[str, Any]
    # Of what is open: how much of it is told then.
    mark: bytes = b""
    count: int = 0
    # Of what ends: where; and what need not be remembered any more.
    position: int | None = None
    key: str | None = None
    drops: tuple[bytes, ...] = ()
    # The key of the node that begins or ends with it.
    node: str | None = None


# Behind how many ends of steps a happening comes, and its order among those that come there.
_Order = tuple[int, int, int]


def news(run_id: str, told: Told, progress: Progress) -> Iterator[RunEvent]:
    """What has not been told yet; `told` goes along with each event."""
    run = progress.run

    def tell(happening: _Happening) -> RunEvent:
        told.number += 1
        if happening.count:
            told.open[happening.mark] = happening.count
        if happening.position is not None:
            told.position, told.key = happening.position, happening.key
        for mark in happening.drops:
            told.open.pop(mark, None)
        if happening.node is not None:
            if happening.type == "step.started":
                told.nodes.append(happening.node)
            elif happening.node in told.nodes:
                told.nodes.remove(happening.node)
        return RunEvent(
            write_id(told), happening.type, run_id, moment(happening.at), happening.data
        )

    if run.started_at is not None:
        if told.number == 0:
            data = {"definition": run.definition, "version": run.version}
            yield tell(_Happening("run.started", run.started_at, data))
        _forget(told, progress)
        for happening in _Between(told, progress).in_order():
            if happening.type == "run.resumed":
                told.attempt, told.waiting = run.attempt, None
            yield tell(happening)
        if run.status == "waiting" and told.waiting is None and not progress.more:
            told.waiting = run.fence
            yield tell(_waiting(run, progress.open))
    if run.status in ENDED and not progress.more:
        assert run.completed_at is not None
        for key in list(told.nodes):
            yield tell(_unended(key, run.completed_at))
        told.finish()
        yield tell(_Happening("run.finished", run.completed_at, _end_data(run)))


class _Between:
    """What happened since the listener was told last."""

    def __init__(self, told: Told, progress: Progress) -> None:
        self._told = told
        self._progress = progress
        self._found: list[tuple[_Order, _Happening]] = []
        # When entries ended, never earlier than those before them: clocks may differ a little.
        self._ends: list[int] = []
        # Nodes that are told here to have begun, before anything of their own says so.
        self._begun: set[str] = set()
        self._failures: dict[str, list[Failure]] = {}
        for failure in progress.failures:
            self._failures.setdefault(failure.key, []).append(failure)

    def in_order(self) -> list[_Happening]:
        told, progress = self._told, self._progress
        for entry in progress.settled:
            self._ends.append(max([_end_of(entry, progress.run), *self._ends[-1:]]))
        gates = self._gates_by_decision()
        self._nodes()
        for place, entry in enumerate(progress.settled):
            self._entry(entry, place)
            self._end(entry, place, gates.get(entry.key))
        room = MOST_OPEN - len(told.open)
        for entry in () if progress.more else progress.open:
            known = mark_of("step", entry.key) in told.open
            if known or room > 0:
                self._entry(entry, None)
                room -= not known
        if not progress.more and _resumed(told, progress.run):
            at = progress.run.claimed_at or progress.run.created_at
            data = {"attempt": progress.run.attempt}
            # It goes on before anything can end because of it.
            behind = bisect_left(self._ends, at)
            self._found.append(((2 * behind, at, 0), _Happening("run.resumed", at, data)))
        return [found for _, found in sorted(self._found, key=lambda pair: pair[0])]

    def _put(self, before: int | None, seq: int, happening: _Happening) -> None:
        """Place something by its time, but before its own end if that is among these."""
        behind = bisect_right(self._ends, happening.at)
        behind = behind if before is None else min(behind, before)
        self._found.append(((2 * behind, happening.at, seq), happening))

    def _nodes(self) -> None:
        """The beginnings of nodes that are more than a step: with the first of their steps."""
        told, progress = self._told, self._progress
        if not progress.run.graph:
            return
        first: dict[str, tuple[int, int | None]] = {}
        placed = [*enumerate(progress.settled)]
        placed += [] if progress.more else [(len(placed), entry) for entry in progress.open]
        for place, entry in placed:
            key = node_of(entry.key)
            is_open = place == len(progress.settled)
            if key is None or _given_up(entry) or _is_copied(entry, progress.run):
                continue
            # It has ended before what was left of it, or tells of itself.
            ended = progress.nodes.get(key)
            if ended is not None and (is_open or ended <= entry.position):
                continue
            at, before = first.get(key, (entry.started_at, None if is_open else place))
            first[key] = (min(at, entry.started_at), before)
        room = MOST_NODES - len(told.nodes)
        for key, (at, before) in first.items():
            mark = mark_of("step", key)
            if mark in told.open or room <= 0:
                continue
            room -= 1
            self._begun.add(key)
            data = {"step": key, "kind": "node"}
            self._put(before, -3, _Happening("step.started", at, data, mark, 1, node=key))

    def _entry(self, entry: Entry, before: int | None) -> None:
        """The beginning of a step, and its failed attempts, as far as they are not told."""
        mark = mark_of("step", entry.key)
        count = self._told.open.get(mark, 0)
        if _is_copied(entry, self._progress.run):
            return
        if count == 0 and entry.key not in self._begun:
            if _given_up(entry):  # perhaps after its end was told, and the beginning before that
                return
            data = _step_data(entry)
            happening = _Happening("step.started", entry.started_at, data, mark, 1)
            self._put(before, entry.seq, happening)
        at = entry.started_at
        for failure in self._failures.get(entry.key, ()):
            if failure.number < count or not _was_retried(failure, entry):
                continue
            at = max(at, failure.failed_at)
            data = _step_data(entry) | {"attempt": failure.number, **_error_data(failure.error)}
            happening = _Happening("step.retrying", at, data, mark, failure.number + 1)
            self._put(before, entry.seq, happening)

    def _end(self, entry: Entry, place: int, gate: GateState | None) -> None:
        type_ = "step.cancelled" if entry.position == ENDING else _ENDS[entry.status]
        data = _step_data(entry) | {"attempts": entry.attempts}
        if entry.status == "timed_out":
            data["timed_out"] = True
        if _is_copied(entry, self._progress.run):
            data["copied"] = True
        if type_ == "step.completed":
            data |= _output_data(entry.output, entry.has_output)
        data |= _error_data(entry.error)
        drops = [mark_of("step", entry.key)]
        if gate is not None and (gate.status != "open" or entry.status == "skipped"):
            drops.append(mark_of("gate", gate.key))
        key = entry.key if entry.position == ENDING else None
        happening = _Happening(
            type_, _end_of(entry, self._progress.run), data, position=entry.position, key=key,
            drops=tuple(drops), node=entry.key,
        )  # fmt: skip
        self._found.append(((2 * place + 1, 0, 0), happening))

    def _gates_by_decision(self) -> dict[str, GateState]:
        """Tell what is new of gates; those whose waits end here, by the keys of their waits."""
        progress = self._progress
        places = {entry.key: place for place, entry in enumerate(progress.settled)}
        room = MOST_GATES - len(self._told.open)
        found = {}
        for gate in progress.gates:
            place = places.get(gate.decision_key)
            known = mark_of("gate", gate.key) in self._told.open
            if place is not None:
                found[gate.decision_key] = gate
                self._gate(gate, place)
            elif not progress.more and (known or (room > 0 and not self._is_over(gate))):
                self._gate(gate, None)
                room -= not known
        return found

    def _is_over(self, gate: GateState) -> bool:
        return gate.decision_key in self._progress.decisions

    def _gate(self, gate: GateState, before: int | None) -> None:
        mark = mark_of("gate", gate.key)
        count = self._told.open.get(mark, 0)
        data: dict[str, Any] = {"gate_id": gate.id, "step": gate.step}
        if count == 0:
            asked = data | {
                "prompt": _cut(gate.prompt), "approvers": gate.approvers[:MOST_LISTED],
                "required": gate.required, "deadline_at": _shown(gate.deadline_at),
            }  # fmt: skip
            happening = _Happening("gate.required", gate.created_at, asked, mark, 1)
            self._put(before, -2, happening)
        if count < 2 and gate.status in _DECIDED:
            last = gate.decisions[-1] if gate.decisions else None
            at = gate.deadline_at if gate.status == "expired" else last and last.decided_at
            if last is not None:
                by = [each.by for each in gate.decisions]
                data |= {"by": by[:MOST_LISTED], "note": _cut(last.note)}
            over = before is None and self._is_over(gate)
            happening = _Happening(
                _DECIDED[gate.status], max(at or 0, gate.created_at), data, mark, 2,
                drops=(mark,) if over else (),
            )  # fmt: skip
            self._put(before, -1, happening)


def _forget(told: Told, progress: Progress) -> None:
    """Drop what is open no longer and has no end that could be told."""
    if progress.more or len(progress.open) >= MOST_OPEN:
        return
    steps = (*progress.open, *progress.settled)
    known = {mark_of("step", entry.key) for entry in steps}
    known |= {mark_of("step", key) for key in told.nodes}
    known |= {mark_of("gate", gate.key) for gate in progress.gates}
    told.open = {mark: count for mark, count in told.open.items() if mark in known}


def _resumed(told: Told, run: RunState) -> bool:
    """Whether somebody goes on with the run, after a wait or after a crash."""
    if told.waiting is not None and told.waiting != run.fence:
        return True
    return run.attempt > told.attempt and (run.held or run.status != "running")


def _waiting(run: RunState, entries: list[Entry]) -> _Happening:
    waits = [entry for entry in entries if entry.waits_at is not None]
    at = max((entry.waits_at or 0 for entry in waits), default=run.claimed_at or run.created_at)
    listed = [_step_data(entry) | {"due_at": _shown(entry.due_at)} for entry in waits[:MOST_LISTED]]
    return _Happening("run.waiting", at, {"waits": listed})


def _was_retried(failure: Failure, entry: Entry) -> bool:
    """Whether another attempt follows a failed one, or may: it is not the end of its step."""
    last = entry.attempts if entry.status in ("retrying", "skipped") else entry.attempts - 1
    return failure.number <= last


def _given_up(entry: Entry) -> bool:
    return entry.status == "skipped" and entry.position != ENDING


def _unended(key: str, at: int) -> _Happening:
    """The end of a node that its run has ended before."""
    data = {"step": key, "kind": "node", "attempts": 1}
    mark = mark_of("step", key)
    return _Happening("step.cancelled", at, data, drops=(mark,), node=key)


def _is_copied(entry: Entry, run: RunState) -> bool:
    """Whether a fork has the entry from the run that it was made of."""
    ended_at = entry.completed_at
    return run.forked and entry.status in SETTLED and (ended_at or ENDING) < run.created_at


def _end_of(entry: Entry, run: RunState) -> int:
    return entry.completed_at or run.completed_at or entry.started_at


def _step_data(entry: Entry) -> dict[str, Any]:
    return {"step": entry.key, "kind": entry.kind}


def _end_data(run: RunState) -> dict[str, Any]:
    data = {"status": run.status, **_error_data(run.error)}
    return data | _output_data(run.output, run.has_output)


def _output_data(output: str | None, has_output: bool) -> dict[str, Any]:
    if output is not None:
        return {"output": decode(output)}
    return {"output_left_out": True} if has_output else {}


def _error_data(error: str | None) -> dict[str, Any]:
    found = read_error(error)
    if found is None:
        return {}
    return {"error": {"type": found.type, "message": _cut(found.message)}}


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"


def _shown(at: int | None) -> str | None:
    return None if at is None else moment(at).isoformat().replace("+00:00", "Z")

"""What has become of a run since a place in its journal, as stores read it for live feeds.

A place is a journal position: it says in which order entries became visible, so whoever has been
told of all up to one misses nothing behind it. What was still open when its run ended never got a
position of its own; it comes at the place ENDING, by its keys.
"""

from __future__ import annotations

import re

import msgspec

from stepwell.kernel.records import GateDecision, GateStatus

ENDING = 1 << 62
# How much a store reads at once: ended entries, open ones, and failed attempts of each of them.
MOST_ENTRIES, MOST_OPEN, MOST_ATTEMPTS = 50, 200, 20
# Outputs are told if they are not longer than this, in bytes.
MOST_OUTPUT = 1000


class Place(msgspec.Struct, frozen=True, gc=False):
    """Of which run, and behind which entry of its journal; `key` is for those at ENDING."""

    run_id: str
    position: int = -1
    key: str | None = None


class Entry(msgspec.Struct, array_like=True, gc=False):
    """A journal entry, or a wait that has none yet, with its output if that is short."""

    key: str
    seq: int
    position: int
    kind: str
    status: str
    attempts: int
    output: str | None
    has_output: bool
    error: str | None
    started_at: int
    completed_at: int | None
    # Since when it waits, and until when at the latest.
    waits_at: int | None = None
    due_at: int | None = None

    @property
    def has_failed(self) -> bool:
        """Whether there may be failed attempts that another one followed."""
        return self.attempts > 1 or self.status in ("retrying", "skipped")


class Failure(msgspec.Struct, array_like=True, gc=False):
    """A failed attempt."""

    key: str
    number: int
    error: str
    failed_at: int


class GateState(msgspec.Struct):
    """A gate, without what is to be decided about."""

    id: str
    key: str
    status: GateStatus
    prompt: str
    created_at: int
    deadline_at: int | None
    approvers: list[str]
    required: int
    decisions: list[GateDecision] = []

    @property
    def step(self) -> str:
        """The key of the step that asks; the gate's own ends with the mark of what was asked."""
        return self.key.rpartition("[")[0]

    @property
    def decision_key(self) -> str:
        """The key of the wait for a decision."""
        step, _, mark = self.key.rpartition("[")
        return f"{step}.decision[{mark}"


class RunState(msgspec.Struct, array_like=True, gc=False):
    """The run itself."""

    status: str
    definition: str
    version: int
    attempt: int
    fence: int
    # Whether a worker has it.
    held: bool
    forked: bool
    created_at: int
    started_at: int | None
    claimed_at: int | None
    completed_at: int | None
    output: str | None
    has_output: bool
    error: str | None
    # Whether its definition is a graph.
    graph: bool


class Progress(msgspec.Struct, gc=False):
    """A run, and what of it lies behind a place."""

    run: RunState
    # Entries behind the place that have ended, in order of their places; whether there are more.
    settled: list[Entry] = []
    more: bool = False
    # The first that have not ended, in order of call.
    open: list[Entry] = []
    failures: list[Failure] = []
    # All gates of the run, and the keys of those of their waits that have ended.
    gates: list[GateState] = []
    decisions: set[str] = set()
    # Of nodes that entries of a graph belong to: the places of their ends, as far as there are any;
    # -1 for those that have entries of their own.
    nodes: dict[str, int] = {}

    def node_keys(self) -> list[str]:
        """The keys of the nodes of a graph that these entries are only steps of."""
        if not self.run.graph:
            return []
        found = {node_of(entry.key) for entry in (*self.settled, *self.open)}
        return sorted(key for key in found if key is not None)


def node_of(key: str) -> str | None:
    """The outermost node that a step of a graph belongs to, unless the step is that node."""
    found = _NODE.match(key)
    return None if found is None or found[0] == key else found[0]


def read_gate(body: str) -> GateState:
    """A gate as stores keep it."""
    return _gates.decode(body)


_NODE = re.compile(r"[^.\[#]+")
_gates = msgspec.json.Decoder(GateState)

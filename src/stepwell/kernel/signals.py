"""Which wait takes which signal: each signal goes to the first open wait that it matches.

Asked from the other side it is the same: of the waits in order, each takes the first signal
that it matches and no earlier one has taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from stepwell.kernel.codec import decode
from stepwell.kernel.matching import contains


class Signal(Protocol):
    """What is asked of a signal here."""

    @property
    def id(self) -> str: ...

    @property
    def run_id(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def payload(self) -> str: ...


class Buffered(NamedTuple):
    """A signal that nobody has taken yet."""

    id: str
    run_id: str
    type: str
    payload: str
    created_at: int


class Awaiting(NamedTuple):
    """A wait that is open; for an event, unless `event` is None."""

    run_id: str
    event: str | None
    key: str
    match: str | None
    created_at: int


def hand_out(signals: Iterable[Signal], waits: Iterable[Awaiting]) -> dict[str, str]:
    """The key of the wait for each signal that finds one; `waits` come in order of call."""
    open_waits: dict[tuple[str, str | None], list[tuple[str, Any]]] = {}
    for wait in waits:
        match = None if wait.match is None else decode(wait.match)
        open_waits.setdefault((wait.run_id, wait.event), []).append((wait.key, match))
    taken: dict[str, str] = {}
    for signal in signals:
        candidates = open_waits.get((signal.run_id, signal.type), [])
        place = _first_match(signal.payload, candidates)
        if place is not None:
            taken[signal.id] = candidates.pop(place)[0]
    return taken


def _first_match(payload: str, waits: Sequence[tuple[str, Any]]) -> int | None:
    """The place of the first wait (key, match) for this payload; None matches everything."""
    if not waits or waits[0][1] is None:
        return 0 if waits else None
    decoded = decode(payload)
    for place, (_, match) in enumerate(waits):
        if match is None or contains(decoded, match):
            return place
    return None

"""Which wait takes which signal: each signal goes to the first open wait that it matches."""

from __future__ import annotations

from collections.abc import Iterable
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


def hand_out(signals: Iterable[Signal], waits: Iterable[Iterable[Any]]) -> dict[str, str]:
    """The key of the wait for each signal that finds one.

    `waits` are the open ones as (run, event, key, match), in order of call.
    """
    open_waits: dict[tuple[str, str], list[tuple[str, str | None]]] = {}
    for run_id, event, key, match in waits:
        open_waits.setdefault((run_id, event), []).append((key, match))
    taken: dict[str, str] = {}
    for signal in signals:
        candidates = open_waits.get((signal.run_id, signal.type), [])
        for key, match in candidates:
            if match is None or contains(decode(signal.payload), decode(match)):
                taken[signal.id] = key
                candidates.remove((key, match))
                break
    return taken

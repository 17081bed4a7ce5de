"""Which wait takes which signal: each signal goes to the first open wait that it matches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stepwell.kernel.changes import SendSignal
from stepwell.kernel.codec import decode
from stepwell.kernel.matching import contains


def hand_out(signals: Iterable[SendSignal], waits: Iterable[Iterable[Any]]) -> dict[str, str]:
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

"""The keys of one execution: what each operation of a program is called in the journal."""

from __future__ import annotations

from collections import Counter


class Keys:
    """Repeated names are numbered in order of call: `charge`, `charge#2`, `charge#3`."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()
        self._moments: Counter[str] = Counter()
        self._seq = 0

    def next(self, name: str) -> tuple[str, int]:
        """The journal key of this call, and its place in the order of calls."""
        self._names[name] += 1
        self._seq += 1
        count = self._names[name]
        return (name if count == 1 else f"{name}#{count}"), self._seq

    def next_moment(self, anchor: str) -> tuple[str, int]:
        """The same for a reading of the clock: how many there were since the last result."""
        self._moments[anchor] += 1
        self._seq += 1
        return f"now:{self._moments[anchor]}:{anchor}", self._seq

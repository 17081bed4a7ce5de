"""The keys of one execution: what each operation of a program is called in the journal."""

from __future__ import annotations

from stepwell.errors import JournalMismatch


class Keys:
    """Repeated names are numbered in order of call: `charge`, `charge#2`, `charge#3`."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._moments: dict[str, int] = {}
        self._seq = 0

    def next(self, name: str) -> tuple[str, int]:
        """The journal key of this call, and its place in the order of calls."""
        count = self._names[name] = self._names.get(name, 0) + 1
        self._seq += 1
        return (name if count == 1 else f"{name}#{count}"), self._seq

    def has(self, name: str) -> bool:
        """Whether something was called this before."""
        return name in self._names

    def next_moment(self, anchor: str) -> tuple[str, int]:
        """The same for a reading of the clock: how many there were since the last result."""
        count = self._moments[anchor] = self._moments.get(anchor, 0) + 1
        self._seq += 1
        return f"now:{count}:{anchor}", self._seq


def mismatch(key: str, recorded: str, wanted: str) -> JournalMismatch:
    """The error for code that does something else under a key than it did before."""
    return JournalMismatch(
        f"The journal of this run has a {recorded} where the code now has a {wanted}: {key!r}. "
        "Give the new code another name, or guard it with ctx.patched().",
        step=key,
    )

"""Room: how many runs are executed at a time by workers that share it, and whose turn is next.

What is free is divided among the claims that are being gathered, so that they can share a commit;
where it is too little for all, those come first who have not been given a run for longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stepwell.kernel.changes import ClaimedRun, ClaimRuns


class Sharer(Protocol):
    """The claims of one worker, as those see them that share its room."""

    # Whether it may have left something for want of room.
    behind: bool

    @property
    def active(self) -> int:
        """How many runs its worker is executing."""
        ...

    def soon(self) -> None:
        """There may be room: claim."""
        ...


class Room:
    """So many runs at a time, for all who share it."""

    def __init__(self, most: int) -> None:
        self.most = most
        # All who share it, each with the turn in which it was given something last.
        self._turns: dict[Sharer, int] = {}
        self._turn = 0
        # Claims that have no answer yet.
        self._asks: dict[Sharer, ClaimRuns] = {}

    def enter(self, sharer: Sharer) -> None:
        self._turns[sharer] = self._turn

    def leave(self, sharer: Sharer) -> None:
        self._turns.pop(sharer, None)
        self._asks.pop(sharer, None)
        self.made()

    def is_first(self, sharer: Sharer) -> bool:
        """Whether it is the one that does what need be done by only one of them."""
        return next(iter(self._turns), sharer) is sharer

    @property
    def free(self) -> int:
        """How many more there could be, if claims that are under way get all they ask for."""
        taken = sum(sharer.active for sharer in self._turns)
        return self.most - taken - sum(ask.limit for ask in self._asks.values() if ask.dated)

    def ask(self, sharer: Sharer, ask: ClaimRuns) -> None:
        """Say how many runs a claim may take; others that are being gathered get less then."""
        self._asks[sharer] = ask
        self._divide()

    def _divide(self) -> None:
        gathered = [each for each in self._asks.items() if not each[1].dated]
        gathered.sort(key=lambda each: self._turns.get(each[0], 0))
        share, rest = divmod(max(self.free, 0), len(gathered) or 1)
        for place, (_, ask) in enumerate(gathered):
            ask.limit = share + (place < rest)

    def answered(self, sharer: Sharer) -> None:
        """The claim has its answer, or will have none; what it leaves is for others."""
        self._asks.pop(sharer, None)

    def took(self, sharer: Sharer, runs: Sequence[ClaimedRun]) -> None:
        """It was given these."""
        if runs and sharer in self._turns:
            self._turn += 1
            self._turns[sharer] = self._turn

    def made(self, but: Sharer | None = None) -> None:
        """There is room, maybe: whoever is behind claims."""
        for sharer in list(self._turns):
            if sharer.behind and sharer is not but:
                sharer.soon()
        if len(self._turns) > 1:
            self._divide()

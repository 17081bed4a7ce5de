"""The operations of one program that are at work, and the branches they are in."""

from __future__ import annotations

import asyncio
from typing import Any


class AtWork:
    """Counts operations; as long as there are any, their program cannot be parked."""

    def __init__(self) -> None:
        self._count = 0
        # Tasks other than the program's own that are inside an operation, and of how many.
        self.branches: dict[asyncio.Task[Any], int] = {}

    def __bool__(self) -> bool:
        return self._count > 0

    def enter(self, program: asyncio.Task[None] | None) -> None:
        """The current task begins an operation."""
        self._count += 1
        task = asyncio.current_task()
        if task is not None and task is not program:
            self.branches[task] = self.branches.get(task, 0) + 1

    def leave(self) -> None:
        """The current task has ended one."""
        self._count -= 1
        task = asyncio.current_task()
        if task is not None and task in self.branches:
            self.branches[task] -= 1
            if self.branches[task] == 0:
                del self.branches[task]

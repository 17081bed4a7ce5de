"""What `start` gives back: the run's id, and a way to wait for its output."""

from __future__ import annotations

from typing import Any, Protocol

from stepwell.kernel.durations import Duration


class Awaiting(Protocol):
    """Who knows how runs end."""

    async def _result(self, run_id: str, timeout: Duration | None, *, new: bool) -> Any: ...


class RunHandle:
    """A run that was started."""

    # The run's id.
    id: str
    # False when an earlier start with the same idempotency key made the run.
    created: bool

    def __init__(
        self, stepwell: Awaiting, run_id: str, created: bool, *, committed: bool = True
    ) -> None:
        self._stepwell = stepwell
        self._new = created and committed
        self.id = run_id
        self.created = created

    async def result(self, timeout: Duration | None = None) -> Any:
        """The run's output; raises RunFailed, RunCancelled or RunTimedOut, or TimeoutError."""
        return await self._stepwell._result(self.id, timeout, new=self._new)

    def __repr__(self) -> str:
        return f"<run {self.id}>"

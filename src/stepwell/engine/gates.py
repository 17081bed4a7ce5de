"""Gates as runs see them: opened when a run comes to one, closed when its time is up."""

from __future__ import annotations

from typing import Any

from stepwell.engine.asking import answer_of
from stepwell.errors import Overtaken
from stepwell.kernel import gates as rules
from stepwell.kernel.clock import Clock
from stepwell.kernel.records import GateRecord, OnTimeout
from stepwell.record import Records


class Gates:
    """The gates of one workspace."""

    def __init__(self, records: Records, clock: Clock, workspace_id: str) -> None:
        self._records = records
        self._clock = clock
        self._workspace_id = workspace_id

    async def open(self, run_id: str, key: str, definition: str, **fields: Any) -> GateRecord:
        """Open the gate of that run and key; a second time it is the same one."""
        now = self._clock.now()
        timeout_micros: int | None = fields.pop("timeout_micros")
        gate = GateRecord(
            id=rules.gate_id(run_id, key), run_id=run_id, key=key, status="open", serial=1,
            definition=definition, created_at=now,
            deadline_at=None if timeout_micros is None else now + timeout_micros, **fields,
        )  # fmt: skip
        return await answer_of(
            self._clock, lambda: self._records.open_gate(self._workspace_id, gate)
        )

    async def expire(self, gate_id: str, default: OnTimeout) -> dict[str, Any]:
        """Close a gate whose time is up; what it came to, if somebody decided just then.

        The gate of a run that was retried since is another one's: the default counts.
        """
        return await answer_of(self._clock, lambda: self._expire(gate_id, default))

    async def _expire(self, gate_id: str, default: OnTimeout) -> dict[str, Any]:
        while True:
            gate = await self._records.gate(self._workspace_id, gate_id)
            if gate is None:
                return rules.expired_outcome(default)
            if gate.status == "open":
                gate = rules.expired(gate)
                try:
                    await self._records.change_gate(self._workspace_id, gate)
                except Overtaken:
                    continue
            return rules.outcome(gate)

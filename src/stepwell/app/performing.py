"""Performing operations for somebody: whether they may, and writing down that they did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepwell.app.doorkeeper import Admission
from stepwell.app.hosting import Host
from stepwell.app.stepwell import Stepwell
from stepwell.errors import PermissionDenied, StoreUnavailable
from stepwell.kernel.clock import TimeLimit
from stepwell.operation import Operation, allows

# How long an operation may take before it is looked whether it can ever be done.
PATIENCE_SECONDS = 5.0


class Performer:
    """The one way from surfaces that know who asks to operations."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def check(self, admission: Admission, operation: Operation) -> None:
        """Raise PermissionDenied if they may not."""
        held = admission.caller.permission
        if not allows(held, operation.needs):
            raise PermissionDenied(
                f"{operation.name} needs the permission {operation.needs!r}; you have {held!r}.",
                needs=operation.needs,
            )

    async def place(self, admission: Admission) -> Stepwell:
        """Where they act."""
        return await self._host.workspace(admission.workspace_id)

    async def perform(
        self, admission: Admission, operation: Operation, arguments: Mapping[str, Any],
        request_id: str | None = None,
    ) -> Any:  # fmt: skip
        """What the operation returns."""
        self.check(admission, operation)
        place = await self.place(admission)
        limit = TimeLimit(place.store.clock, PATIENCE_SECONDS, unless=self._host.is_writable)
        try:
            async with limit:
                result = await operation.call(place, admission.caller, arguments)
                if operation.is_recorded:
                    await self._host.doorkeeper.record(
                        admission, operation, arguments, result=result, request_id=request_id
                    )
        except TimeoutError:
            if not limit.passed:
                raise
            # What was submitted is not called off: it becomes durable when the store is back.
            raise StoreUnavailable(
                "The store cannot be written to at the moment. What was asked for may still be "
                "done when it can: ask again, with the same Idempotency-Key if there was one."
            ) from None
        return result

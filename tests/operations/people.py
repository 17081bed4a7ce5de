"""Callers of operations, and calling as one of them."""

from __future__ import annotations

from typing import Any

from stepwell import Stepwell
from stepwell.app.doorkeeper import Doorkeeper
from stepwell.catalog import operations
from stepwell.kernel.access import ROLES, Role
from stepwell.kernel.ids import Ids
from stepwell.operation import Caller

# Whoever has the store itself.
LOCAL = Caller("local", "own", "owner")
PASSWORD = "correct horse battery"
HERE = "203.0.113.9"


async def call(sw: Stepwell, caller: Caller, operation: str, /, **arguments: Any) -> Any:
    """What a surface does, once it knows who calls."""
    return await operations()[operation].call(sw, caller, arguments)


async def join(sw: Stepwell, name: str, role: Role = "owner", **fields: Any) -> Caller:
    """Take somebody in; who they are when they call."""
    made = await call(sw, LOCAL, "users.create", name=name, role=role, **fields)
    return Caller(name, ROLES[role], role, made.user.id)


def keeper_of(sw: Stepwell) -> Doorkeeper:
    return Doorkeeper(sw.store, sw.store.clock, Ids(sw.store.clock))

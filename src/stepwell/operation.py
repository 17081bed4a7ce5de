"""The contract of an operation: what every use case is given to work with.

An operation is an async method of the class of its noun in `operations/`. It takes plain values,
raises named errors, and returns records; surfaces make routes, tools and commands of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepwell.kernel.changes import Committed
from stepwell.kernel.clock import Clock
from stepwell.kernel.ids import Ids
from stepwell.kernel.plans import Plan
from stepwell.kernel.records import TriggerRecord
from stepwell.store import Store

if TYPE_CHECKING:
    from stepwell.node import NodeTypes


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where operations take place."""

    store: Store
    id: str
    ids: Ids
    clock: Clock
    # Loaded when they are first needed.
    types: Callable[[], NodeTypes]
    # Told of commits that workers may want to hear of.
    changed: Callable[[Committed], None]
    # Starts the run of a trigger with a payload, once for each key; its id, and whether it is new.
    fire: Callable[[TriggerRecord, Any, str | None], Awaitable[tuple[str, bool]]]
    # Returns once it is written what became of triggers so far.
    settled: Callable[[], Awaitable[None]]
    # How much the workspace may have.
    plan: Plan

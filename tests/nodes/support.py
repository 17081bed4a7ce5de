"""Executing a node by itself, without a run around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from stepwell.engine.calls import call_in_thread
from stepwell.node import NodeType
from stepwell.settings import Settings


@dataclass
class Host:
    """The process that a node is executed in."""

    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    allow_private: bool = True
    folder: str = "."
    environment: Mapping[str, str] = field(default_factory=lambda: Settings.read().environment)
    gates: Any = None
    hidden: list[str] = field(default_factory=list)


@dataclass
class Call:
    """One execution; references have been resolved already."""

    given: dict[str, Any]
    host: Host = field(default_factory=Host)
    key: str = "node"
    run_id: str = "run"
    attempt: int = 1
    idempotency_key: str = "run:node"
    durably: Any = None
    definition: str = "definition"
    revision: str = "hash"
    unattended: bool = False
    traceparent: str | None = None
    # Texts in parts, where a test wants some of them inserted by references.
    in_parts: dict[str, list[str]] = field(default_factory=dict)

    def config(self) -> dict[str, Any]:
        return self.given | {key: "".join(parts) for key, parts in self.in_parts.items()}

    async def in_thread(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        threads = ThreadPoolExecutor(1)
        try:
            return await call_in_thread(threads, function, *args, **kwargs)
        finally:
            threads.shutdown(wait=False)

    def parts(self, field: str) -> list[str]:
        return self.in_parts.get(field) or [self.given[field]]


async def executed(kind: NodeType, config: dict[str, Any], **fields: Any) -> Any:
    """The output of a node with this config."""
    return await kind.act(Call(config, **fields))

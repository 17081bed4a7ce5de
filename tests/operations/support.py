"""Small things that the tests of operations share."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from stepwell import Stepwell
from stepwell.kernel.records import GateRecord

PATIENCE_SECONDS = 60


def definition(*nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A document with these nodes, one after the other."""
    edges = [
        {"source": before["id"], "target": after["id"]}
        for before, after in itertools.pairwise(nodes)
    ]
    return {"name": "made", "nodes": list(nodes), "edges": edges, **fields}


def node(node_id: str, kind: str, /, **config: Any) -> dict[str, Any]:
    return {"id": node_id, "type": kind, "config": config}


async def open_gate(sw: Stepwell, run_id: str) -> GateRecord:
    """The gate of a run, once the run waits at it."""

    async def waited_at() -> list[GateRecord]:
        run, gates = await sw.get_run(run_id), await sw.gates.list(run_id)
        return gates if run.status == "waiting" else []

    found: list[GateRecord] = await some(waited_at)
    return found[0]


async def some(asked: Callable[[], Awaitable[Any]]) -> Any:
    """What is answered, once that is not nothing; TimeoutError if it never is."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := await asked()):
            await asyncio.sleep(0.001)
    return found


def document(name: str = "checks", /, *, seconds: int = 1, **fields: Any) -> dict[str, Any]:
    """A definition that waits for so long; another number is another hash."""
    wait = {"id": "wait", "type": "delay", "config": {"duration": seconds}}
    return {"name": name, "nodes": [wait], **fields}


async def outcomes(*calls: Awaitable[Any]) -> tuple[list[Any], list[BaseException]]:
    """What calls that are made at once return, and what they raise."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    errors = [each for each in found if isinstance(each, BaseException)]
    return [each for each in found if not isinstance(each, BaseException)], errors

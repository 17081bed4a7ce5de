"""Small things that the tests of operations share."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable
from typing import Any

from stepwell import Stepwell
from stepwell.kernel.records import GateRecord


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
    while True:
        run, gates = await sw.get_run(run_id), await sw.gates.list(run_id)
        if gates and run.status == "waiting":
            return gates[0]
        await asyncio.sleep(0.001)


def document(name: str = "checks", /, *, seconds: int = 1, **fields: Any) -> dict[str, Any]:
    """A definition that waits for so long; another number is another hash."""
    wait = {"id": "wait", "type": "delay", "config": {"duration": seconds}}
    return {"name": name, "nodes": [wait], **fields}


async def outcomes(*calls: Awaitable[Any]) -> tuple[list[Any], list[BaseException]]:
    """What calls that are made at once return, and what they raise."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    errors = [each for each in found if isinstance(each, BaseException)]
    return [each for each in found if not isinstance(each, BaseException)], errors

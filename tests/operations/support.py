"""Small things that the tests of operations share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


def document(name: str = "checks", /, *, seconds: int = 1, **fields: Any) -> dict[str, Any]:
    """A definition that waits for so long; another number is another hash."""
    wait = {"id": "wait", "type": "delay", "config": {"duration": seconds}}
    return {"name": name, "nodes": [wait], **fields}


async def outcomes(*calls: Awaitable[Any]) -> tuple[list[Any], list[BaseException]]:
    """What calls that are made at once return, and what they raise."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    errors = [each for each in found if isinstance(each, BaseException)]
    return [each for each in found if not isinstance(each, BaseException)], errors

"""Checking documents while others are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from stepwell.graph.documents import Checked, Types, as_text, checked

# Characters: smaller documents are checked within milliseconds.
LARGE = 64 * 1024
# One at a time: they share a processor with everything else.
_thread = ThreadPoolExecutor(1, "stepwell-checking")


async def check_document(
    document: Any, types: Types, name: str | None = None,
    secrets: Collection[str] | None = None, now: int | None = None,
) -> Checked:  # fmt: skip
    """Everything that is wrong with a document; a large one is checked in a thread."""
    text = as_text(document)
    check = partial(checked, text, types, name, secrets=secrets, now=now)
    if len(text) <= LARGE:
        return check()
    return await asyncio.get_running_loop().run_in_executor(_thread, check)

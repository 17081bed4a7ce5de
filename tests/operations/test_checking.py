"""Large documents are checked aside, with the same result."""

from __future__ import annotations

import asyncio
from typing import Any

from stepwell.catalog import node_types
from stepwell.graph.documents import checked
from stepwell.operations.checking import LARGE, check_document


def document(nodes: int) -> dict[str, Any]:
    listed: list[dict[str, Any]] = [
        {"id": f"n{i}", "type": "transform", "config": {"value": f"@n{i - 1}" if i else 1}}
        for i in range(nodes)
    ]
    return {"name": "x", "nodes": [*listed, {"id": "odd", "type": "trnsform"}]}


async def turns_during(document: Any) -> int:
    """How often others have their turn while a document is checked."""
    check = asyncio.ensure_future(check_document(document, node_types()))
    turns = 0
    while not check.done():
        turns += 1
        await asyncio.sleep(0)
    assert not (await check).ok
    return turns


async def test_others_have_their_turn_while_a_large_document_is_checked() -> None:
    assert await turns_during(document(3)) <= 2
    assert await turns_during(document(2000)) > 10


async def test_several_at_once_are_found_the_same_in_as_by_themselves() -> None:
    documents = [document(nodes) for nodes in (3, 1200, 1500, 2000)]
    assert len(str(documents[1])) > LARGE
    found = await asyncio.gather(*(check_document(each, node_types()) for each in documents))
    for one, each in zip(found, documents, strict=True):
        assert one.problems == checked(each, node_types()).problems

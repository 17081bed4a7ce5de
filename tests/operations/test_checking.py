"""Large documents are checked aside, with the same result."""

from __future__ import annotations

import asyncio
from typing import Any

from stepwell.catalog import node_types
from stepwell.graph.conditions import VARIABLES, evaluate
from stepwell.graph.documents import Checked, checked
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


def conditions(nodes: int, number: int) -> dict[str, Any]:
    """A document with as many conditions, each of its own; every seventh is wrong."""
    found = document(nodes)
    found["edges"] = [
        {
            "source": f"n{i}", "target": f"n{i + 1}",
            "condition": f"input.n {'=' if i % 7 == 6 else '=='} {number + i}",
        }
        for i in range(nodes - 1)
    ]  # fmt: skip
    return found


async def test_what_is_checked_aside_and_what_is_read_meanwhile_do_not_disturb_each_other() -> None:
    large = [conditions(1200, 10_000 * each) for each in (1, 2)]
    assert all(len(str(each)) > LARGE for each in large)
    aside = asyncio.gather(*(check_document(each, node_types()) for each in large))
    variables = tuple(sorted(VARIABLES))
    small: list[tuple[dict[str, Any], Checked]] = []
    while not aside.done() and len(small) < 200:
        number = len(small)
        # Also what is being read aside: both use the same environments and texts of conditions.
        for value in (number, 10_000 + number % 1200):
            assert evaluate(f"input.n == {value}", variables, {"input": {"n": value}})
        asked = conditions(8, number)
        small.append((asked, await check_document(asked, node_types())))
        await asyncio.sleep(0)
    assert len(small) > 3
    found = await aside
    for each, one in [*zip(large, found, strict=True), *small[:20]]:
        assert one.problems == checked(each, node_types()).problems

"""Syncing: what a set of documents says, planned first and done when asked for."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import workflow
from stepwell.errors import InvalidDefinition, UnknownDefinition
from tests.conftest import World
from tests.operations.support import document


@workflow(name="coded")
async def coded(ctx: Any, input: Any) -> Any:
    return input


def actions(plan: Any) -> dict[str, str]:
    return {step.name: step.action for step in plan.steps}


async def test_syncing_creates_updates_and_leaves_alone_by_hash(world: World) -> None:
    async with world() as sw:
        results = [
            await sw.definitions.sync(document(seconds=1), author="ci"),
            await sw.definitions.sync(document(seconds=1)),
            await sw.definitions.sync(document(seconds=2)),
        ]
        with pytest.raises(InvalidDefinition):
            await sw.definitions.sync({"name": "checks", "nodes": []})
        await sw.start("checks")
    assert [each.action for each in results] == ["create", "unchanged", "update"]
    assert [each.revision.source for each in results] == ["sync"] * 3
    assert results[2].revision.version == "1.1.0"


async def test_a_plan_is_shown_and_nothing_is_done(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document("same"))
        await sw.definitions.publish(document("other", seconds=1))
        await sw.definitions.publish(document("missing"))
        documents = [document("new"), document("same"), document("other", seconds=2)]
        plan = await sw.definitions.sync_all(documents)
        full = await sw.definitions.sync_all(documents, delete_missing=True)
        names = [each.name for each in await sw.definitions.list()]
    assert actions(plan) == {"new": "create", "same": "unchanged", "other": "update"}
    assert actions(full) == {**actions(plan), "missing": "delete"}
    assert plan.steps[2].changes == ["node wait: config.duration: 1 → 2"]
    assert not plan.applied
    assert names == ["missing", "other", "same"]


async def test_an_applied_plan_leaves_nothing_to_do(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document("missing"))
        documents = [document("a"), document("b")]
        assert (await sw.definitions.sync_all(documents, apply=True, author="ci")).applied
        assert [each.name for each in await sw.definitions.list()] == ["a", "b", "missing"]
        full = await sw.definitions.sync_all(documents, apply=True, delete_missing=True)
        assert actions(full) == {"a": "unchanged", "b": "unchanged", "missing": "delete"}
        with pytest.raises(UnknownDefinition):
            await sw.definitions.get("missing")
        again = await sw.definitions.sync_all(documents, apply=True, delete_missing=True)
        assert set(actions(again).values()) == {"unchanged"}
        assert (await sw.definitions.get("a")).version == "1.0.0"


async def test_what_was_never_published_is_not_missing(world: World) -> None:
    async with world() as sw:
        await sw.definitions.create("being-written")
        plan = await sw.definitions.sync_all([], apply=True, delete_missing=True)
        assert plan.steps == []
        await sw.definitions.get("being-written")


async def test_one_invalid_document_keeps_all_from_being_applied(world: World) -> None:
    async with world([coded]) as sw:
        await sw.definitions.publish(document("missing"))
        for wrong in (
            "a: [", {"name": "wrong", "nodes": []}, document("coded"), document("good", seconds=7),
        ):  # fmt: skip
            plan = await sw.definitions.sync_all(
                [document("good"), wrong], apply=True, delete_missing=True
            )
            assert plan.steps[1].action == "invalid"
            assert plan.steps[1].problems
            assert not plan.ok
            assert not plan.applied
        assert [each.name for each in await sw.definitions.list()] == ["missing"]

"""Syncing: what a set of documents says, planned first and done when asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stepwell import workflow
from stepwell.errors import InvalidDefinition, UnknownDefinition
from tests.conftest import World
from tests.operations.support import document


@workflow(name="coded")
async def coded(ctx: Any, input: Any) -> Any:
    return input


Meanwhile = Callable[[Any, Callable[[], Awaitable[Any]]], None]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Lets somebody else do something right after a plan was begun."""

    def prepare(sw: Any, act: Callable[[], Awaitable[Any]]) -> None:
        read = sw.store.records.definitions

        async def overtaken(workspace_id: str) -> Any:
            found = await read(workspace_id)
            monkeypatch.setattr(sw.store.records, "definitions", read)
            await act()
            return found

        monkeypatch.setattr(sw.store.records, "definitions", overtaken)

    return prepare


def results(plan: Any) -> dict[str, tuple[str, str]]:
    return {step.name: (step.action, step.outcome) for step in plan.steps}


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
        assert set(results(again).values()) == {("unchanged", "done")}
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


async def test_what_somebody_publishes_after_the_plan_is_not_overwritten(
    world: World, meanwhile: Meanwhile
) -> None:
    async with world() as sw:
        await sw.definitions.publish(document("missing"))
        theirs = document("b", seconds=9)
        meanwhile(sw, lambda: sw.definitions.publish(theirs, author="bob"))
        documents = [document("a"), document("b"), document("c")]
        plan = await sw.definitions.sync_all(documents, apply=True, delete_missing=True)
        assert await sw.definitions.document("b") == theirs
        assert results(plan) == {
            "a": ("create", "done"), "b": ("create", "conflict"), "c": ("create", "done"),
            "missing": ("delete", "not_done"),
        }  # fmt: skip
        assert "published by bob" in plan.steps[1].message
        assert "config.duration: 1 → 9" in plan.steps[1].message
        assert not plan.applied
        assert not plan.ok
        await sw.definitions.get("missing")
        again = await sw.definitions.sync_all(documents, apply=True, delete_missing=True)
        assert again.applied
        assert results(again)["b"] == ("update", "done")


async def test_each_step_says_what_became_of_it(world: World, meanwhile: Meanwhile) -> None:
    async with world() as sw:
        for name in ("changed", "deleted", "kept"):
            await sw.definitions.publish(document(name))
        await sw.definitions.create("written")

        async def others() -> None:
            await sw.definitions.publish(document("changed", seconds=3))
            await sw.definitions.delete("deleted")
            await sw.definitions.publish(document("written", seconds=3))
            await sw.definitions.create("begun")
            await sw.definitions.publish(document("same", seconds=2))

        meanwhile(sw, others)
        names = ("changed", "deleted", "kept", "written", "begun", "same")
        plan = await sw.definitions.sync_all(
            [document(name, seconds=2) for name in names], apply=True
        )
        assert results(plan) == {
            "changed": ("update", "conflict"),
            "deleted": ("update", "conflict"),
            "kept": ("update", "done"),
            "written": ("update", "conflict"),
            "begun": ("create", "conflict"),
            "same": ("create", "done"),
        }
        assert (await sw.definitions.get("begun")).hash is None
        assert await sw.definitions.document("written") == document("written", seconds=3)


async def test_only_the_planned_revision_is_deleted(world: World, meanwhile: Meanwhile) -> None:
    async with world() as sw:
        for name in ("changed", "gone", "missing"):
            await sw.definitions.publish(document(name))

        async def others() -> None:
            await sw.definitions.publish(document("changed", seconds=3))
            await sw.definitions.delete("gone")

        meanwhile(sw, others)
        plan = await sw.definitions.sync_all([], apply=True, delete_missing=True)
        assert results(plan) == {
            "changed": ("delete", "conflict"), "gone": ("delete", "done"),
            "missing": ("delete", "done"),
        }  # fmt: skip
        assert [each.name for each in await sw.definitions.list()] == ["changed"]

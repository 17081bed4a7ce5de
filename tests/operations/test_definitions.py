"""Definitions: made, found, enabled, drawn, deleted."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import workflow
from stepwell.errors import (
    Conflict,
    DefinitionExists,
    InputTooLarge,
    InvalidDefinition,
    InvalidInput,
    RevisionNotFound,
    UnknownDefinition,
)
from tests.conftest import World
from tests.engine.support import until
from tests.operations.support import document, outcomes


@workflow(name="coded")
async def coded(ctx: Any, input: Any) -> Any:
    return input


async def test_a_new_definition_has_nothing_but_a_draft(world: World) -> None:
    async with world() as sw:
        made = await sw.definitions.create("checks", author="ann")
        draft = await sw.definitions.draft("checks")
        assert (made.hash, made.number, made.enabled) == (None, 0, False)
        assert (draft.author, draft.base_hash) == ("ann", None)
        assert await sw.definitions.document("checks", "draft") == {
            "name": "checks", "nodes": [], "edges": [],
        }  # fmt: skip
        assert await sw.definitions.history("checks") == []
        with pytest.raises(RevisionNotFound, match="Nothing of 'checks'"):
            await sw.definitions.document("checks")
        with pytest.raises(UnknownDefinition):
            await sw.start("checks")


@pytest.mark.parametrize("name", ["", "Checks", "a b", "-a", "x" * 101, "a\n", None, 5])
async def test_a_name_is_a_slug(world: World, name: Any) -> None:
    async with world() as sw:
        with pytest.raises(InvalidInput):
            await sw.definitions.create(name)


async def test_a_name_is_given_once_also_to_two_at_once(world: World) -> None:
    async with world() as sw:
        won, lost = await outcomes(*(sw.definitions.create("checks") for _ in range(3)))
        assert len(won) == 1
        assert [type(error) for error in lost] == [DefinitionExists] * 2
        await sw.definitions.publish(document("other"))
        with pytest.raises(DefinitionExists):
            await sw.definitions.create("other")


async def test_workspaces_do_not_see_each_other(world: World) -> None:
    async with world(workspace="one") as sw:
        await sw.definitions.publish(document())
    async with world(workspace="two") as sw:
        assert await sw.definitions.list() == []
        with pytest.raises(UnknownDefinition):
            await sw.definitions.get("checks")
        assert (await sw.definitions.publish(document())).action == "create"


async def test_a_list_has_all_by_name_with_what_people_read(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document("b", title="Published", tags=["ops"]))
        await sw.definitions.create("a", {"name": "a", "title": "Drafted", "nodes": 7})
        listed = await sw.definitions.list()
    assert [(each.name, each.title, each.tags) for each in listed] == [
        ("a", "Drafted", []),
        ("b", "Published", ["ops"]),
    ]


async def test_revisions_and_the_draft_are_compared(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document(seconds=1))
        await sw.definitions.publish(document(seconds=2))
        await sw.definitions.save_draft("checks", document(seconds=3))
        for a, b, values in (
            ("1.0.0", None, (1, 2)), (2, 1, (2, 1)), (None, "draft", (2, 3)),
        ):  # fmt: skip
            found = await sw.definitions.diff("checks", a, b)
            change = {"from": values[0], "to": values[1]}
            assert found["nodes"]["changed"] == {"wait": {"config.duration": change}}


async def test_what_is_not_there_is_not_found(world: World) -> None:
    async with world() as sw:
        for name in ("checks", "No slug", "\0", 5):
            with pytest.raises(UnknownDefinition):
                await sw.definitions.get(name)
        for call in (
            sw.definitions.draft("x"), sw.definitions.history("x"), sw.definitions.delete("x"),
            sw.definitions.save_draft("x", {}), sw.definitions.publish_draft("x"),
            sw.definitions.set_enabled("x", True), sw.definitions.rollback("x", 1),
            sw.definitions.set_layout("x", {}),
        ):  # fmt: skip
            with pytest.raises(UnknownDefinition):
                await call


async def test_validation_finds_problems_without_keeping_anything(world: World) -> None:
    async with world() as sw:
        right = await sw.definitions.validate(document())
        wrong = await sw.definitions.validate({"name": "Bad Name", "nodes": []})
        unreadable = await sw.definitions.validate("a: [")
        assert await sw.definitions.list() == []
    assert right.ok
    assert right.definition.name == "checks"
    assert {each.code for each in wrong.problems} == {"bad_name", "no_nodes"}
    assert unreadable.document is None
    assert [each.code for each in unreadable.problems] == ["unreadable"]


async def test_a_layout_makes_no_revision(world: World) -> None:
    layout = {"wait": {"x": 1, "y": 2.5}}
    async with world() as sw:
        before = (await sw.definitions.publish(document())).definition
        empty = await sw.definitions.layout("checks")
        kept = await sw.definitions.set_layout("checks", layout, if_match=empty.etag)
        assert await sw.definitions.layout("checks") == kept
        head = await sw.definitions.get("checks")
        assert (head.layout, head.hash, head.number) == (layout, before.hash, 1)
        with pytest.raises(Conflict, match="layout"):
            await sw.definitions.set_layout("checks", {}, if_match=empty.etag)
        with pytest.raises(InputTooLarge):
            await sw.definitions.set_layout("checks", "x" * 1024 * 1024)
        await sw.definitions.publish(document(seconds=2))
        assert (await sw.definitions.layout("checks")).layout == layout


async def test_changes_of_different_things_do_not_get_lost(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document(seconds=1))
        _, lost = await outcomes(
            sw.definitions.set_enabled("checks", False),
            sw.definitions.set_layout("checks", {"x": 1}),
            sw.definitions.save_draft("checks", document(seconds=3)),
            sw.definitions.publish(document(seconds=2)),
        )
        head = await sw.definitions.get("checks")
        draft = await sw.definitions.draft("checks")
    assert lost == []
    assert (head.enabled, head.layout, head.version) == (False, {"x": 1}, "1.1.0")
    assert draft is not None


async def test_runs_outlive_their_definition(world: World) -> None:
    waiting = {
        "name": "checks",
        "nodes": [{"id": "go", "type": "wait_event", "config": {"event": "go"}}],
        "output": "done",
    }
    async with world() as sw:
        await sw.definitions.publish(waiting)
        run = await sw.start("checks")
        await sw.definitions.save_draft("checks", document())
        await sw.definitions.delete("checks")
        assert await sw.definitions.list() == []
        with pytest.raises(UnknownDefinition):
            await sw.start("checks")
        async with sw.worker():
            await until(sw, run.id, "waiting")
            await sw.emit("go")
            assert await run.result() == "done"
        again = await sw.definitions.publish(document())
        assert (again.revision.number, again.revision.version) == (1, "1.0.0")
        assert await sw.definitions.draft("checks") is None


async def test_only_the_expected_revision_is_deleted(world: World) -> None:
    async with world() as sw:
        base = (await sw.definitions.publish(document(seconds=1))).revision.hash
        await sw.definitions.publish(document(seconds=2))
        with pytest.raises(Conflict):
            await sw.definitions.delete("checks", if_match=base)
        for odd in ("", "\0", 5):
            with pytest.raises(Conflict):
                await sw.definitions.delete("checks", if_match=odd)


async def test_authors_and_notes_are_bounded_texts(world: World) -> None:
    async with world() as sw:
        for fields in (
            {"author": "x" * 201},
            {"note": "a\0b"},
            {"author": None},
            {"note": "\ud800"},
        ):
            with pytest.raises(InvalidInput):
                await sw.definitions.publish(document(), **fields)
        for text in ("name: a\0b", "\ud800"):
            with pytest.raises(InvalidInput):
                await sw.definitions.publish(text)
        with pytest.raises(InvalidDefinition):
            await sw.definitions.publish("")
        # JSON has a way to write it, columns of a store have not.
        named = (await sw.definitions.publish(document(title="a\0b"))).definition
        assert named.title == "ab"

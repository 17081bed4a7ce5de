"""Publishing and rolling back: revisions, their numbers and versions, and who was first."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import workflow
from stepwell.errors import (
    AlreadyCurrent,
    Conflict,
    DefinitionDisabled,
    DefinitionExists,
    DuplicateDefinition,
    InvalidDefinition,
    InvalidInput,
    RevisionNotFound,
    UnknownDefinition,
)
from stepwell.node import NodeTypes
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import until, until_code
from tests.operations.support import document, outcomes


@workflow(name="coded")
async def coded(ctx: Any, input: Any) -> Any:
    return input


async def test_a_published_document_can_be_started(world: World) -> None:
    async with world() as sw:
        result = await sw.definitions.publish(document(), author="ann")
        run = await sw.get_run((await sw.start("checks")).id)
    assert result.created
    assert (result.revision.version, result.revision.number) == ("1.0.0", 1)
    assert (result.revision.source, result.revision.author) == ("publish", "ann")
    assert (run.revision, run.version) == (result.revision.hash, 1)


async def test_text_in_any_language_is_published_as_what_it_means(world: World) -> None:
    text = "name: checks\nnodes:\n  - {id: wait, type: sleep, config: {duration: 1}}\n"
    async with world() as sw:
        first = await sw.definitions.publish(text)
        second = await sw.definitions.publish(document())
    assert second.revision.hash == first.revision.hash
    assert not second.created


async def test_each_revision_has_the_next_number_and_version(world: World) -> None:
    async with world() as sw:
        versions = [
            (await sw.definitions.publish(document(seconds=1))).revision,
            (await sw.definitions.publish(document(seconds=2), source="sync")).revision,
            (await sw.definitions.publish(document(seconds=3), version="4.0.0")).revision,
            (await sw.definitions.rollback("checks", "1.0.0", note="Too slow")).revision,
            (await sw.definitions.publish(document(seconds=4))).revision,
        ]
        history = await sw.definitions.history("checks")
    assert [(each.number, each.version, each.source) for each in versions] == [
        (1, "1.0.0", "publish"),
        (2, "1.1.0", "sync"),
        (3, "4.0.0", "publish"),
        (4, "4.0.1", "rollback"),
        (5, "4.1.0", "publish"),
    ]
    assert [(each.number, each.current) for each in history] == [
        (5, True), (4, False), (3, False), (2, False),
    ]  # fmt: skip
    assert versions[3].hash == versions[0].hash


async def test_a_revision_that_becomes_current_again_keeps_its_birthday(
    world: World, clock: FakeClock
) -> None:
    async with world() as sw:
        first = (await sw.definitions.publish(document(seconds=1))).revision
        clock.advance("1h")
        await sw.definitions.publish(document(seconds=2))
        clock.advance("1h")
        again = (await sw.definitions.publish(document(seconds=1))).revision
    assert again.created_at == first.created_at
    assert again.published_at == first.published_at + 7200 * 1_000_000
    assert again.number == 3


async def test_the_same_meaning_makes_no_revision_but_refreshes_texts(world: World) -> None:
    async with world() as sw:
        first = await sw.definitions.publish(document(title="Old"))
        second = await sw.definitions.publish(document(title="New", tags=["ops"]))
        third = await sw.definitions.publish(document(title="New", tags=["ops"]))
        head = await sw.definitions.get("checks")
        kept = await sw.definitions.document("checks")
    assert not second.created
    assert second.revision == first.revision
    assert (head.title, head.tags, head.number) == ("New", ["ops"], 1)
    assert kept["title"] == "New"
    assert third.definition.serial == second.definition.serial, "nothing was written"
    assert (second.action, third.action) == ("update", "unchanged")


async def test_texts_are_not_refreshed_from_something_else_than_is_there(world: World) -> None:
    async with world() as sw:
        first = (await sw.definitions.publish(document(title="Old"))).definition
        second = await sw.definitions.publish(document(title="New"), if_match=first.etag)
        for seen in ("garbage", "0" * 64, first.etag):
            with pytest.raises(Conflict):
                await sw.definitions.publish(document(title="Mine"), if_match=seen)
            with pytest.raises(Conflict):
                await sw.definitions.publish(document(title="New"), enabled=False, if_match=seen)
            # Who repeats what was published undoes nothing.
            again = await sw.definitions.publish(document(title="New"), if_match=seen)
            assert (again.action, again.definition) == ("unchanged", second.definition)
        for seen in (second.definition.etag, first.hash):
            await sw.definitions.publish(document(title="Mine"), if_match=seen)
        # A revision is made from the one before, whoever has changed the texts of that.
        made = await sw.definitions.publish(document(seconds=2), if_match=first.etag)
        assert made.created


@pytest.mark.parametrize("version", ["1.0.0", "0.9.0", "two", 3])
async def test_a_version_has_to_be_valid_and_greater(world: World, version: Any) -> None:
    async with world() as sw:
        await sw.definitions.publish(document())
        with pytest.raises(InvalidInput):
            await sw.definitions.publish(document(seconds=2), version=version)
        assert (await sw.definitions.get("checks")).number == 1


async def test_the_current_document_cannot_get_another_version(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document(), version="2.0.0")
        assert not (await sw.definitions.publish(document(), version="2.0.0")).created
        with pytest.raises(InvalidInput, match="current already"):
            await sw.definitions.publish(document(), version="3.0.0")


async def test_all_problems_of_a_document_are_told_at_once(world: World) -> None:
    text = "name: checks\nnodes:\n  - {id: wait, type: dely}\n  - {id: input, type: delay}\n"
    async with world() as sw:
        with pytest.raises(InvalidDefinition) as caught:
            await sw.definitions.publish(text)
        with pytest.raises(UnknownDefinition):
            await sw.definitions.get("checks")
    problems = {each["path"]: each for each in caught.value.details["problems"]}
    assert "Did you mean 'delay'?" in problems["nodes[0].type"]["hint"]
    assert problems["nodes[0].type"]["line"] == 3
    assert problems["nodes[1].id"]["code"] == "reserved_id"


async def test_a_definition_cannot_take_the_name_of_a_workflow_in_python(world: World) -> None:
    async with world([coded]) as sw:
        with pytest.raises(DefinitionExists, match="in Python"):
            await sw.definitions.publish(document("coded"))
        with pytest.raises(DefinitionExists, match="in Python"):
            await sw.definitions.create("coded")


async def test_another_revision_than_expected_is_a_conflict_that_says_what_changed(
    world: World,
) -> None:
    async with world() as sw:
        base = (await sw.definitions.publish(document(seconds=1))).revision.hash
        await sw.definitions.publish(document(seconds=2), if_match=base, author="bob")
        with pytest.raises(Conflict, match="of 'checks' was published by bob") as caught:
            await sw.definitions.publish(document(seconds=3), if_match=base)
        with pytest.raises(Conflict, match="Nothing of 'other' is published"):
            await sw.definitions.publish(document("other"), if_match=base)
        # Somebody has published the same; then nobody's work is lost.
        assert not (await sw.definitions.publish(document(seconds=2), if_match=base)).created
    assert caught.value.details["changes"] == ["node wait: config.duration: 1 → 2"]
    assert caught.value.details["author"] == "bob"


async def test_of_two_who_publish_at_once_one_wins_and_the_other_is_told(world: World) -> None:
    async with world() as sw:
        base = (await sw.definitions.publish(document(seconds=1))).revision.hash
        won, lost = await outcomes(
            *(
                sw.definitions.publish(document(seconds=n), if_match=base, author=f"writer {n}")
                for n in (2, 3, 4)
            )
        )
        head = await sw.definitions.get("checks")
        history = await sw.definitions.history("checks")
    assert len(won) == 1
    assert head.hash == won[0].revision.hash
    assert [type(error) for error in lost] == [Conflict, Conflict]
    winner = won[0].revision.author
    for error in lost:
        assert winner in str(error)
        assert error.details["changes"] == [f"node wait: config.duration: 1 → {winner[-1]}"]
    assert len(history) == 2


async def test_many_who_expect_nothing_all_get_a_number_of_their_own(world: World) -> None:
    async with world() as sw:
        won, lost = await outcomes(
            *(sw.definitions.publish(document(seconds=n)) for n in range(1, 9))
        )
        assert lost == []
        assert sorted(each.revision.number for each in won) == list(range(1, 9))
        head = await sw.definitions.get("checks")
        newest = await sw.start("checks")
        assert head.number == 8
        assert (await sw.get_run(newest.id)).revision == head.hash


async def test_a_run_goes_on_with_the_revision_it_was_started_with(world: World) -> None:
    def waiting(value: str) -> dict[str, Any]:
        return {
            "name": "checks",
            "nodes": [{"id": "go", "type": "wait_event", "config": {"event": "go"}}],
            "output": value,
        }

    async with world() as sw:
        first = (await sw.definitions.publish(waiting("old"))).revision
        async with sw.worker():
            old = await sw.start("checks")
            await until(sw, old.id, "waiting")
            second = (await sw.definitions.publish(waiting("new"))).revision
            new = await sw.start("checks")
            await until(sw, new.id, "waiting")
            await sw.emit("go")
            assert await old.result() == "old"
            assert await new.result() == "new"
        assert (await sw.get_run(old.id)).revision == first.hash
        assert (await sw.get_run(new.id)).revision == second.hash


async def test_a_run_of_a_document_leaves_the_texts_of_the_published_one(world: World) -> None:
    async with world() as sw:
        published = await sw.definitions.publish(document(title="Published"))
        run = await sw.start_document(document(title="Tried"))
        assert (await sw.get_run(run.id)).revision == published.revision.hash
        assert (await sw.definitions.document("checks"))["title"] == "Published"


async def test_rolling_back_names_a_revision_in_any_way(world: World) -> None:
    async with world() as sw:
        first = (await sw.definitions.publish(document(seconds=1))).revision
        second = (await sw.definitions.publish(document(seconds=2))).revision
        for ref in (first.hash, second.hash[:8], 1, "4", "1.1.3"):
            before = await sw.definitions.get("checks")
            result = await sw.definitions.rollback("checks", ref, author="ann")
            assert result.revision.hash != before.hash
            assert (await sw.definitions.get("checks")).hash == result.revision.hash
        # Numbers stay what they were, although a revision's row has its latest.
        assert await sw.definitions.document("checks", 1) == document(seconds=1)
        assert await sw.definitions.document("checks", 4) == document(seconds=2)


async def test_rolling_back_to_the_current_revision_says_so(world: World) -> None:
    async with world() as sw:
        found = (await sw.definitions.publish(document())).revision
        with pytest.raises(AlreadyCurrent, match=found.hash[:12]):
            await sw.definitions.rollback("checks", found.hash)
        for ref in ("2.0.0", "abc", found.hash[:5], 7, "f" * 64, "", "\0"):
            with pytest.raises(RevisionNotFound):
                await sw.definitions.rollback("checks", ref)
        with pytest.raises(InvalidInput):
            await sw.definitions.rollback("checks", True)


async def test_a_rollback_says_which_version_it_brought_back(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document(seconds=1))
        await sw.definitions.publish(document(seconds=2))
        revision = (await sw.definitions.rollback("checks", "1.0.0")).revision
        assert (revision.version, revision.note) == ("1.1.1", "1.0.0 again")
        with pytest.raises(RevisionNotFound, match=r"1\.1\.1 \(number 3\), 1\.1\.0 \(number 2\)"):
            await sw.definitions.rollback("checks", "1.0.1")
        for ref in ("1.0.0", 1):  # what it was called before
            with pytest.raises(AlreadyCurrent):
                await sw.definitions.rollback("checks", ref)
        assert await sw.definitions.document("checks", "1.0.0") == document(seconds=1)


async def test_rolling_back_something_else_than_is_current_is_a_conflict(world: World) -> None:
    async with world() as sw:
        first = (await sw.definitions.publish(document(seconds=1))).revision.hash
        second = (await sw.definitions.publish(document(seconds=2))).revision.hash
        third = (await sw.definitions.publish(document(seconds=3), author="bob")).revision.hash
        with pytest.raises(Conflict, match="published by bob") as caught:
            await sw.definitions.rollback("checks", first, if_match=second)
        assert caught.value.details["changes"] == ["node wait: config.duration: 2 → 3"]
        assert caught.value.details["hash"] == (await sw.definitions.get("checks")).hash == third
        result = await sw.definitions.rollback("checks", first, if_match=third)
        assert result.revision.hash == first


async def test_of_a_rollback_and_a_publication_at_once_the_other_is_told(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document(seconds=1))
        base = (await sw.definitions.publish(document(seconds=2))).revision.hash
        won, lost = await outcomes(
            sw.definitions.rollback("checks", "1.0.0", if_match=base),
            sw.definitions.publish(document(seconds=3), if_match=base),
        )
        current = await sw.definitions.get("checks")
    assert [each.revision.hash for each in won] == [current.hash]
    assert [type(error) for error in lost] == [Conflict]
    assert current.number == 3


async def test_what_is_rolled_back_to_is_checked_again(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document(seconds=1))
        await sw.definitions.publish({"name": "checks", "nodes": [{"id": "r", "type": "return"}]})
        operations = sw.definitions
        # The node types of a worker that does not know `delay`.
        object.__setattr__(operations._workspace, "types", lambda: NodeTypes([], {}))
        with pytest.raises(InvalidDefinition, match="no node type 'delay'"):
            await operations.rollback("checks", "1.0.0")
        assert (await operations.get("checks")).version == "1.1.0"


async def test_nothing_starts_a_disabled_definition(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document(), enabled=False)
        with pytest.raises(DefinitionDisabled):
            await sw.start("checks")
        await sw.definitions.publish(document(seconds=2))
        assert not (await sw.definitions.get("checks")).enabled, "publishing leaves it as it is"
        await sw.definitions.publish(document(seconds=2), enabled=True)
        await sw.start("checks")


async def test_a_workflow_in_python_does_not_take_the_name_of_data(world: World) -> None:
    @workflow(name="checks")
    async def checks(ctx: Any, input: Any) -> None:
        pass

    async with world() as sw:
        await sw.definitions.publish(document())
    with pytest.raises(DuplicateDefinition, match="'checks'"):
        async with world([checks]):
            pass


async def test_a_higher_limit_calls_up_runs_that_queue(world: World) -> None:
    one = document(policy={"max_concurrent_runs": 1}, seconds=1_000_000)
    async with world() as sw, sw.worker():
        await sw.definitions.publish(one)
        runs = [await sw.start("checks") for _ in range(2)]
        await until_code(sw, runs[0].id, "sleep")
        await until_code(sw, runs[1].id, "slot")
        await sw.definitions.publish(one | {"policy": {"max_concurrent_runs": 2}})
        await until_code(sw, runs[1].id, "sleep")

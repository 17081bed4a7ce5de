"""Drafts: kept whatever is wrong with them, overwritten by nobody who has not seen them."""

from __future__ import annotations

import hashlib

import pytest

from stepwell.errors import Conflict, DraftNotFound, InvalidDefinition, UnknownDefinition
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.operations.support import document, outcomes


@pytest.mark.parametrize(
    "text", ["nodes: [", "", "# only a comment", "name: checks\nnodes: # all of them\n", "{}"]
)
async def test_a_text_is_kept_as_it_is(world: World, text: str) -> None:
    async with world() as sw:
        await sw.definitions.create("checks")
        saved = await sw.definitions.save_draft("checks", text, author="ann")
        assert await sw.definitions.draft("checks") == saved
    assert saved.document == text
    assert saved.etag == hashlib.sha256(text.encode()).hexdigest()


async def test_data_is_kept_however_wrong(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document())
        for wrong in ({"nodes": 5}, [], None, {"name": "Other Name"}, 7):
            await sw.definitions.save_draft("checks", wrong)
        head = await sw.definitions.get("checks")
        assert (head.number, head.title) == (1, "")
        await sw.start("checks")


async def test_publishing_a_draft_makes_it_current_and_forgets_it(world: World) -> None:
    async with world() as sw:
        await sw.definitions.create("checks", author="ann")
        node = "{id: wait, type: delay, config: {duration: 1}}"
        text = f"# why\nname: checks\ntitle: Checks\nnodes: [{node}]"
        draft = await sw.definitions.save_draft("checks", text)
        result = await sw.definitions.publish_draft(
            "checks", if_match=draft.etag, enabled=True, note="First", author="bob"
        )
        assert result.created
        assert (result.definition.title, result.definition.enabled) == ("Checks", True)
        assert (result.revision.note, result.revision.author) == ("First", "bob")
        assert await sw.definitions.draft("checks") is None
        await sw.start("checks")
        with pytest.raises(DraftNotFound):
            await sw.definitions.publish_draft("checks")


async def test_a_draft_that_was_never_published_is_said_to_be_one(world: World) -> None:
    async with world() as sw:
        await sw.definitions.create("checks")
        for version in (None, 1):
            with pytest.raises(UnknownDefinition, match="'checks' has not been published yet"):
                await sw.start("checks", version=version)
        with pytest.raises(UnknownDefinition, match="No definition 'checks' has been published"):
            await sw.triggers.create("checks", "manual")
        with pytest.raises(UnknownDefinition, match="There is no definition 'others'"):
            await sw.start("others")


async def test_an_invalid_draft_stays_a_draft(world: World) -> None:
    async with world() as sw:
        await sw.definitions.create("checks")
        for wrong in ("nodes: [", {"name": "checks", "nodes": []}, document("other")):
            draft = await sw.definitions.save_draft("checks", wrong)
            with pytest.raises(InvalidDefinition) as caught:
                await sw.definitions.publish_draft("checks")
            assert await sw.definitions.draft("checks") == draft
        assert [each["code"] for each in caught.value.details["problems"]] == ["other_name"]
        assert (await sw.definitions.get("checks")).hash is None


async def test_a_draft_that_means_the_same_is_forgotten_without_a_revision(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document())
        await sw.definitions.save_draft("checks", document(title="Named"))
        result = await sw.definitions.publish_draft("checks")
        assert (result.action, result.definition.title) == ("update", "Named")
        assert await sw.definitions.draft("checks") is None


async def test_an_edit_of_something_else_than_is_there_is_a_conflict(
    world: World, clock: FakeClock
) -> None:
    async with world() as sw:
        base = (await sw.definitions.publish(document(seconds=1))).revision.hash
        first = await sw.definitions.save_draft(
            "checks", document(seconds=2), if_match=base, author="ann"
        )
        clock.advance("1m")
        # From the revision, not knowing that there is a draft now.
        with pytest.raises(Conflict, match="saved by ann at 2027-01-15 08:00:00Z") as caught:
            await sw.definitions.save_draft("checks", document(seconds=3), if_match=base)
        assert caught.value.details["changes"] == ["node wait: config.duration: 1 → 2"]
        assert caught.value.details["etag"] == first.etag
        await sw.definitions.save_draft("checks", document(seconds=4), if_match=first.etag)
        # From a draft that nobody has any more: then it is compared with the caller's own.
        with pytest.raises(Conflict) as caught:
            await sw.definitions.save_draft("checks", document(seconds=5), if_match=first.etag)
        assert caught.value.details["changes"] == ["node wait: config.duration: 5 → 4"]
        with pytest.raises(Conflict):
            await sw.definitions.publish_draft("checks", if_match=first.etag)


async def test_an_edit_from_a_revision_that_is_not_current_any_more_is_a_conflict(
    world: World,
) -> None:
    async with world() as sw:
        base = (await sw.definitions.publish(document(seconds=1))).revision.hash
        await sw.definitions.publish(document(seconds=2), author="bob")
        with pytest.raises(Conflict, match="published by bob") as caught:
            await sw.definitions.save_draft("checks", document(seconds=3), if_match=base)
        assert caught.value.details["changes"] == ["node wait: config.duration: 1 → 2"]


async def test_a_conflict_with_a_text_that_cannot_be_read_shows_it(world: World) -> None:
    async with world() as sw:
        base = (await sw.definitions.publish(document())).revision.hash
        await sw.definitions.save_draft("checks", "nodes: [")
        with pytest.raises(Conflict) as caught:
            await sw.definitions.save_draft("checks", document(seconds=3), if_match=base)
        assert 'document added: "nodes: ["' in caught.value.details["changes"]


async def test_saving_the_same_again_is_no_conflict(world: World) -> None:
    async with world() as sw:
        await sw.definitions.create("checks")
        first = await sw.definitions.save_draft("checks", document(seconds=2))
        again = await sw.definitions.save_draft("checks", document(seconds=2), if_match="stale")
    assert again == first


async def test_of_two_who_save_at_once_one_wins_and_the_other_is_told(world: World) -> None:
    async with world() as sw:
        base = (await sw.definitions.publish(document(seconds=1))).revision.hash
        won, lost = await outcomes(
            *(
                sw.definitions.save_draft(
                    "checks", document(seconds=n), if_match=base, author=f"writer {n}"
                )
                for n in (2, 3)
            )
        )
        draft = await sw.definitions.draft("checks")
    assert won == [draft]
    (error,) = lost
    assert isinstance(error, Conflict)
    assert draft.author in error.message
    assert error.details["changes"] == [f"node wait: config.duration: 1 → {draft.author[-1]}"]


async def test_without_an_expectation_the_last_one_stands(world: World) -> None:
    async with world() as sw:
        await sw.definitions.create("checks")
        won, lost = await outcomes(
            *(sw.definitions.save_draft("checks", document(seconds=n)) for n in range(6))
        )
        assert lost == []
        assert await sw.definitions.draft("checks") in won


async def test_a_draft_begun_before_another_revision_does_not_undo_it(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document(seconds=1))
        await sw.definitions.save_draft("checks", document(seconds=2))
        current = (await sw.definitions.publish(document(seconds=9), author="bob")).revision.hash
        # Saving it again does not mean that anybody has looked at what bob did.
        await sw.definitions.save_draft("checks", document(seconds=3))
        with pytest.raises(Conflict, match=r"published by bob.*Save the draft again") as caught:
            await sw.definitions.publish_draft("checks")
        assert caught.value.details["changes"] == ["node wait: config.duration: 1 → 9"]
        with pytest.raises(Conflict):
            await sw.definitions.save_draft("checks", document(seconds=4), base_hash="f" * 64)
        await sw.definitions.save_draft("checks", document(seconds=4), base_hash=current)
        assert (await sw.definitions.publish_draft("checks")).revision.version == "1.2.0"


async def test_of_publishing_and_saving_at_once_nothing_gets_lost(world: World) -> None:
    async with world() as sw:
        await sw.definitions.create("checks", document(seconds=1))
        etag = (await sw.definitions.draft("checks")).etag
        won, lost = await outcomes(
            sw.definitions.publish_draft("checks", if_match=etag),
            sw.definitions.save_draft("checks", document(seconds=2), if_match=etag),
        )
        current = await sw.definitions.get("checks")
        draft = await sw.definitions.draft("checks")
    assert len(won) == 1
    assert [type(error) for error in lost] == [Conflict]
    if current.hash is None:
        assert draft.document == won[0].document
    else:
        assert draft is None


async def test_a_discarded_draft_is_gone(world: World) -> None:
    async with world() as sw:
        base = (await sw.definitions.publish(document(seconds=1))).revision.hash
        draft = await sw.definitions.save_draft("checks", document(seconds=2))
        assert await sw.definitions.discard_draft("checks")
        assert not await sw.definitions.discard_draft("checks")
        assert await sw.definitions.draft("checks") is None
        with pytest.raises(Conflict):
            await sw.definitions.save_draft("checks", document(seconds=3), if_match=draft.etag)
        await sw.definitions.save_draft("checks", document(seconds=3), if_match=base)


async def test_a_draft_that_nobody_has_seen_is_not_discarded(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document(seconds=1))
        seen = await sw.definitions.save_draft("checks", document(seconds=2))
        saved = await sw.definitions.save_draft("checks", document(seconds=3), author="ann")
        with pytest.raises(Conflict, match="saved by ann") as caught:
            await sw.definitions.discard_draft("checks", if_match=seen.etag)
        assert caught.value.details["etag"] == saved.etag
        assert caught.value.details["changes"]
        assert await sw.definitions.draft("checks") == saved
        assert await sw.definitions.discard_draft("checks", if_match=saved.etag)
        assert not await sw.definitions.discard_draft("checks", if_match=saved.etag), "gone already"

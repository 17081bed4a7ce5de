"""Proposals: suggested, reviewed by somebody else, applied if nothing has changed since."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import Stepwell
from stepwell.errors import (
    Conflict,
    InvalidDefinition,
    InvalidInput,
    InvalidName,
    ProposalNotFound,
    ProposalNotOpen,
    ProposalsForbidden,
    RevisionNotFound,
    UnknownDefinition,
)
from stepwell.kernel.records import ProposalRecord
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.operations.support import document, outcomes

LONGER = [{"op": "update_node", "id": "wait", "set": {"config.duration": 60}}]


def open_document(**policy: Any) -> dict[str, Any]:
    return document(policy={"proposals": True, **policy})


async def proposed(sw: Stepwell, operations: Any = None, **fields: Any) -> ProposalRecord:
    return await sw.proposals.propose(
        "checks", operations or LONGER, **{"author": "agent", **fields}
    )


async def approved(sw: Stepwell, operations: Any = None) -> str:
    found = await proposed(sw, operations)
    await sw.proposals.review(found.id, True, reviewer="ann", note="Fine")
    return found.id


async def test_an_approved_proposal_becomes_the_current_revision(world: World) -> None:
    async with world() as sw:
        base = (await sw.definitions.publish(open_document())).revision.hash
        found = await proposed(sw, base_hash=base, note="Be patient")
        assert (found.status, found.base_hash, found.problems) == ("pending", base, [])
        change = {"config.duration": {"from": 1, "to": 60}}
        assert found.diff["nodes"]["changed"] == {"wait": change}
        reviewed = await sw.proposals.review(found.id, True, reviewer="ann", note="Fine")
        assert (reviewed.status, reviewed.review.reviewer) == ("approved", "ann")
        result = await sw.proposals.apply(found.id, author="bob")
        applied = await sw.proposals.get(found.id)
        current = await sw.definitions.document("checks")
    assert (result.revision.version, result.revision.number) == ("1.0.1", 2)
    assert (result.revision.source, result.revision.proposal_id) == ("proposal", found.id)
    assert (result.revision.hash, result.revision.note) == (found.hash, "Be patient")
    assert (applied.status, applied.applied_at) == ("applied", result.revision.published_at)
    assert current["nodes"][0]["config"] == {"duration": 60}


async def test_only_a_definition_that_says_so_takes_proposals(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(document())
        with pytest.raises(ProposalsForbidden, match="proposals: true"):
            await proposed(sw)
        await sw.definitions.create("draft-only", open_document())
        with pytest.raises(RevisionNotFound):
            await sw.proposals.propose("draft-only", LONGER, author="agent")
        with pytest.raises(UnknownDefinition):
            await sw.proposals.propose("nothing", LONGER, author="agent")


async def test_a_proposal_is_made_against_the_current_revision(world: World) -> None:
    async with world() as sw:
        base = (await sw.definitions.publish(open_document())).revision.hash
        await sw.definitions.publish(open_document(max_steps=5), author="bob")
        with pytest.raises(Conflict, match="published by bob") as caught:
            await proposed(sw, base_hash=base)
        assert caught.value.details["changes"] == ["policy.max_steps added: 5"]


async def test_operations_that_cannot_be_carried_out_are_refused(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(open_document())
        with pytest.raises(InvalidInput, match=r"operations\[0\]: There is no node 'no'"):
            await proposed(sw, [{"op": "remove_node", "id": "no"}])
        with pytest.raises(InvalidInput, match="change nothing"):
            await proposed(sw, [{"op": "set_meta", "set": {"name": "checks"}}])
        with pytest.raises(InvalidName):
            await proposed(sw, author="")
        assert await sw.proposals.list("checks") == []


async def test_nobody_reviews_their_own_unless_the_policy_allows_it(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(open_document())
        # What a proposal would allow does not count for itself.
        operations = [{"op": "set_meta", "set": {"policy.self_review": True}}]
        found = await proposed(sw, operations)
        for approve in (True, False):
            with pytest.raises(ProposalsForbidden, match="somebody else"):
                await sw.proposals.review(found.id, approve, reviewer="agent")
        await sw.proposals.review(found.id, True, reviewer="ann")
        await sw.proposals.apply(found.id)
        again = await proposed(sw)
        assert (await sw.proposals.review(again.id, True, reviewer="agent")).status == "approved"


async def test_a_proposal_is_decided_about_once(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(open_document())
        found = await proposed(sw)
        with pytest.raises(ProposalNotOpen, match="is pending; it would have to be approved"):
            await sw.proposals.apply(found.id)
        won, lost = await outcomes(
            sw.proposals.review(found.id, True, reviewer="ann"),
            sw.proposals.review(found.id, False, reviewer="bob", note="No"),
        )
        assert len(won) == 1
        assert [type(error) for error in lost] == [ProposalNotOpen]
        assert (await sw.proposals.get(found.id)) == won[0]


async def test_a_rejected_proposal_is_not_applied(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(open_document())
        found = await proposed(sw)
        rejected = await sw.proposals.review(found.id, False, reviewer="ann", note="Why?")
        assert (rejected.status, rejected.review.note) == ("rejected", "Why?")
        with pytest.raises(ProposalNotOpen, match="rejected"):
            await sw.proposals.apply(found.id)


async def test_a_proposal_expires_after_two_weeks_whatever_its_state(
    world: World, clock: FakeClock
) -> None:
    async with world() as sw:
        await sw.definitions.publish(open_document())
        pending, waiting = (await proposed(sw)).id, await approved(sw)
        clock.advance(14 * 86_400 - 1)
        assert {each.status for each in await sw.proposals.list("checks")} == {
            "pending", "approved",
        }  # fmt: skip
        clock.advance(1)
        assert len(await sw.proposals.list("checks", status="expired")) == 2
        assert len(await sw.proposals.list(status="expired")) == len(await sw.proposals.list()) == 2
        assert await sw.proposals.list("checks", status="pending") == []
        assert (await sw.proposals.get(pending)).status == "expired"
        with pytest.raises(ProposalNotOpen, match="expired since"):
            await sw.proposals.review(pending, True, reviewer="ann")
        with pytest.raises(ProposalNotOpen, match="expired"):
            await sw.proposals.apply(waiting)
        stored = await sw.store.records.proposals("default", "checks")
        assert [each.status for each in stored] == ["expired", "expired"]
        assert (await sw.definitions.get("checks")).number == 1


async def test_a_proposal_for_an_older_revision_has_failed(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(open_document())
        proposal_id = await approved(sw)
        await sw.definitions.publish(open_document(max_steps=5), author="bob")
        with pytest.raises(Conflict, match="published by bob"):
            await sw.proposals.apply(proposal_id)
        failed = await sw.proposals.get(proposal_id)
        assert failed.status == "failed"
        assert "published by bob" in (failed.error or "")
        with pytest.raises(ProposalNotOpen, match="failed"):
            await sw.proposals.apply(proposal_id)
        assert (await sw.definitions.get("checks")).number == 2


async def test_of_two_proposals_applied_at_once_the_other_has_failed(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(open_document())
        ids = [
            await approved(sw),
            await approved(sw, [{"op": "set_meta", "set": {"policy.max_steps": 7}}]),
        ]
        won, lost = await outcomes(*map(sw.proposals.apply, ids))
        statuses = sorted([(await sw.proposals.get(each)).status for each in ids])
        head = await sw.definitions.get("checks")
    assert len(won) == 1
    assert [type(error) for error in lost] == [Conflict]
    assert statuses == ["applied", "failed"]
    assert (head.hash, head.number) == (won[0].revision.hash, 2)


async def test_one_proposal_is_applied_once(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(open_document())
        proposal_id = await approved(sw)
        won, lost = await outcomes(*(sw.proposals.apply(proposal_id) for _ in range(3)))
        assert len(won) == 1
        assert [type(error) for error in lost] == [ProposalNotOpen] * 2
        assert (await sw.definitions.get("checks")).number == 2


async def test_what_is_wrong_with_a_proposal_stands_in_it_and_keeps_it_from_being_applied(
    world: World,
) -> None:
    async with world() as sw:
        await sw.definitions.publish(open_document())
        for operation, code in (
            ({"op": "add_node", "node": {"id": "x", "type": "dely"}}, "unknown_type"),
            ({"op": "set_meta", "set": {"name": "other"}}, "other_name"),
            ({"op": "remove_node", "id": "wait"}, "no_nodes"),
        ):
            proposal_id = await approved(sw, [operation])
            found = await sw.proposals.get(proposal_id)
            assert [each["code"] for each in found.problems] == [code]
            with pytest.raises(InvalidDefinition):
                await sw.proposals.apply(proposal_id)
            assert (await sw.proposals.get(proposal_id)).status == "failed"
        assert (await sw.definitions.get("checks")).number == 1


async def test_a_proposal_of_texts_only_is_applied_without_a_revision(world: World) -> None:
    async with world() as sw:
        await sw.definitions.publish(open_document())
        proposal_id = await approved(sw, [{"op": "set_meta", "set": {"title": "Named"}}])
        result = await sw.proposals.apply(proposal_id)
        assert not result.created
        assert (await sw.definitions.get("checks")).title == "Named"
        assert (await sw.proposals.get(proposal_id)).status == "applied"


async def test_proposals_are_listed_newest_first_and_go_with_their_definition(
    world: World,
) -> None:
    async with world() as sw:
        await sw.definitions.publish(open_document())
        ids = [(await proposed(sw)).id for _ in range(3)]
        assert [each.id for each in await sw.proposals.list("checks")] == ids[::-1]
        with pytest.raises(InvalidInput, match="no status"):
            await sw.proposals.list("checks", status="open")
        await sw.definitions.delete("checks")
        for proposal_id in (ids[0], "nothing", "\0", 5):
            with pytest.raises(ProposalNotFound):
                await sw.proposals.get(proposal_id)

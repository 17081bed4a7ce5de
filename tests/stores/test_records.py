"""Records on every store: a change is made as a whole or not at all, and the first one wins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from stepwell.catalog import store_for
from stepwell.errors import Overtaken
from stepwell.graph.definition import Definition, Graph, Policy
from stepwell.kernel.changes import SendSignal, StartRun
from stepwell.kernel.ids import Ids
from stepwell.kernel.records import (
    DefinitionRecord,
    DraftRecord,
    GateRecord,
    ProposalRecord,
    RevisionRecord,
    SecretRecord,
)
from stepwell.record import Amendment, graph_version
from stepwell.store import Store
from stepwell.testing.clock import FakeClock

WS = "default"
NOW = 1_800_000_000_000_000


@pytest.fixture
async def store(store_url: str, clock: FakeClock) -> AsyncIterator[Store]:
    found = store_for(store_url, clock)
    await found.open()
    yield found
    await found.close()


def head(serial: int, number: int = 0, **fields: Any) -> DefinitionRecord:
    usual = DefinitionRecord(
        "checks", serial, "Checks", ["ops"], True, None, None, number, None, NOW, NOW
    )
    return msgspec.structs.replace(usual, **fields)


def draft(document: str) -> DraftRecord:
    return DraftRecord("checks", document, f"etag of {document}", None, "ann", NOW)


def revision(number: int, hash: str) -> RevisionRecord:
    return RevisionRecord(
        "checks", hash, number, f"1.{number}.0", "publish", "ann", "", None, NOW + number,
        NOW + number,
    )  # fmt: skip


def publication(serial: int, number: int, hash: str, **fields: Any) -> Amendment:
    definition = Definition("checks", Graph([], []), policy=Policy(max_concurrent_runs=number))
    return Amendment(
        head(serial, number, hash=hash, version=f"1.{number}.0"),
        document=f"document {hash}",
        revision=revision(number, hash),
        version=graph_version(definition, number, hash),
        **fields,
    )


def proposal(status: Any) -> ProposalRecord:
    return ProposalRecord(
        "p", "checks", status, NOW + 1, "a", [{"op": "set_meta"}], "document b", "b", {}, [], "",
        "agent", NOW,
    )  # fmt: skip


async def everything(store: Store) -> Any:
    """All that the store has of the definition."""
    records = store.records
    return (
        await records.definition(WS, "checks"),
        await records.draft(WS, "checks"),
        await records.revisions(WS, "checks"),
        [await records.document(WS, hash) for hash in "ab"],
        [await store.version(WS, "checks", number) for number in (None, 1, 2)],
        await records.proposals(WS, "checks"),
    )


async def test_what_was_written_comes_back(store: Store) -> None:
    layout = {"wait": [1, 2.5, None]}
    given = head(1, layout=layout)
    await store.records.amend(WS, Amendment(given, draft=draft("text")))
    assert await store.records.definition(WS, "checks") == given
    assert await store.records.draft(WS, "checks") == draft("text")
    assert await store.records.definitions(WS) == [head(1)], "lists go without layouts"
    assert await store.records.definition("other", "checks") is None


async def test_a_publication_is_what_starts_find(store: Store) -> None:
    await store.records.amend(WS, publication(1, 1, "a"))
    await store.records.amend(WS, publication(2, 2, "b"))
    found = await store.version(WS, "checks", None)
    assert found is not None
    assert (found.version, found.revision, found.kind) == (2, "b", "graph")
    assert (found.max_concurrent_runs, found.enabled) == (2, True)
    assert [each.hash for each in await store.records.revisions(WS, "checks")] == ["b", "a"]
    assert await store.records.document(WS, "a") == "document a"
    await store.records.amend(WS, Amendment(head(3, 2, hash="b", enabled=False)))
    disabled = await store.version(WS, "checks", None)
    assert disabled is not None
    assert not disabled.enabled


async def test_a_hash_has_one_revision_that_keeps_when_it_was_created(store: Store) -> None:
    await store.records.amend(WS, publication(1, 1, "a"))
    await store.records.amend(WS, publication(2, 2, "b"))
    await store.records.amend(WS, publication(3, 3, "a"))
    found = await store.records.revisions(WS, "checks")
    assert [(each.hash, each.number) for each in found] == [("a", 3), ("b", 2)]
    assert (found[0].created_at, found[0].published_at) == (NOW + 1, NOW + 3)
    first = await store.version(WS, "checks", 1)
    assert first is not None
    assert first.revision == "a"


async def test_only_a_publication_replaces_a_document(store: Store) -> None:
    await store.records.keep(WS, "a", "kept", NOW)
    await store.records.amend(WS, publication(1, 1, "a"))
    assert await store.records.document(WS, "a") == "document a"
    await store.records.keep(WS, "a", "with other titles", NOW)
    assert await store.records.document(WS, "a") == "document a"


async def documents(store: Store) -> list[str]:
    hashes = ["a", "b", "c", "d"]
    return [hash for hash in hashes if await store.records.document(WS, hash) is not None]


async def test_old_documents_go_that_nothing_names(store: Store, clock: FakeClock) -> None:
    later = NOW + 1_000
    await store.records.amend(WS, publication(1, 1, "a"))
    row = graph_version(Definition("registered", Graph([], [])), 1, "b")
    await store.register(WS, [row])
    run = msgspec.structs.replace(started(Ids(clock).new()), revision="c")
    await store.commit([run])
    for hash in "bcd":
        await store.records.keep(WS, hash, f"document {hash}", NOW)
    await store.records.keep("other", "a", "of another workspace", NOW)
    assert await store.records.prune_documents(NOW, later, 10) == 0, "not old enough"
    assert [await store.records.prune_documents(NOW + 1, later, 3) for _ in range(3)] == [3, 2, 0]
    assert await documents(store) == ["a", "b", "c"]
    assert await store.records.document("other", "a") is None
    assert await store.records.prune_documents(later + 1, later + 1, 10) == 3, "looked at again"
    assert await documents(store) == ["a", "b", "c"]


async def test_a_document_that_was_kept_or_published_again_is_not_old(store: Store) -> None:
    for hash in "ab":
        await store.records.keep(WS, hash, f"document {hash}", NOW - 10)
    await store.records.keep(WS, "a", "document a", NOW)
    await store.records.amend(WS, publication(1, 1, "b"))
    assert await store.records.prune_documents(NOW, NOW, 10) == 0


async def test_the_documents_of_a_deleted_definition_stay_for_starts_under_way(
    store: Store,
) -> None:
    await store.records.amend(WS, publication(1, 1, "a"))
    await store.records.amend(WS, Amendment(head(2, updated_at=NOW + 5), deleted=True))
    assert await store.records.prune_documents(NOW + 5, NOW + 5, 10) == 0
    assert await store.records.prune_documents(NOW + 6, NOW + 6, 10) == 1
    assert await documents(store) == []


@pytest.mark.parametrize("serial", [1, 2, 4, 5])
async def test_a_change_made_from_anything_but_the_latest_writes_nothing(
    store: Store, serial: int
) -> None:
    await store.records.amend(WS, publication(1, 1, "a"))
    await store.records.amend(WS, Amendment(head(2, 1, hash="a"), draft=draft("text")))
    before = await everything(store)
    with pytest.raises(Overtaken):
        await store.records.amend(WS, publication(serial, 2, "b", draft=None))
    with pytest.raises(Overtaken):
        await store.records.amend(WS, Amendment(head(serial), deleted=True))
    assert await everything(store) == before


async def test_a_proposal_that_is_not_approved_keeps_the_revision_from_being_published(
    store: Store,
) -> None:
    await store.records.amend(WS, publication(1, 1, "a"))
    await store.records.put_proposal(WS, proposal("pending"), None)
    before = await everything(store)
    with pytest.raises(Overtaken):
        await store.records.amend(WS, publication(2, 2, "b", proposal=proposal("applied")))
    assert await everything(store) == before
    await store.records.put_proposal(WS, proposal("approved"), "pending")
    await store.records.amend(WS, publication(2, 2, "b", proposal=proposal("applied")))
    assert (await store.records.proposal(WS, "p")) == proposal("applied")
    assert (await store.records.revisions(WS, "checks"))[0].hash == "b"


async def test_a_proposal_changes_only_from_the_status_it_was_seen_in(store: Store) -> None:
    await store.records.put_proposal(WS, proposal("pending"), None)
    await store.records.put_proposal(WS, proposal("rejected"), "pending")
    with pytest.raises(Overtaken):
        await store.records.put_proposal(WS, proposal("approved"), "pending")
    assert await store.records.proposal(WS, "p") == proposal("rejected")


async def test_proposals_are_found_by_the_status_they_have_by_now(store: Store) -> None:
    statuses = ("pending", "approved", "rejected", "expired", "applied", "pending")
    for number, status in enumerate(statuses):
        given = msgspec.structs.replace(
            proposal(status), id=str(number), expires_at=NOW + (9 if number == 5 else 1)
        )
        await store.records.put_proposal(WS, given, None)
        given = msgspec.structs.replace(given, id=f"of other {number}", definition="other")
        await store.records.put_proposal(WS, given, None)

    async def found(status: str | None, now: int) -> list[str]:
        listed = await store.records.proposals(WS, "checks", status, now)
        return [each.id for each in listed]

    assert await found("pending", NOW) == ["5", "0"]
    assert await found("approved", NOW) == ["1"]
    assert await found("expired", NOW) == ["3"]
    assert await found("pending", NOW + 1) == ["5"]
    assert await found("approved", NOW + 1) == []
    assert await found("expired", NOW + 1) == ["3", "1", "0"]
    assert await found("rejected", NOW + 99) == ["2"]
    assert await found("applied", NOW + 99) == ["4"]
    assert await found(None, NOW) == ["5", "4", "3", "2", "1", "0"]


async def test_of_many_changes_made_from_the_same_one_is_written(store: Store) -> None:
    created = await asyncio.gather(
        *(store.records.amend(WS, Amendment(head(1), draft=draft(text))) for text in "abcd"),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in created) == ["Committed", *["Overtaken"] * 3]
    changed = await asyncio.gather(
        *(store.records.amend(WS, publication(2, 1, hash)) for hash in "abcd"),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in changed) == ["Committed", *["Overtaken"] * 3]
    (found,) = await store.records.revisions(WS, "checks")
    current = await store.records.definition(WS, "checks")
    version = await store.version(WS, "checks", None)
    assert current is not None
    assert version is not None
    assert found.hash == current.hash == version.revision


async def test_a_deletion_leaves_only_documents(store: Store) -> None:
    await store.records.amend(WS, publication(1, 1, "a", draft=draft("text")))
    await store.records.put_proposal(WS, proposal("pending"), None)
    await store.records.amend(WS, Amendment(head(2), deleted=True))
    nothing: Any = (None, None, [], ["document a", None], [None, None, None], [])
    assert await everything(store) == nothing
    await store.records.amend(WS, Amendment(head(1)))


# -- gates -----------------------------------------------------------------------------------


def started(run_id: str) -> StartRun:
    return StartRun(
        id=run_id, workspace_id=WS, definition="checks", version=1, program="checks/1",
        input="null", created_at=NOW, due_at=NOW, retention_seconds=1,
    )  # fmt: skip


def gate(run_id: str, gate_id: str = "g", **fields: Any) -> GateRecord:
    usual = GateRecord(
        gate_id, run_id, "ask", "open", 1, "checks", "Go on?", {"amount": 5}, "hash", NOW, None,
        "deny", [], 1,
    )  # fmt: skip
    return msgspec.structs.replace(usual, **fields)


def signal(ids: Ids, run_id: str) -> SendSignal:
    return SendSignal(ids.new(), WS, run_id, "gate:g", '{"decision": "approve"}', NOW)


async def signals_of(store: Store, run_id: str) -> int:
    # No contract tells of signals that nobody waits for yet.
    records: Any = store.records
    rows = await records._fetch("SELECT count(*) FROM events WHERE run_id = $1", run_id)
    return int(rows[0][0])


async def test_a_gate_is_opened_once_for_each_key_of_a_run(store: Store) -> None:
    first = await store.records.open_gate(WS, gate("run"))
    again = await store.records.open_gate(WS, gate("run", "other", prompt="Really?"))
    assert first == again == gate("run")


async def test_a_gate_closes_along_with_the_signal_to_its_run(
    store: Store, clock: FakeClock
) -> None:
    ids = Ids(clock)
    run_id = ids.new()
    await store.commit([started(run_id)])
    await store.records.open_gate(WS, gate(run_id))
    closed = gate(run_id, serial=2, status="approved")
    committed = await store.records.change_gate(WS, closed, signal(ids, run_id))
    assert committed.outcomes == [True]
    assert await signals_of(store, run_id) == 1
    assert await store.records.gate(WS, "g") == closed
    assert await store.records.gates(WS, run_id) == []
    assert await store.records.gates(WS, run_id, only_open=False) == [closed]


async def test_a_decision_that_came_too_late_sends_no_signal(
    store: Store, clock: FakeClock
) -> None:
    ids = Ids(clock)
    run_id = ids.new()
    await store.commit([started(run_id)])
    await store.records.open_gate(WS, gate(run_id))
    closed = gate(run_id, serial=2, status="approved")
    outcomes = await asyncio.gather(
        *(store.records.change_gate(WS, closed, signal(ids, run_id)) for _ in range(4)),
        return_exceptions=True,
    )
    assert [isinstance(each, Overtaken) for each in outcomes].count(True) == 3
    assert await signals_of(store, run_id) == 1


async def test_the_gates_of_a_run_are_those_of_runs_below_it_too(
    store: Store, clock: FakeClock
) -> None:
    ids = Ids(clock)
    parents = {"child": "run", "grandchild": "child", "other child": "other"}
    runs = {name: ids.new() for name in ("grandchild", "child", "run", "other child", "other")}
    for name, run_id in reversed(runs.items()):
        parent = runs.get(parents.get(name, ""))
        await store.commit([msgspec.structs.replace(started(run_id), parent_run_id=parent)])
        await store.records.open_gate(WS, gate(run_id, f"g {name}"))
    closed = gate(runs["child"], "g child", serial=2, status="denied")

    async def listed(run_id: str | None, **options: Any) -> list[str]:
        return [each.id for each in await store.records.gates(WS, run_id, **options)]

    assert await listed(runs["run"]) == ["g run", "g child", "g grandchild"], "its own first"
    assert await listed(runs["grandchild"]) == ["g grandchild"]
    assert await listed(runs["other"]) == ["g other", "g other child"]
    assert len(await listed(None)) == 5
    assert await store.records.gates("elsewhere", runs["run"]) == []
    assert await listed(ids.new()) == []
    await store.records.change_gate(WS, closed)
    assert await listed(runs["run"]) == ["g run", "g grandchild"]
    assert await listed(runs["run"], only_open=False) == ["g run", "g child", "g grandchild"]


async def test_gates_of_children_are_found_when_their_parent_is_gone(
    store: Store, clock: FakeClock
) -> None:
    ids = Ids(clock)
    gone, child = ids.new(), ids.new()
    await store.commit([msgspec.structs.replace(started(child), parent_run_id=gone)])
    await store.records.open_gate(WS, gate(child))
    assert await store.records.gates(WS, gone) == [gate(child)]


async def test_secrets_are_replaced_by_name(store: Store) -> None:
    first = SecretRecord("token", "k1", "sealed", NOW, NOW)
    await store.records.put_secret(WS, first)
    await store.records.put_secret(WS, SecretRecord("token", "k2", "again", NOW + 9, NOW + 9))
    assert await store.records.secrets(WS) == [SecretRecord("token", "k2", "again", NOW, NOW + 9)]
    assert await store.records.delete_secret(WS, "token")
    assert not await store.records.delete_secret(WS, "token")
    assert await store.records.secrets(WS) == []


async def test_a_secret_is_sealed_anew_only_if_it_is_as_it_was(store: Store) -> None:
    await store.records.put_secret(WS, SecretRecord("token", "k1", "sealed", NOW, NOW))
    anew = SecretRecord("token", "k2", "anew", NOW + 9, NOW + 9)
    assert not await store.records.replace_secret(WS, anew, "otherwise")
    assert not await store.records.replace_secret("elsewhere", anew, "sealed")
    assert await store.records.replace_secret(WS, anew, "sealed")
    assert not await store.records.replace_secret(WS, anew, "sealed")
    assert await store.records.secrets(WS) == [SecretRecord("token", "k2", "anew", NOW, NOW + 9)]
    await store.records.delete_secret(WS, "token")
    assert not await store.records.replace_secret(WS, anew, "anew")
    assert await store.records.secrets(WS) == []

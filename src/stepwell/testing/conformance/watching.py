"""What live feeds read of runs."""

from __future__ import annotations

from stepwell.kernel.changes import CancelRun, LogAttempt
from stepwell.kernel.outcomes import error_text
from stepwell.kernel.progress import ENDING, MOST_ENTRIES, MOST_OUTPUT, Place
from stepwell.store import Store
from stepwell.testing.conformance.check import check
from stepwell.testing.samples import WORKSPACE, claim_one, commit, enlist, record, start, wait


@check
async def progress_is_what_lies_behind_a_place(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    [pending] = await store.progress(WORKSPACE, [Place("r1")])
    assert pending is not None
    assert (pending.run.status, pending.run.started_at, pending.settled) == ("pending", None, [])
    _, held = await claim_one(store, "w1")
    long = '"' + "x" * MOST_OUTPUT + '"'
    await commit(
        store,
        record(store, held, "b", position=1),
        record(store, held, "a", long, position=2, seq=2),
        record(store, held, "now", kind="now", position=3),
        record(store, held, "c", None, position=4, seq=3, status="running", completed_at=None),
        wait(store, held, "d", seq=4),
    )
    everything, rest, other, none = await store.progress(
        WORKSPACE, [Place("r1"), Place("r1", 1), Place("r1", 2), Place("r2")]
    )
    assert everything is not None
    assert rest is not None
    assert other is not None
    assert none is None
    assert await store.progress("elsewhere", [Place("r1")]) == [None]
    found = [(entry.key, entry.output, bool(entry.has_output)) for entry in everything.settled]
    assert found == [("b", "1", True), ("a", None, True)]
    assert [[entry.key for entry in each.settled] for each in (rest, other)] == [["a"], []]
    assert [(entry.key, entry.status) for entry in other.open] == [
        ("c", "running"), ("d", "waiting"),
    ]  # fmt: skip


@check
async def progress_comes_in_pages_and_what_was_open_comes_at_the_end(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    many = range(MOST_ENTRIES + 1)
    await commit(store, *(record(store, held, f"s{n}", position=n, seq=n) for n in many))
    error = error_text("Oops", "no luck")
    now = store.clock.now()
    await commit(
        store,
        record(store, held, "o2", None, status="retrying", completed_at=None, position=99),
        LogAttempt(held, "o2", 1, error, now, now),
        wait(store, held, "o1", seq=0),
    )
    [first] = await store.progress(WORKSPACE, [Place("r1")])
    assert first is not None
    assert (len(first.settled), first.more, first.open) == (MOST_ENTRIES, True, [])
    last = first.settled[-1].position
    [second] = await store.progress(WORKSPACE, [Place("r1", last)])
    assert second is not None
    assert (len(second.settled), second.more) == (1, False)
    assert [entry.key for entry in second.open] == ["o1", "o2"]
    assert [(each.key, each.number) for each in second.failures] == [("o2", 1)]
    await commit(store, CancelRun("r1", WORKSPACE, store.clock.now()))
    ended, rest = await store.progress(
        WORKSPACE, [Place("r1", last + 1), Place("r1", ENDING, "o1")]
    )
    assert ended is not None
    assert rest is not None
    assert [(entry.key, entry.position) for entry in ended.settled] == [
        ("o1", ENDING), ("o2", ENDING),
    ]  # fmt: skip
    assert [entry.key for entry in rest.settled] == ["o2"]

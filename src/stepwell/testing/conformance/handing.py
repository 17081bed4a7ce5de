"""Events that meet a worker who asks: its runs are handed over at once."""

from __future__ import annotations

from typing import Any

from stepwell.kernel.changes import (
    Claimed,
    ClaimRuns,
    EmitEvent,
    Held,
    ParkRun,
    WatchWaits,
)
from stepwell.kernel.clock import SECOND
from stepwell.store import Store
from stepwell.testing.conformance.check import check
from stepwell.testing.samples import (
    PROGRAM,
    WORKSPACE,
    claim,
    claim_one,
    commit,
    enlist,
    record,
    start,
    wait,
)


async def _parked(store: Store, *run_ids: str, **options: Any) -> None:
    """Runs that wait for an event, and whom nobody holds."""
    await commit(store, *(start(store, run_id, **options) for run_id in run_ids))
    found = (await claim(store, "w1", limit=len(run_ids))).runs
    held = [Held(run.id, "w1", run.fence) for run in found]
    assert len(held) == len(run_ids)
    await commit(store, *(wait(store, each, "a") for each in held))
    await commit(store, *(ParkRun(each, ["a"]) for each in held))


async def _emitted(store: Store, number: int = 1, **asked: Any) -> Claimed:
    """What a claim is given that shares its batch with an event."""
    ask = {"programs": [PROGRAM], "limit": 10, "now": store.clock.now(), **asked}
    event = EmitEvent(f"e{number}", WORKSPACE, "mail", str(number), store.clock.now())
    new, claimed = await commit(store, event, ClaimRuns(WORKSPACE, "w1", **ask))
    assert new
    found: Claimed = claimed
    return found


@check
async def an_event_gives_parked_runs_to_whoever_asks_meanwhile(store: Store) -> None:
    await enlist(store, "w1")
    await _parked(store, "r1", "r2")
    later = store.clock.now() + 3600 * SECOND
    await commit(store, start(store, "r3", due_at=later))
    claimed = await _emitted(store)
    assert [(run.id, run.fence, run.input) for run in claimed.runs] == [
        ("r1", 2, '{"n": 1}'), ("r2", 2, '{"n": 1}'),
    ]  # fmt: skip
    assert [(row.key, row.result) for row in claimed.runs[0].waits] == [("a", "1")]
    assert (claimed.next_at, claimed.more) == (later, False)
    held = [Held(run.id, "w1", run.fence) for run in claimed.runs]
    assert await commit(store, *(record(store, each, "b") for each in held)) == [None, None]
    assert (await _emitted(store, 2)).runs == []


@check
async def an_event_gives_nobody_what_they_cannot_take(store: Store) -> None:
    await enlist(store, "w1")
    await _parked(store, "r1", "r2", "r3")
    few = await _emitted(store, 1, limit=2)
    assert (len(few.runs), few.more) == (2, True)
    (left,) = (await claim(store, "w1")).runs
    assert {run.id for run in (*few.runs, left)} == {"r1", "r2", "r3"}
    await _parked(store, "r4")
    assert (await _emitted(store, 2, programs=["code:other@1"])).runs == []
    assert [run.id for run in (await claim(store, "w1")).runs] == ["r4"]
    await _parked(store, "r5")
    store.clock.advance("1h")  # type: ignore[attr-defined]
    assert (await _emitted(store, 3)).lease_lost
    await enlist(store, "w2")
    assert [run.id for run in (await claim(store, "w2")).runs] == ["r5"]


@check
async def of_several_events_the_first_that_is_new_ends_a_wait(store: Store) -> None:
    await enlist(store, "w1")
    now = store.clock.now()
    await commit(store, EmitEvent("e0", WORKSPACE, "mail", "0", now, key="k", once=True))
    await _parked(store, "r1", "r2")
    again = EmitEvent("e1", WORKSPACE, "mail", "1", now, key="k", once=True)
    others = [EmitEvent(f"e{n}", WORKSPACE, "mail", str(n), now) for n in (2, 3)]
    ask = ClaimRuns(WORKSPACE, "w1", [PROGRAM], 10, now)
    *new, claimed = await commit(store, again, *others, ask)
    assert new == [False, True, True]
    assert [(run.id, run.waits[0].result) for run in claimed.runs] == [("r1", "2"), ("r2", "2")]


@check
async def an_event_may_wake_more_runs_than_anybody_has_room_for(store: Store) -> None:
    await enlist(store, "w1")
    names = [f"r{number:03}" for number in range(150)]
    await _parked(store, *names)
    claimed = await _emitted(store, limit=100)
    assert (len(claimed.runs), claimed.more) == (100, True)
    rest = (await claim(store, "w1", limit=100)).runs
    assert sorted(run.id for run in (*claimed.runs, *rest)) == names


@check
async def what_else_is_due_comes_after_an_event(store: Store) -> None:
    await enlist(store, "w1")
    await _parked(store, "r1")
    await commit(store, start(store, "r2"), start(store, "r3"))
    _, held = await claim_one(store, "w1", limit=1)
    await commit(store, wait(store, held, "b", event="letter"), WatchWaits(held, ["b"]))
    await commit(store, EmitEvent("e0", WORKSPACE, "letter", "0", store.clock.now()))
    claimed, found = await _emitted(store, known=[held.run_id]), []
    while True:
        found += [(run.id, run.nudge) for run in claimed.runs]
        if not claimed.more:
            break
        claimed = await claim(store, "w1", known=[held.run_id, *(each for each, _ in found)])
    assert sorted(found) == [("r1", False), (held.run_id, True), ("r3", False)]

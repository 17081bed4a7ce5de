"""What every store must do: checks that a store's author runs against an empty store.

Each check takes a store that is open and empty, and raises AssertionError. Run them all:

    for check in CHECKS:
        await check(fresh_store())
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from stepwell.kernel.changes import (
    FENCED,
    CancelRun,
    EmitEvent,
    EndRun,
    Held,
    LogAttempt,
    ParkRun,
    ReleaseRun,
    ResumeRun,
    WatchWaits,
)
from stepwell.kernel.clock import SECOND
from stepwell.store import Store
from stepwell.testing.samples import (
    WORKSPACE,
    claim,
    claim_one,
    commit,
    enlist,
    record,
    signal,
    start,
    wait,
)

Check = Callable[[Store], Awaitable[None]]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


@check
async def a_start_sent_twice_makes_one_run(store: Store) -> None:
    change = start(store, "r1", idempotency_key="k")
    assert await commit(store, change) == [("r1", True)]
    assert await commit(store, change) == [("r1", True)]
    again, other = start(store, "r2", idempotency_key="k"), start(store, "r3")
    assert await commit(store, again, other) == [("r1", False), ("r3", True)]
    assert await store.get_run(WORKSPACE, "r2") is None


@check
async def a_claim_gives_each_run_once_with_its_input(store: Store) -> None:
    await enlist(store, "w1")
    await enlist(store, "w2")
    await commit(store, *(start(store, f"r{n}") for n in range(5)))
    first = await claim(store, "w1", limit=3)
    assert [run.id for run in first.runs] == ["r0", "r1", "r2"]
    assert first.more
    assert first.runs[0].input == '{"n": 1}'
    second = await claim(store, "w2")
    assert [run.id for run in second.runs] == ["r3", "r4"]
    assert not second.more
    assert (await claim(store, "w2")).runs == []


@check
async def a_claim_follows_priority_then_time_and_leaves_other_programs(store: Store) -> None:
    await enlist(store, "w1")
    now = store.clock.now()
    await commit(
        store,
        start(store, "r1"),
        start(store, "r2", priority=5),
        start(store, "r3", program="code:other@1"),
        start(store, "r4", due_at=now + 60 * SECOND),
        start(store, "r5", priority=5),
    )
    claimed = await claim(store, "w1")
    assert [run.id for run in claimed.runs] == ["r2", "r5", "r1"]
    assert claimed.next_at == now + 60 * SECOND


@check
async def a_worker_without_a_lease_gets_nothing(store: Store) -> None:
    await commit(store, start(store, "r1"))
    assert (await claim(store, "nobody")).lease_lost
    await enlist(store, "w1", lease_seconds=0)
    assert (await claim(store, "w1")).lease_lost
    assert not await store.heartbeat("w1", 15)
    await enlist(store, "w2")
    assert await store.heartbeat("w2", 15)
    assert len((await claim(store, "w2")).runs) == 1


@check
async def every_change_of_a_run_held_by_another_is_fenced(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    run, held = await claim_one(store, "w1")
    now = store.clock.now()
    for wrong in (Held("r1", "w2", run.fence), Held("r1", "w1", run.fence + 1)):
        outcomes = await commit(
            store,
            record(store, wrong, "a"),
            LogAttempt(wrong, "a", 1, "{}", now, now),
            wait(store, wrong, "b"),
            ParkRun(wrong, ["b"]),
            WatchWaits(wrong, ["b"]),
            ReleaseRun(wrong),
            EndRun(wrong, "completed", "1", None, now),
            EmitEvent("e1", WORKSPACE, "mail", "1", now, held=wrong),
        )
        assert outcomes == [FENCED] * 8
    assert await store.steps("r1") == []
    found = await store.get_run(WORKSPACE, "r1")
    assert found is not None
    assert found.status == "running"
    assert await commit(store, record(store, held, "a")) == [None]


@check
async def a_fenced_change_does_not_touch_its_neighbours(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"), start(store, "r2"))
    one, two = (Held(run.id, "w1", run.fence) for run in (await claim(store, "w1")).runs)
    stale = Held(one.run_id, "w1", one.fence - 1)
    outcomes = await commit(store, record(store, stale, "a"), record(store, two, "a"))
    assert outcomes == [FENCED, None]
    assert await store.steps("r1") == []
    assert len(await store.steps("r2")) == 1


@check
async def a_recorded_step_stays_as_it_was_recorded(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    await commit(store, record(store, held, "a", status="running", output=None))
    await commit(store, record(store, held, "a", output='"first"'))
    await commit(store, record(store, held, "a", output='"second"'))
    (step,) = await store.steps("r1")
    assert (step.status, step.output) == ("completed", "first")


@check
async def the_next_claim_brings_journal_and_waits(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    await commit(
        store,
        record(store, held, "a", output='{"b": 1, "a": "\\u0000"}', position=5 << 20),
        wait(store, held, "b"),
        ParkRun(held, ["b"]),
    )
    assert (await claim(store, "w1")).runs == []
    assert await commit(store, signal(store, "r1", '"x"')) == [True]
    run, again = await claim_one(store, "w1")
    assert again.fence == held.fence + 1
    assert [(row.key, row.output, row.position) for row in run.journal] == [
        ("a", '{"b": 1, "a": "\\u0000"}', 5 << 20)
    ]
    assert [(row.key, row.result) for row in run.waits] == [("b", '"x"')]


@check
async def a_signal_is_consumed_once_and_in_order(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    first, second = signal(store, "r1", "1", "s1"), signal(store, "r1", "2", "s2")
    assert await commit(store, first, first, second) == [True, True, True]
    await commit(store, wait(store, held, "a"), wait(store, held, "b"), wait(store, held, "c"))
    await commit(store, ParkRun(held, ["a", "b", "c"]))
    run, _ = await claim_one(store, "w1")
    results = {row.key: row.result for row in run.waits}
    assert results == {"a": "1", "b": "2", "c": None}


@check
async def a_wait_that_is_given_up_gives_its_signal_back(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    await commit(store, wait(store, held, "a"), signal(store, "r1", "7"))
    await commit(
        store, record(store, held, "a", output=None, kind="event", status="skipped", settles=True)
    )
    await commit(store, wait(store, held, "b"), ParkRun(held, ["b"]))
    run, _ = await claim_one(store, "w1")
    assert [(row.key, row.result) for row in run.waits] == [("b", "7")]


@check
async def time_ends_a_wait_before_a_late_signal_can(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    now = store.clock.now()
    await commit(store, wait(store, held, "a", due_at=now), ParkRun(held, ["a"]))
    run, held = await claim_one(store, "w1")
    assert [(row.key, row.result) for row in run.waits] == [("a", None)]
    assert run.waits[0].ended_at is not None
    await commit(store, signal(store, "r1", "1"))
    await commit(store, wait(store, held, "b"), ParkRun(held, ["b"]))
    run, _ = await claim_one(store, "w1")
    assert {row.key: row.result for row in run.waits} == {"a": None, "b": "1"}


@check
async def an_event_ends_the_waits_that_match_it(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, *(start(store, f"r{n}") for n in range(3)))
    held = [Held(run.id, "w1", run.fence) for run in (await claim(store, "w1")).runs]
    for n, one in enumerate(held):
        term = f'["id"]={n}'
        opening = wait(store, one, "a", match=f'{{"id": {n}}}', term=term)
        await commit(store, opening, ParkRun(one, ["a"]))
    now = store.clock.now()
    event = EmitEvent("e1", WORKSPACE, "mail", '{"id": 1}', now, key="k", once=True)
    twin = EmitEvent("e2", WORKSPACE, "mail", '{"id": 2}', now, key="k", once=True)
    assert await commit(store, event) == [True]
    assert await commit(store, event, twin) == [True, False]
    assert [run.id for run in (await claim(store, "w1")).runs] == ["r1"]


@check
async def the_end_of_a_child_reaches_its_parent_however_they_meet(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "p1"), start(store, "p2"))
    parents = [Held(run.id, "w1", run.fence) for run in (await claim(store, "w1")).runs]
    early, late = start(store, "c1", parent_run_id="p1"), start(store, "c2", parent_run_id="p2")
    await commit(store, early, late)
    children = [Held(run.id, "w1", run.fence) for run in (await claim(store, "w1")).runs]
    now = store.clock.now()
    await commit(store, EndRun(children[0], "completed", '"early"', None, now))
    for parent, child in zip(parents, ("c1", "c2"), strict=True):
        opening = wait(store, parent, "child", kind="child", child_run_id=child)
        await commit(store, opening, ParkRun(parent, ["child"]))
    await commit(store, EndRun(children[1], "failed", None, "{}", now))
    results = {run.id: run.waits[0].result for run in (await claim(store, "w1")).runs}
    assert results == {
        "p1": '["completed","\\"early\\"",null]',
        "p2": '["failed",null,"{}"]',
    }


@check
async def a_parked_run_can_be_resumed_until_somebody_claims_it(store: Store) -> None:
    await enlist(store, "w1")
    await enlist(store, "w2")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    await commit(store, wait(store, held, "a"), ParkRun(held, ["a"]))
    assert await commit(store, ResumeRun(held)) == [held.fence + 1]
    assert await commit(store, ResumeRun(held)) == [None]
    held = Held("r1", "w1", held.fence + 1)
    assert await commit(store, record(store, held, "b"), ParkRun(held, ["a"])) == [None, None]
    await commit(store, signal(store, "r1", "1"))
    await claim_one(store, "w2")
    assert await commit(store, ResumeRun(held)) == [None]


@check
async def cancel_ends_a_run_and_its_children_once(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    await commit(store, start(store, "c1", parent_run_id="r1"))
    now = store.clock.now()
    done = await store.commit([CancelRun("r1", WORKSPACE, now)])
    assert done.outcomes == [True]
    assert sorted(done.stopped, key=lambda pair: pair[0]) == [("c1", None), ("r1", "w1")]
    assert await commit(store, CancelRun("r1", WORKSPACE, now)) == [False]
    assert await commit(store, CancelRun("nope", WORKSPACE, now)) == [None]
    assert await commit(store, EndRun(held, "completed", "1", None, now)) == [FENCED]
    assert sorted(await store.ended(["r1", "c1"])) == ["c1", "r1"]


@check
async def the_runs_of_a_silent_worker_are_taken_over(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    run, held = await claim_one(store, "w1")
    await store.retire(["w1"])
    await enlist(store, "w2")
    swept = await claim(store, "w2", sweep=True)  # may itself bring what it sets free, or not
    claimed = swept if swept.runs else await claim(store, "w2")
    assert [(found.id, found.fence, found.attempt) for found in claimed.runs] == [
        ("r1", run.fence + 1, 2)
    ]
    assert await commit(store, record(store, held, "a")) == [FENCED]
    assert await store.lost([("r1", "w1", run.fence)]) == ["r1"]


@check
async def what_a_lost_acknowledgement_hid_is_claimed_again(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"), start(store, "r2"))
    first = await claim(store, "w1")
    again = await claim(store, "w1", known=["r1"], resent=True)
    assert [(run.id, run.fence) for run in again.runs] == [("r2", first.runs[1].fence + 1)]


@check
async def limits_hold_and_free_slots_go_to_the_next_in_line(store: Store) -> None:
    await enlist(store, "w1")
    limits = [("definition:x", 1)]
    await commit(store, *(start(store, f"r{n}", limits=limits) for n in range(3)))
    _, held = await claim_one(store, "w1")
    assert held.run_id == "r0"
    assert (await claim(store, "w1", sweep=True, known=["r0"])).runs == []
    facts = await store.facts(WORKSPACE, "r2")
    assert facts is not None
    assert (facts.blocked_on, facts.limit_holders, facts.queued_ahead) == (
        "definition:x",
        ["r0"],
        1,
    )
    await commit(store, EndRun(held, "completed", "1", None, store.clock.now()))
    _, following = await claim_one(store, "w1")
    assert following.run_id == "r1"


@check
async def one_worker_at_a_time_has_a_duty(store: Store) -> None:
    assert await store.take_duty("prune", "w1", 60)
    assert await store.take_duty("prune", "w1", 60)
    assert not await store.take_duty("prune", "w2", 60)
    assert await store.take_duty("other", "w2", 0)
    assert await store.take_duty("other", "w1", 60)


@check
async def pruning_deletes_what_ended_long_enough_ago(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"), start(store, "r2"))
    first, _ = (Held(run.id, "w1", run.fence) for run in (await claim(store, "w1")).runs)
    now = store.clock.now()
    await commit(store, record(store, first, "a"), EndRun(first, "completed", "1", None, now))
    assert await store.prune(now + 59 * SECOND, 10) == 0
    assert await store.prune(now + 10**9 * SECOND, 10) == 1
    assert await store.get_run(WORKSPACE, "r1") is None
    assert await store.steps("r1") == []
    assert await store.get_run(WORKSPACE, "r2") is not None


@check
async def unclaimed_runs_are_counted(store: Store) -> None:
    now = store.clock.now()
    await commit(store, start(store, "r1"), start(store, "r2"))
    assert await store.unclaimed(WORKSPACE, now - 1) == (0, None)
    assert await store.unclaimed(WORKSPACE, now) == (2, "r1")

"""Concurrency limits: who gets a slot, who queues, and who shares."""

from __future__ import annotations

from stepwell.kernel.changes import ClaimRuns, EndRun
from stepwell.kernel.clock import SECOND, to_micros
from stepwell.kernel.pacing import Throttle
from stepwell.store import Store, WorkerRow
from stepwell.testing.conformance.check import check
from stepwell.testing.samples import (
    PROGRAM,
    WORKSPACE,
    claim,
    claim_one,
    commit,
    enlist,
    start,
    wait,
)


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
async def a_child_shares_the_slots_that_are_in_use_above_it(store: Store) -> None:
    await enlist(store, "w1")
    limits = [("definition:down", 1)]
    await commit(store, start(store, "down", limits=limits))
    _, down = await claim_one(store, "w1")
    await commit(store, start(store, "between", parent_run_id="down", held=down))
    _, between = await claim_one(store, "w1")
    below = start(store, "below", parent_run_id="between", held=between, limits=limits)
    await commit(store, below, start(store, "beside", limits=limits))
    _, held = await claim_one(store, "w1")
    assert held.run_id == "below"


@check
async def a_queued_run_shares_the_slot_of_whoever_waits_for_it(store: Store) -> None:
    await enlist(store, "w1")
    limits = [("definition:down", 1)]
    await commit(store, start(store, "down", limits=limits))
    _, down = await claim_one(store, "w1")
    await commit(store, start(store, "between", parent_run_id="down", held=down))
    _, between = await claim_one(store, "w1")
    await commit(store, EndRun(down, "failed", None, None, store.clock.now()))
    # Someone else comes to wait for what the dead run left at work: a retry, or a fork.
    await commit(store, start(store, "again", limits=limits))
    _, again = await claim_one(store, "w1")
    await commit(store, wait(store, again, "between", kind="child", child_run_id="between"))
    below = start(store, "below", parent_run_id="between", held=between, limits=limits)
    waiting = wait(store, between, "below", kind="child", child_run_id="below")
    await commit(store, below, waiting, start(store, "beside", limits=limits))
    known = ["again", "between"]
    assert (await claim(store, "w1", known=known)).runs == []
    await claim(store, "w1", limit=0, known=known, sweep=True)
    # The slot is in use from then on, also if its first holder ends before the other one begins.
    await commit(store, EndRun(again, "failed", None, None, store.clock.now()))
    assert [run.id for run in (await claim(store, "w1", known=known)).runs] == ["below"]


@check
async def a_retry_shares_the_slot_that_a_child_of_its_has_kept(store: Store) -> None:
    await enlist(store, "w1")
    limits = [("definition:down", 1)]
    await commit(store, start(store, "down", limits=limits))
    _, down = await claim_one(store, "w1")
    await commit(store, start(store, "between", parent_run_id="down", held=down))
    _, between = await claim_one(store, "w1")
    await commit(store, start(store, "below", parent_run_id="between", held=between, limits=limits))
    _, below = await claim_one(store, "w1")
    await commit(store, EndRun(down, "failed", None, None, store.clock.now()))
    # What is below may go on only when the retry does: by an event of its, say.
    again = start(store, "again", limits=limits, forked_from="down", fork_for_retry=True)
    await commit(store, start(store, "beside", limits=limits), again)
    known = ["between", "below"]
    assert (await claim(store, "w1", known=known)).runs == []
    await claim(store, "w1", limit=0, known=known, sweep=True)
    assert [run.id for run in (await claim(store, "w1", known=known)).runs] == ["again"]
    known.append("again")
    await commit(store, EndRun(below, "completed", "1", None, store.clock.now()))
    assert (await claim(store, "w1", known=known)).runs == []


@check
async def a_slot_is_not_passed_on_by_whoever_outlives_its_run(store: Store) -> None:
    await enlist(store, "w1")
    limits = [("definition:down", 1)]
    await commit(store, start(store, "down", limits=limits))
    _, down = await claim_one(store, "w1")
    await commit(store, start(store, "between", parent_run_id="down", held=down))
    _, between = await claim_one(store, "w1")
    await commit(store, EndRun(down, "completed", "1", None, store.clock.now()))
    await commit(store, start(store, "next", limits=limits))
    _, following = await claim_one(store, "w1")
    assert following.run_id == "next"
    late = start(store, "late", parent_run_id="between", held=between, limits=limits)
    await commit(store, late)
    assert (await claim(store, "w1")).runs == []
    facts = await store.facts(WORKSPACE, "late")
    assert facts is not None
    assert (facts.blocked_on, facts.limit_holders) == ("definition:down", ["next"])
    await commit(store, EndRun(following, "completed", "1", None, store.clock.now()))
    _, held = await claim_one(store, "w1")
    assert held.run_id == "late"


@check
async def a_run_that_nobody_can_execute_holds_no_slot(store: Store) -> None:
    limits = [("key:k", 1)]
    await enlist(store, "w1")
    await commit(store, start(store, "r0", limits=limits, program="code:work@2"))
    await commit(store, start(store, "r1", limits=limits))
    _, held = await claim_one(store, "w1")
    assert held.run_id == "r1"
    # Once there is somebody for it, it waits its turn like any other.
    await store.enlist(
        WorkerRow("w2", WORKSPACE, "host", 2, "", 10, ["code:work@2"], store.clock.now(), 15)
    )
    ask = ClaimRuns(WORKSPACE, "w2", ["code:work@2"], 10, store.clock.now(), sweep=True)
    assert (await commit(store, ask))[0].runs == []
    await commit(store, EndRun(held, "completed", "1", None, store.clock.now()))
    again = ClaimRuns(WORKSPACE, "w2", ["code:work@2"], 10, store.clock.now())
    assert [run.id for run in (await commit(store, again))[0].runs] == ["r0"]


@check
async def a_call_that_nobody_is_left_to_answer_holds_no_slot(store: Store) -> None:
    limits = [("key:k", 1)]
    await store.enlist(
        WorkerRow("w2", WORKSPACE, "host", 2, "", 10, ["code:work@2"], store.clock.now(), 15)
    )
    await commit(store, start(store, "r0", limits=limits, program="code:work@2"))
    await store.retire(["w2"])
    await enlist(store, "w1")
    await commit(store, start(store, "r1", limits=limits))
    for _ in range(2):  # the sweep strikes the dead worker off, then looks at the queues
        claimed = await claim(store, "w1", sweep=True)
    runs = claimed.runs or (await claim(store, "w1")).runs
    assert [run.id for run in runs] == ["r1"]


async def _claimed(store: Store, known: list[str]) -> list[str]:
    """The runs that are claimed until there is no more to claim."""
    found: list[str] = []
    more = True
    while more:
        claimed = await claim(store, "w1", known=[*known, *found], sweep=True)
        found += [run.id for run in claimed.runs]
        more = claimed.more
    return found


@check
async def whoever_stands_first_begins_first_also_if_another_limit_kept_it(store: Store) -> None:
    await enlist(store, "w1")
    both = ("definition:d", 2)
    await commit(store, start(store, "r0", limits=[both, ("key:a", 1)]))
    _, first = await claim_one(store, "w1")
    urgent = start(store, "r1", limits=[both, ("key:a", 1)], priority=9)
    await commit(store, urgent, *(start(store, name, limits=[both]) for name in ("r2", "r3")))
    assert await _claimed(store, ["r0"]) == ["r2"]
    # One slot of either limit becomes free: r1 is called for the one, r3 for the other.
    await commit(store, EndRun(first, "completed", "1", None, store.clock.now()))
    assert await _claimed(store, ["r2"]) == ["r1"]
    facts = await store.facts(WORKSPACE, "r3")
    assert facts is not None
    assert facts.blocked_on == "definition:d"


@check
async def a_claim_that_was_long_on_its_way_takes_its_turns_when_it_arrives(store: Store) -> None:
    await enlist(store, "w1")
    now = store.clock.now()
    throttle = Throttle("throttle:t", 1, 10 * SECOND)
    await commit(store, *(start(store, f"r{n}", throttle=throttle) for n in range(2)))
    sent = ClaimRuns(WORKSPACE, "w1", [PROGRAM], 10, now - 60 * SECOND, dated=True)
    assert [run.id for run in (await commit(store, sent))[0].runs] == ["r0"]
    found = await store.get_run(WORKSPACE, "r0")
    assert found is not None
    assert found.started_at is not None
    assert to_micros(found.started_at) >= now
    assert (await claim(store, "w1", known=["r0"])).runs == []

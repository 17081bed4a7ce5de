"""Signals, events, children and parked runs: whoever comes second finds the first."""

from __future__ import annotations

from stepwell.kernel.changes import (
    EmitEvent,
    EndRun,
    Held,
    ParkRun,
    RestRun,
    ResumeRun,
    SendSignal,
)
from stepwell.kernel.clock import SECOND
from stepwell.store import Store
from stepwell.testing.conformance.check import check
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
async def a_signal_with_a_key_that_was_sent_is_not_sent_again(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    await commit(store, start(store, "r2", due_at=store.clock.now() + SECOND))
    first, again = signal(store, "r1", "1", "s1", "k"), signal(store, "r1", "2", "s2", "k")
    assert await commit(store, first, again) == [True, True]
    later, other = signal(store, "r1", "3", "s3", "k"), signal(store, "r1", "4", "s4", "l")
    elsewhere = signal(store, "r2", "5", "s5", "k")
    assert await commit(store, later, other, elsewhere) == [True, True, True]
    await commit(store, *[wait(store, held, key, seq=n) for n, key in enumerate("abc")])
    await commit(store, ParkRun(held, ["a", "b", "c"]))
    run, held = await claim_one(store, "w1")
    assert {row.key: row.result for row in run.waits} == {"a": "1", "b": "4", "c": None}
    await commit(store, EndRun(held, "completed", "1", None, store.clock.now()))
    # Whoever asks again what became of it hears that; what is new comes too late.
    again, new = signal(store, "r1", "6", "s6", "k"), signal(store, "r1", "7", "s7", "m")
    assert await commit(store, again, new) == [True, False]


@check
async def a_signal_that_is_given_back_goes_to_a_wait_that_is_open_already(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    await commit(store, wait(store, held, "a"), wait(store, held, "b", seq=2))
    await commit(store, signal(store, "r1", "7"))
    await commit(
        store, record(store, held, "a", output=None, kind="event", status="skipped", settles=True)
    )
    await commit(store, ParkRun(held, ["b"]))
    run, _ = await claim_one(store, "w1")
    assert [(row.key, row.result) for row in run.waits] == [("b", "7")]


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
async def a_signal_from_before_a_wait_ends_it_when_it_begins(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"), start(store, "r2"))
    buffered, given_back = [
        Held(run.id, "w1", run.fence) for run in (await claim(store, "w1")).runs
    ]
    now = store.clock.now()
    await commit(store, wait(store, given_back, "b", seq=2), wait(store, given_back, "a"))
    for held in (buffered, given_back):
        early = SendSignal(f"to {held.run_id}", WORKSPACE, held.run_id, "mail", "7", now - SECOND)
        await commit(store, early)
    given_up = record(store, given_back, "a", None, kind="event", status="skipped", settles=True)
    await commit(store, wait(store, buffered, "b"), given_up)
    await commit(store, ParkRun(buffered, ["b"]), ParkRun(given_back, ["b"]))
    runs = (await claim(store, "w1")).runs
    assert [[(row.key, row.result, row.ended_at) for row in run.waits] for run in runs] == [
        [("b", "7", now)]
    ] * 2


@check
async def waits_of_one_batch_share_what_is_buffered(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    many = [signal(store, "r1", f'{{"n": {n}}}', f"s{n:04}") for n in range(700)]
    await commit(store, *many)
    await commit(
        store,
        wait(store, held, "first"),
        wait(store, held, "last", match='{"n": 699}'),
        wait(store, held, "none", match='{"n": 700}'),
        wait(store, held, "third", match='{"n": 2}'),
        wait(store, held, "second"),
        wait(store, held, "other", event="post", kind="event"),
        wait(store, held, "fourth"),
        ParkRun(held, ["first", "last", "none", "second", "third", "other", "fourth"]),
    )
    run, _ = await claim_one(store, "w1")
    assert {row.key: row.result for row in run.waits} == {
        "first": '{"n": 0}',
        "second": '{"n": 1}',
        "third": '{"n": 2}',
        "fourth": '{"n": 3}',
        "last": '{"n": 699}',
        "none": None,
        "other": None,
    }


@check
async def a_wait_sent_twice_takes_one_signal(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    await commit(store, signal(store, "r1", "1", "s1"), signal(store, "r1", "2", "s2"))
    await commit(store, wait(store, held, "a"), wait(store, held, "a"))
    await commit(store, wait(store, held, "a"))
    await commit(store, wait(store, held, "b"), ParkRun(held, ["a", "b"]))
    run, _ = await claim_one(store, "w1")
    assert {row.key: row.result for row in run.waits} == {"a": "1", "b": "2"}


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
async def a_wait_may_look_back_for_the_first_event_it_matches(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    now = store.clock.now()
    for number, age in enumerate((60, 20, 10)):
        payload = f'{{"n": {number}}}'
        await commit(store, EmitEvent(f"e{number}", WORKSPACE, "mail", payload, now - age * SECOND))
    await commit(
        store,
        wait(store, held, "recent", since=now - 30 * SECOND),
        wait(store, held, "matching", since=0, match='{"n": 2}', term='["n"]=2'),
        wait(store, held, "too old", since=now - 30 * SECOND, match='{"n": 0}', term='["n"]=0'),
        wait(store, held, "blind"),
        wait(store, held, "other", event="post", kind="event", since=0),
        ParkRun(held, ["recent", "matching", "too old", "blind", "other"]),
    )
    run, _ = await claim_one(store, "w1")
    assert {row.key: row.result for row in run.waits} == {
        "recent": '{"n": 1}',
        "matching": '{"n": 2}',
        "too old": None,
        "blind": None,
        "other": None,
    }


@check
async def a_child_is_kept_while_its_parent_lives(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "p1"))
    _, parent = await claim_one(store, "w1")
    await commit(store, start(store, "c1", parent_run_id="p1", held=parent))
    _, child = await claim_one(store, "w1")
    now = store.clock.now()
    late = now + 10**9 * SECOND
    await commit(store, EndRun(child, "completed", "1", None, now))
    assert await store.prune(late, 10, 100) == 0
    await commit(store, EndRun(parent, "completed", "1", None, now))
    assert await store.prune(late, 10, 100) == 2


@check
async def a_wait_for_a_child_that_is_gone_ends_at_once(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "p1"))
    _, parent = await claim_one(store, "w1")
    await commit(
        store,
        wait(store, parent, "child", kind="child", child_run_id="gone"),
        ParkRun(parent, ["child"]),
    )
    run, _ = await claim_one(store, "w1")
    assert [row.result for row in run.waits] == ['["missing",null,null]']


async def _due_at(store: Store, run_id: str) -> int | None:
    facts = await store.facts(WORKSPACE, run_id)
    assert facts is not None
    return facts.due_at


@check
async def a_parked_run_is_looked_at_in_time_unless_it_is_known_to_rest(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    later = store.clock.now() + 40 * SECOND
    await commit(store, wait(store, held, "mail"), ParkRun(held, ["mail"], later))
    assert await _due_at(store, "r1") == later
    await commit(store, RestRun(held, ["mail"]))
    assert await _due_at(store, "r1") is None
    await commit(store, signal(store, "r1", '"now"'))
    run, again = await claim_one(store, "w1")
    assert run.waits[0].result == '"now"'
    # Held again: what is said of it as a parked run comes too late.
    await commit(store, RestRun(held, ["mail"]))
    assert await _due_at(store, "r1") is None
    assert await store.lost([("r1", "w1", again.fence)]) == []


@check
async def a_run_whose_wait_ends_first_is_due_when_it_rests(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    now = store.clock.now()
    nap = wait(store, held, "nap", kind="sleep", due_at=now + 5 * SECOND)
    await commit(store, nap, ParkRun(held, ["nap"], now + 40 * SECOND))
    assert await _due_at(store, "r1") == now + 5 * SECOND
    await commit(store, RestRun(held, ["nap"]))
    assert await _due_at(store, "r1") == now + 5 * SECOND

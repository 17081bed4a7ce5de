"""How runs are started, claimed, recorded, ended and deleted."""

from __future__ import annotations

from stepwell.errors import RunNotFound
from stepwell.kernel.changes import (
    FENCED,
    CancelRun,
    EmitEvent,
    EndRun,
    Held,
    LogAttempt,
    ParkRun,
    ReleaseRun,
    SendSignal,
    WatchWaits,
)
from stepwell.kernel.clock import SECOND
from stepwell.store import RunFilter, Store
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
async def a_start_sent_twice_makes_one_run(store: Store) -> None:
    change = start(store, "r1", idempotency_key="k")
    assert await commit(store, change) == [("r1", True)]
    assert await commit(store, change) == [("r1", True)]
    again, other = start(store, "r2", idempotency_key="k"), start(store, "r3")
    assert await commit(store, again, other) == [("r1", False), ("r3", True)]
    assert await store.get_run(WORKSPACE, "r2") is None


@check
async def an_outline_tells_what_a_run_is_of_and_how_it_stands(store: Store) -> None:
    await enlist(store, "w1")
    first, second = start(store, "r1"), start(store, "r2", trigger='{"type": "manual"}')
    await commit(store, first, second)
    claimed = await claim(store, "w1", limit=1)
    assert claimed.runs[0].due_at == first.due_at
    ended = EndRun(Held("r1", "w1", 1), "completed", "1", None, store.clock.now())
    await commit(store, ended)
    found = {run.id: run for run in await store.outlines(["r1", "r2", "r3"])}
    one, other = found["r1"], found["r2"]
    assert found.keys() == {"r1", "r2"}
    assert (one.definition, one.version, one.created_at) == (
        first.definition, first.version, first.created_at,
    )  # fmt: skip
    assert (one.status, one.completed_at, one.trigger) == ("completed", ended.completed_at, None)
    assert (other.status, other.completed_at) == ("pending", None)
    assert other.trigger == second.trigger


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
            CancelRun("r1", WORKSPACE, now, held=wrong),
        )
        assert outcomes == [FENCED] * 9
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
async def a_released_run_is_for_who_has_the_program_that_it_needs(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"), start(store, "r2"))
    first, second = [Held(run.id, "w1", run.fence) for run in (await claim(store, "w1")).runs]
    await commit(store, ReleaseRun(first, "code:other@1"), ReleaseRun(second))
    (left,) = (await claim(store, "w1")).runs
    assert left.id == second.run_id
    known = [left.id]
    (moved,) = (await claim(store, "w1", programs=["code:other@1"], known=known)).runs
    assert (moved.id, moved.program, moved.fence) == (first.run_id, "code:other@1", 2)


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
async def pruning_deletes_what_ended_long_enough_ago(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"), start(store, "r2"))
    first, _ = (Held(run.id, "w1", run.fence) for run in (await claim(store, "w1")).runs)
    now = store.clock.now()
    await commit(store, record(store, first, "a"), EndRun(first, "completed", "1", None, now))
    assert await store.prune(now + 59 * SECOND, 10, 100) == 0
    assert await store.prune(now + 10**9 * SECOND, 10, 100) == 1
    assert await store.get_run(WORKSPACE, "r1") is None
    assert await store.steps("r1") == []
    assert await store.get_run(WORKSPACE, "r2") is not None


@check
async def pruning_goes_by_rows_as_well_as_by_runs(store: Store) -> None:
    await enlist(store, "w1")
    for number, steps in enumerate((20, 20, 90, 1, 1, 1)):
        await commit(store, start(store, f"r{number}"))
        _, held = await claim_one(store, "w1")
        await commit(store, *(record(store, held, f"step {n}") for n in range(steps)))
        ended_at = store.clock.now() + number
        await commit(store, EndRun(held, "completed", "1", None, ended_at))
    late = store.clock.now() + 10**9 * SECOND
    assert [await store.prune(late, 2, 60) for _ in range(5)] == [2, 1, 2, 1, 0]
    assert (await store.list_runs(RunFilter(WORKSPACE))).runs == []


@check
async def unclaimed_runs_are_counted(store: Store) -> None:
    now = store.clock.now()
    await commit(store, start(store, "r1"), start(store, "r2"))
    assert await store.unclaimed(WORKSPACE, now - 1) == (0, None)
    assert await store.unclaimed(WORKSPACE, now) == (2, "r1")


@check
async def a_child_is_started_only_by_whoever_holds_its_parent(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    for number, wrong in enumerate((Held("r1", "w2", held.fence), Held("r1", "w1", 7))):
        child = start(store, f"stray{number}", parent_run_id="r1", held=wrong)
        beside = start(store, f"beside{number}")
        assert await commit(store, child, beside) == [FENCED, (beside.id, True)]
        assert await store.get_run(WORKSPACE, child.id) is None
    child = start(store, "c1", parent_run_id="r1", held=held)
    assert await commit(store, child) == [("c1", True)]
    found = await store.get_run(WORKSPACE, "c1")
    assert found is not None
    assert found.parent_run_id == "r1"


@check
async def a_cancellation_sent_again_knows_its_own_work(store: Store) -> None:
    await commit(store, start(store, "r1"))
    now = store.clock.now()
    assert await commit(store, CancelRun("r1", WORKSPACE, now)) == [True]
    assert await commit(store, CancelRun("r1", WORKSPACE, now, resent=True)) == [True]
    assert await commit(store, CancelRun("r1", WORKSPACE, now + 1, resent=True)) == [False]


@check
async def runs_that_are_gone_count_as_ended(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"), start(store, "r2"))
    first, _ = (Held(run.id, "w1", run.fence) for run in (await claim(store, "w1")).runs)
    await commit(store, EndRun(first, "completed", "1", None, store.clock.now()))
    assert sorted(await store.ended(["r1", "r2", "never"])) == ["never", "r1"]
    await store.prune(store.clock.now() + 10**9 * SECOND, 10, 100)
    assert await store.ended(["r1", "r2"]) == ["r1"]


@check
async def a_fork_begins_with_the_journal_up_to_a_step(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    error = '{"type":"ValueError","message":"","step":"c"}'
    await commit(
        store,
        record(store, held, "a", '"A"', seq=1, position=1 << 20),
        record(store, held, "late", '"L"', seq=3, position=2 << 20),
        record(store, held, "b", '"B"', seq=2, position=3 << 20),
        record(store, held, "c", None, seq=4, position=4 << 20, status="failed", error=error),
        EndRun(held, "failed", None, error, store.clock.now()),
    )
    await commit(
        store,
        start(store, "fork", forked_from="r1", fork_from_step="late"),
        start(store, "retry", forked_from="r1", fork_from_step="c", fork_for_retry=True),
    )
    journals = {run.id: run.journal for run in (await claim(store, "w1")).runs}
    assert {
        run_id: sorted((row.key, row.output) for row in journal)
        for run_id, journal in journals.items()
    } == {
        "fork": [("a", '"A"'), ("b", '"B"')],
        "retry": [("a", '"A"'), ("b", '"B"'), ("late", '"L"')],
    }
    assert len(await store.steps("r1")) == 4


@check
async def a_run_that_was_pruned_meanwhile_cannot_be_forked(store: Store) -> None:
    for options in ({"fork_from_step": "a"}, {"fork_for_retry": True}):
        try:
            await commit(store, start(store, "fork", forked_from="pruned", **options))
        except RunNotFound:
            pass
        else:
            raise AssertionError("a fork without the journal of its origin")
    assert await store.get_run(WORKSPACE, "fork") is None


@check
async def events_of_the_workspace_are_pruned_by_age_and_signals_are_not(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    now = store.clock.now()
    old = [EmitEvent(f"e{n}", WORKSPACE, "mail", "1", now - 60 * SECOND) for n in range(3)]
    young = EmitEvent("e9", WORKSPACE, "mail", "9", now - 10 * SECOND)
    early = SendSignal("s1", WORKSPACE, "r1", "post", '"kept"', now - 60 * SECOND)
    await commit(store, *old, young, early)
    assert [await store.prune_events(now - 30 * SECOND, 2) for _ in range(3)] == [2, 1, 0]
    await commit(
        store,
        wait(store, held, "event", since=0),
        wait(store, held, "signal", kind="event", event="post"),
        ParkRun(held, ["event", "signal"]),
    )
    run, _ = await claim_one(store, "w1")
    assert {row.key: row.result for row in run.waits} == {"event": "9", "signal": '"kept"'}

"""Leases, sweeps and lost acknowledgements: what becomes of runs in trouble."""

from __future__ import annotations

from typing import Any

from stepwell.kernel.changes import (
    FENCED,
    Claimed,
    ClaimRuns,
    EndRun,
    Held,
    WatchWaits,
)
from stepwell.kernel.clock import SECOND
from stepwell.kernel.crashes import CRASH_LIMIT, SUSPECT
from stepwell.store import Store
from stepwell.testing.clock import FakeClock
from stepwell.testing.conformance.check import check
from stepwell.testing.samples import (
    PROGRAM,
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
async def one_worker_at_a_time_has_a_duty(store: Store) -> None:
    assert await store.take_duty("prune", "w1", 60)
    assert await store.take_duty("prune", "w1", 60)
    assert not await store.take_duty("prune", "w2", 60)
    assert await store.take_duty("other", "w2", 0)
    assert await store.take_duty("other", "w1", 60)


def _advance(store: Store, seconds: float) -> None:
    assert isinstance(store.clock, FakeClock)
    store.clock.advance(seconds)


async def _sweep(store: Store, worker_id: str, **options: Any) -> Claimed:
    """What a worker gets after a sweep, which may itself bring what it sets free, or not."""
    swept = await claim(store, worker_id, sweep=True, **options)
    return swept if swept.runs else await claim(store, worker_id, **options)


@check
async def a_run_that_takes_its_workers_down_without_progress_fails(store: Store) -> None:
    await enlist(store, "w0")
    await commit(store, start(store, "r1"))
    for crashes in range(CRASH_LIMIT):
        claimed = await _sweep(store, f"w{crashes}")
        assert [(run.id, run.attempt) for run in claimed.runs] == [("r1", crashes + 1)]
        held = Held("r1", f"w{crashes}", claimed.runs[0].fence)
        beside = record(store, held, "beside", None, status="running", seq=2)
        await commit(store, record(store, held, "deadly", None, status="running"), beside)
        await store.retire([f"w{crashes}"])
        await enlist(store, f"w{crashes + 1}")
    assert (await _sweep(store, f"w{CRASH_LIMIT}")).runs == []
    found = await store.get_run(WORKSPACE, "r1")
    assert found is not None
    assert found.error is not None
    assert (found.status, found.error.type, found.error.step) == ("failed", "crash_loop", "deadly")
    deadly, beside_it = await store.steps("r1")
    assert (deadly.status, deadly.error, deadly.completed_at is not None) == (
        "failed", found.error, True,
    )  # fmt: skip
    assert beside_it.status == "skipped"


@check
async def suspects_are_taken_up_one_at_a_time_however_late(store: Store) -> None:
    await enlist(store, "w0")
    await enlist(store, "watching", lease_seconds=10_000)
    await commit(store, *(start(store, f"r{n}") for n in range(3)))
    taken = []
    for crashes in range(SUSPECT + 1):
        claimed = await claim(store, f"w{crashes}")
        taken.append(len(claimed.runs))
        await store.retire([f"w{crashes}"])
        await claim(store, "watching", limit=0, sweep=True)
        _advance(store, 60)  # whoever was set apart is due by now
        await enlist(store, f"w{crashes + 1}")
    assert taken == [3, 3, 3, 1]
    soon = store.clock.now() + SECOND
    await commit(store, start(store, "other", due_at=soon))
    claimed = await claim(store, f"w{SUSPECT + 1}")
    assert len(claimed.runs) == 1
    assert claimed.next_at == soon  # nobody else waits because of them
    facts = [await store.facts(WORKSPACE, f"r{n}") for n in range(3)]
    assert [found.status for found in facts if found is not None] == ["running"] * 3


@check
async def suspects_are_called_up_together_except_those_that_were_blamed(store: Store) -> None:
    await enlist(store, "w0")
    await enlist(store, "watching", lease_seconds=10_000)
    await commit(store, *(start(store, f"r{n}") for n in range(6)))
    for crashes in range(SUSPECT):
        await claim(store, f"w{crashes}")
        await store.retire([f"w{crashes}"])
        await claim(store, "watching", limit=0, sweep=True)
        await enlist(store, f"w{crashes + 1}")
    taken = []
    for called in (0, 0, 2, 0):
        taken.append(await claim(store, f"w{SUSPECT}", suspects=called))
        _advance(store, 1)  # too little for any to be due by itself
    assert [len(claimed.runs) for claimed in taken] == [1, 0, 2, 0]
    await store.retire([f"w{SUSPECT}"])
    await claim(store, "watching", limit=0, sweep=True)
    await enlist(store, "last")
    # The two that were taken last were blamed; each of them is now taken alone.
    left = [len((await claim(store, "last", suspects=10)).runs) for _ in range(3)]
    assert left == [4, 1, 1]


@check
async def news_that_a_lost_acknowledgement_hid_is_told_again(store: Store) -> None:
    await enlist(store, "w1")
    await commit(store, start(store, "r1"))
    _, held = await claim_one(store, "w1")
    await commit(store, wait(store, held, "mail"), WatchWaits(held, ["mail"]))
    await commit(store, signal(store, "r1", '"now"'))
    first = await claim(store, "w1", known=["r1"])
    again = await claim(store, "w1", known=["r1"], resent=True)
    for claimed in (first, again):
        assert [(run.id, run.nudge, run.waits[0].result) for run in claimed.runs] == [
            ("r1", True, '"now"')
        ]


@check
async def progress_between_crashes_keeps_a_run_alive(store: Store) -> None:
    await enlist(store, "w0")
    await commit(store, start(store, "r1"))
    for crashes in range(CRASH_LIMIT + 2):
        claimed = await _sweep(store, f"w{crashes}")
        assert [run.attempt for run in claimed.runs] == [crashes + 1]
        held = Held("r1", f"w{crashes}", claimed.runs[0].fence)
        await commit(store, record(store, held, f"s{crashes}"))
        await store.retire([f"w{crashes}"])
        await enlist(store, f"w{crashes + 1}")


@check
async def all_runs_of_a_dead_worker_are_taken_over_however_many(store: Store) -> None:
    many = 1200
    await enlist(store, "w1")
    for first in range(0, many, 400):
        await commit(store, *(start(store, f"r{n:04}") for n in range(first, first + 400)))
    assert len((await claim(store, "w1", limit=many)).runs) == many
    await store.retire(["w1"])
    await enlist(store, "w2")
    taken: dict[str, int] = {}
    unswept = True
    while unswept:
        claimed = await _sweep(store, "w2", limit=many, known=list(taken))
        taken |= {run.id: run.attempt for run in claimed.runs}
        unswept = claimed.unswept
    assert len(taken) == many
    assert set(taken.values()) == {2}
    assert [process[0] for process in await store.worker_processes()] == ["w2"]


@check
async def runs_end_at_their_deadline_or_when_nobody_took_them_in_time(store: Store) -> None:
    await enlist(store, "w1")
    now = store.clock.now()
    soon = now + 5 * SECOND
    await commit(store, start(store, "late", deadline_at=soon), start(store, "taken", ttl_at=soon))
    late, _ = (Held(run.id, "w1", run.fence) for run in (await claim(store, "w1")).runs)
    await commit(
        store,
        start(store, "stale", ttl_at=soon, due_at=now + 60 * SECOND),
        start(store, "overdue", deadline_at=soon, due_at=now + 60 * SECOND),
    )
    known = ["late", "taken"]
    early = ClaimRuns(WORKSPACE, "w1", [PROGRAM], 10, soon - 1, sweep=True, known=known)
    assert (await store.commit([early])).ended == []
    ask = ClaimRuns(WORKSPACE, "w1", [PROGRAM], 10, soon, sweep=True, known=known)
    done = await store.commit([ask])
    assert sorted(done.ended) == ["late", "overdue", "stale"]
    assert ("late", "w1") in done.stopped
    assert await commit(store, EndRun(late, "completed", "1", None, soon)) == [FENCED]
    ends = {}
    for run_id in ("late", "taken", "stale", "overdue"):
        found = await store.get_run(WORKSPACE, run_id)
        assert found is not None
        ends[run_id] = (found.status, found.error and found.error.type)
    assert ends == {
        "late": ("timed_out", "deadline_exceeded"),
        "taken": ("running", None),
        "stale": ("timed_out", "ttl_expired"),
        "overdue": ("timed_out", "deadline_exceeded"),
    }


@check
async def a_worker_that_is_alive_gives_its_runs_up_without_a_crash(store: Store) -> None:
    await commit(store, start(store, "r1"))
    for number in range(CRASH_LIMIT + 1):
        worker_id = await enlist(store, f"w{number}")
        run, _ = await claim_one(store, worker_id, sweep=True)
        assert run.attempt == 1
        await store.retire([worker_id], alive=True)

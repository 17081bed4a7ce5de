"""How runs are listed: by when they were made, how they ended, and what their inputs say."""

from __future__ import annotations

from typing import Any

from stepwell.kernel.changes import CancelRun
from stepwell.kernel.clock import SECOND
from stepwell.kernel.codec import encode
from stepwell.kernel.ids import Ids
from stepwell.store import RunFilter, Store
from stepwell.testing.clock import FakeClock
from stepwell.testing.conformance.check import check
from stepwell.testing.samples import WORKSPACE, commit, enlist, start


@check
async def a_list_since_some_time_has_all_runs_created_since(store: Store) -> None:
    now = store.clock.now()
    ids = Ids(FakeClock(now))
    made = [start(store, ids.new(), created_at=now + n * SECOND // 2) for n in range(-3, 4)]
    await commit(store, *made)
    for since in (0, now - SECOND, now, now + 1, now + 9 * SECOND):
        found = await store.list_runs(RunFilter(WORKSPACE, since=since))
        assert [run.id for run in found.runs] == [c.id for c in made[::-1] if c.created_at >= since]


@check
async def runs_are_found_by_what_their_inputs_say(store: Store) -> None:
    inputs: dict[str, Any] = {
        "r1": {"user": {"id": 7, "name": "Ada"}, "tags": ["a", "b"]},
        "r2": {"user": {"id": 7.0}, **{f"field{n}": n for n in range(40)}},
        "r3": {"user": {"id": "7"}},
        "r4": {"user": {"id": True}, "text": "x" * 5_000},
        "r5": 7,
        "r6": {"user": None},
    }
    made = [start(store, run_id, input=encode(each, "It")) for run_id, each in inputs.items()]
    await commit(store, *made, start(store, "r7", input=made[0].input, workspace_id="other"))
    # Sent again, and by whoever had the same key first.
    await commit(store, made[0], start(store, "r8", idempotency_key="k", input='{"n": 1}'))
    await commit(store, start(store, "r9", idempotency_key="k", input='{"n": 2}'))
    expected: list[tuple[dict[str, Any], list[str]]] = [
        ({"user": {"id": 7}}, ["r2", "r1"]),
        ({"user": {"id": 7, "name": "Ada"}}, ["r1"]),
        ({"user": {"id": "7"}}, ["r3"]),
        ({"user": {"id": True}}, ["r4"]),
        ({"text": "x" * 5_000}, ["r4"]),
        ({"text": "x" * 4_999}, []),
        ({"field39": 39}, ["r2"]),
        ({"field39": 39, "user": {"id": 7}}, ["r2"]),
        ({"tags": ["b"]}, ["r1"]),
        ({"user": None}, ["r6"]),
        ({"user": {}}, ["r4", "r3", "r2", "r1"]),
        ({"n": 1}, ["r8"]),
        ({"n": 2}, []),
        ({}, ["r8", "r6", "r4", "r3", "r2", "r1"]),
    ]
    for match, ids in expected:
        found = await store.list_runs(RunFilter(WORKSPACE, input=match))
        assert [run.id for run in found.runs] == ids, match
        assert found.after is None
    late = store.clock.now() + 10**9 * SECOND
    await commit(store, *(CancelRun(run_id, WORKSPACE, store.clock.now()) for run_id in inputs))
    assert await store.prune(late, 100, 10_000) == len(inputs)
    assert (await store.list_runs(RunFilter(WORKSPACE, input={"user": {"id": 7}}))).runs == []


@check
async def a_list_goes_on_where_its_page_ended(store: Store) -> None:
    await enlist(store, "w1")
    numbers = range(12)
    await commit(
        store, *(start(store, f"r{n:02}", input=f'{{"odd": {n % 2}, "n": {n}}}') for n in numbers)
    )
    for which in (3, 4, 5):
        await commit(store, CancelRun(f"r{which:02}", WORKSPACE, store.clock.now()))
    for fields, wanted in (
        ({}, [*numbers]),
        ({"input": {"odd": 1}}, [1, 3, 5, 7, 9, 11]),
        ({"status": ["pending", "cancelled"]}, [*numbers]),
        ({"status": ["cancelled"]}, [3, 4, 5]),
        ({"status": ["cancelled", "completed"]}, [3, 4, 5]),
        ({"status": ["cancelled"], "input": {"odd": 1}}, [3, 5]),
        ({"definition": "work", "status": ["cancelled"]}, [3, 4, 5]),
        ({"definition": "other", "status": ["cancelled"]}, []),
        ({"definition": "other", "input": {"odd": 1}}, []),
        ({"status": []}, []),
    ):
        for limit in (1, 2, 5, 12, 100):
            seen: list[str] = []
            before_id: str | None = None
            while True:
                where = RunFilter(WORKSPACE, limit=limit, before_id=before_id, **fields)
                found = await store.list_runs(where)
                assert len(found.runs) <= limit
                seen += [run.id for run in found.runs]
                if (before_id := found.after) is None:
                    break
                assert len(found.runs) == limit
            assert seen == [f"r{n:02}" for n in reversed(wanted)], (fields, limit)
    assert await store.count_runs(WORKSPACE) == {"work": {"pending": 9, "cancelled": 3}}

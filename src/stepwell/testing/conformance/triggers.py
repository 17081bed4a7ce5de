"""Triggers, the events that wait for them, what they refuse, and buckets."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from stepwell.errors import Overtaken
from stepwell.kernel.changes import EmitEvent, Held
from stepwell.kernel.clock import SECOND
from stepwell.kernel.records import Firing, RefusalRecord, TriggerRecord
from stepwell.store import Store
from stepwell.testing.conformance.check import check
from stepwell.testing.samples import WORKSPACE, claim, commit, enlist, start


def trigger(store: Store, name: str, **fields: Any) -> TriggerRecord:
    now = store.clock.now()
    return TriggerRecord(
        id=name, definition="d", name=name, type="event", origin="hand", serial=1, enabled=True,
        config={"some": ["thing"]}, timezone="UTC", created_at=now, updated_at=now, since=now,
        **fields,
    )  # fmt: skip


def event(store: Store, event_id: str, type: str = "news") -> EmitEvent:
    return EmitEvent(
        id=event_id, workspace_id=WORKSPACE, type=type, key=None, payload="{}",
        created_at=store.clock.now(),
    )  # fmt: skip


async def refused(store: Store, put: TriggerRecord) -> bool:
    try:
        await store.triggers.put(WORKSPACE, put)
    except Overtaken:
        return True
    return False


@check
async def a_trigger_comes_back_as_it_was_written(store: Store) -> None:
    made = trigger(store, "a", path="here", next_at=store.clock.now() + SECOND, paused="why")
    assert (await store.triggers.put(WORKSPACE, made)).firing
    found = await store.triggers.trigger(WORKSPACE, "a")
    assert found is not None
    assert replace(found, place=None) == made
    assert await store.triggers.trigger_at(WORKSPACE, "here") == found
    assert await store.triggers.triggers(WORKSPACE, "d") == [found]
    assert await store.triggers.triggers("another") == []
    assert await store.triggers.delete(WORKSPACE, "a")
    assert not await store.triggers.delete(WORKSPACE, "a")


@check
async def of_two_changes_of_a_trigger_the_first_wins(store: Store) -> None:
    made = trigger(store, "a", path="here")
    await store.triggers.put(WORKSPACE, made)
    assert not await refused(store, replace(made, serial=2, enabled=False))
    assert await refused(store, replace(made, serial=2, timezone="Asia/Tokyo"))
    assert await refused(store, made), "one of that name is there"
    assert await refused(store, trigger(store, "b", path="here")), "the path is taken"


@check
async def schedules_are_due_in_order_of_time(store: Store) -> None:
    now = store.clock.now()
    for name, at in (("c", now), ("a", now), ("b", now - 1), ("later", now + 5), ("never", None)):
        await store.triggers.put(WORKSPACE, trigger(store, name, next_at=at))
    due = await store.triggers.due(WORKSPACE, now, 10)
    assert [each.id for each in due] == ["b", "a", "c"]
    assert [each.id for each in await store.triggers.due(WORKSPACE, now, 1, due[0])] == ["a"]
    assert await store.triggers.due(WORKSPACE, now, 10, due[2]) == []
    assert await store.triggers.next_at(WORKSPACE, now) == now + 5
    assert await store.triggers.next_at("another", now) is None


@check
async def of_those_who_fire_a_tick_one_starts_its_run(store: Store) -> None:
    now = store.clock.now()
    was = trigger(store, "a", next_at=now)
    await store.triggers.put(WORKSPACE, was)
    after = replace(was, next_at=now + 60, last_fired_at=now)

    async def fire(run_id: str) -> bool:
        firing = Firing(replace(after, last_run_id=run_id), was)
        try:
            await store.triggers.fire(WORKSPACE, [firing], [start(store, run_id)])
        except Overtaken:
            return False
        return True

    fired = await asyncio.gather(*(fire(f"r{n}") for n in range(5)))
    assert sum(fired) == 1
    found = await store.triggers.trigger(WORKSPACE, "a")
    assert found is not None
    assert found.last_run_id == f"r{fired.index(True)}"
    started = [await store.get_run(WORKSPACE, f"r{n}") is not None for n in range(5)]
    assert started == fired


@check
async def a_trigger_names_the_run_that_its_key_belongs_to(store: Store) -> None:
    was = trigger(store, "a")
    await store.triggers.put(WORKSPACE, was)
    await commit(store, start(store, "first", idempotency_key="k"))
    firing = Firing(replace(was, last_run_id="second"), was)
    again = start(store, "second", idempotency_key="k")
    done = await store.triggers.fire(WORKSPACE, [firing], [again])
    assert done.outcomes == [("first", False)]
    found = await store.triggers.trigger(WORKSPACE, "a")
    assert found is not None
    assert found.last_run_id == "first"


@check
async def an_event_is_pending_for_those_that_listened_when_it_came(store: Store) -> None:
    await commit(store, event(store, "e0"))
    assert await store.triggers.pending_events(WORKSPACE, 10) == []
    for name in ("old", "off"):
        await store.triggers.put(WORKSPACE, trigger(store, name, event="news"))
    await commit(store, event(store, "e1"), event(store, "e2", "olds"))
    await store.triggers.put(WORKSPACE, trigger(store, "new", event="news"))
    old = await store.triggers.trigger(WORKSPACE, "old")
    assert old is not None
    await store.triggers.put(WORKSPACE, replace(old, serial=2, config={}))
    await commit(store, event(store, "e3"))
    places = {each.id: place for place, each in await store.triggers.pending_events(WORKSPACE, 10)}
    assert list(places) == ["e1", "e3"], "in the order in which they came"
    listening = await store.triggers.listening(WORKSPACE, ["news"])
    found = {each.id: each.place or 0 for each in listening}
    assert found.keys() == {"old", "off", "new"}
    assert found["old"] == old.place, "what is changed goes on listening"
    assert found["old"] < places["e1"] < found["new"] < places["e3"]
    await store.triggers.fire(WORKSPACE, [], [], [], ["e1", "e3"])
    assert await store.triggers.pending_events(WORKSPACE, 10) == []
    off = await store.triggers.trigger(WORKSPACE, "off")
    assert off is not None
    await store.triggers.put(WORKSPACE, replace(off, serial=2, place=None))
    await commit(store, event(store, "e4"))
    ((place, _),) = await store.triggers.pending_events(WORKSPACE, 10)
    places_now = [each.place for each in await store.triggers.listening(WORKSPACE, ["news"])]
    assert all(each is not None and each < place for each in places_now)


@check
async def an_event_keeps_the_trace_of_whoever_emitted_it(store: Store) -> None:
    await store.triggers.put(WORKSPACE, trigger(store, "a", event="news"))
    await commit(store, start(store, "r1"))
    await enlist(store, "w1")
    (run,) = (await claim(store, "w1")).runs
    events = [event(store, f"e{number}") for number in range(3)]
    events[1].traceparent = events[2].traceparent = "00-1-2-01"
    await commit(store, *events[:2])
    events[2].held = Held(run.id, "w1", run.fence)
    await commit(store, events[2])
    pending = [each for _, each in await store.triggers.pending_events(WORKSPACE, 10)]
    assert [each.traceparent for each in pending] == [None, "00-1-2-01", "00-1-2-01"]
    assert await store.triggers.events(WORKSPACE, None, None, 10) == pending[::-1]


@check
async def an_event_is_delivered_once(store: Store) -> None:
    await store.triggers.put(WORKSPACE, trigger(store, "a", event="news"))
    await commit(store, event(store, "e"))

    async def deliver(run_id: str) -> bool:
        try:
            await store.triggers.fire(WORKSPACE, [], [start(store, run_id)], [], ["e"])
        except Overtaken:
            return False
        return True

    delivered = await asyncio.gather(*(deliver(f"r{n}") for n in range(5)))
    assert sum(delivered) == 1
    started = [await store.get_run(WORKSPACE, f"r{n}") is not None for n in range(5)]
    assert started == delivered


@check
async def refusals_are_kept_and_forgotten(store: Store) -> None:
    now = store.clock.now()
    rows = [RefusalRecord(f"x{n}", f"t{n % 2}", "code", "why", now + n, n + 1) for n in range(4)]
    await store.triggers.refuse(WORKSPACE, rows)
    assert await store.triggers.refusals(WORKSPACE, "t1", 10) == [rows[3], rows[1]]
    assert await store.triggers.refusals(WORKSPACE, None, 2) == [rows[3], rows[2]]
    assert await store.triggers.prune_refusals(now + 2, 10) == 2
    assert await store.triggers.refusals(WORKSPACE, None, 10) == [rows[3], rows[2]]


@check
async def a_bucket_gives_no_more_than_it_has(store: Store) -> None:
    now = store.clock.now()
    taken = await asyncio.gather(
        *(store.triggers.take("b", 10, 60 * SECOND, now) for _ in range(30))
    )
    assert [each == 0 for each in taken].count(True) == 10
    assert {each for each in taken if each} == {6 * SECOND}
    later = now + 12 * SECOND
    taken = [await store.triggers.take("b", 10, 60 * SECOND, later) for _ in range(3)]
    assert [each == 0 for each in taken] == [True, True, False]
    assert await store.triggers.take("other", 1, SECOND, now) == 0

"""Debounces, limits of users and workspaces, and plans: exact, whoever starts."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from stepwell import Stepwell, workflow
from stepwell.app.premises import Premises
from stepwell.catalog import operations, store_for
from stepwell.engine.pruner import prune_once
from stepwell.errors import (
    InputTooLarge,
    InvalidDefinition,
    InvalidInput,
    StepwellError,
)
from stepwell.kernel.clock import SECOND, to_datetime
from stepwell.operation import Caller
from stepwell.settings import Settings
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.paced import graph, quick, waits
from tests.engine.support import flowing, until, until_code


async def test_a_debounced_run_has_the_last_input_and_begins_when_it_is_quiet(
    world: World, clock: FakeClock
) -> None:
    debounce = {"wait": "5s", "max": "12s"}
    async with world([quick]) as sw:
        first = await sw.start("quick", 0, debounce=debounce)
        assert first.created
        assert (await sw.explain(first.id)).code == "debounce"
        for n in range(1, 5):
            clock.advance("4s")
            again = await sw.start("quick", n, debounce=debounce)
            assert (again.id, again.created) == (first.id, False)
        # It is due 12 seconds after it came, however often more came; nobody has begun it yet.
        async with sw.worker(lease="1h"):
            assert await first.result() == 4
            other = await sw.start("quick", 5, debounce=debounce)
            assert other.created
            async with flowing(clock, "0.1s"):
                assert await other.result() == 5


async def test_a_repeated_start_that_a_debounced_run_took_over_is_found_though_refused(
    world: World,
) -> None:
    debounce = {"wait": "5s"}
    async with world([quick], settings=Settings(max_result_bytes=100)) as sw:
        first = await sw.start("quick", 0, debounce=debounce)
        await sw.start("quick", 1, debounce=debounce, idempotency_key="k")
        again = await sw.start("quick", "x" * 200, debounce=debounce, idempotency_key="k")
        assert (again.id, again.created) == (first.id, False)
        with pytest.raises(InputTooLarge):
            await sw.start("quick", "x" * 200, debounce=debounce, idempotency_key="other")


async def test_a_debounced_run_that_has_begun_takes_nothing_more(
    world: World, clock: FakeClock
) -> None:
    async with world([waits]) as sw, sw.worker(lease="1h"):
        first = await sw.start("waits", 1, debounce={"wait": "1s"})
        clock.advance("2s")
        await until(sw, first.id, "waiting")
        other = await sw.start("waits", 2, debounce={"wait": "1s"})
        assert other.id != first.id
        assert (await sw.get_run(first.id)).input == 1


async def test_a_start_that_a_debounced_run_stands_for_is_not_made_again(
    world: World, clock: FakeClock
) -> None:
    debounce = {"wait": "5s"}
    async with world([quick]) as sw:
        first, *others = [
            await sw.start("quick", n, debounce=debounce, idempotency_key=str(n)) for n in range(3)
        ]
        again = await sw.start("quick", 1, debounce=debounce, idempotency_key="1")
        assert {each.id for each in others} | {again.id} == {first.id}
        async with sw.worker(lease="1h"), flowing(clock, "0.1s"):
            assert await first.result() == 2, "what was sent again is not the last"
        for n in range(3):
            again = await sw.start("quick", n, debounce=debounce, idempotency_key=str(n))
            assert (again.id, again.created) == (first.id, False)
        assert (await sw.start("quick", 3, debounce=debounce, idempotency_key="3")).created


@pytest.mark.parametrize("at_work", [True, False])
async def test_a_start_that_a_debounced_run_stood_for_is_not_made_again_without_the_debounce(
    world: World, clock: FakeClock, at_work: bool
) -> None:
    async with world([quick]) as sw:
        debounce = {"wait": "5s"}
        first, *_ = [
            await sw.start("quick", n, debounce=debounce, idempotency_key=str(n)) for n in range(3)
        ]
        async with AsyncExitStack() as stack:
            if at_work:
                await stack.enter_async_context(sw.worker(lease="1h"))
                clock.advance("5s")
                await first.result()
            for n in range(3):
                again = await sw.start("quick", n, idempotency_key=str(n))
                assert (again.id, again.created) == (first.id, False)
            found = await sw.start_many(
                [{"definition": "quick", "idempotency_key": str(n)} for n in (1, 3, 2)]
            )
            assert [each.created for each in found] == [False, True, False]
            assert found[0].id == found[2].id == first.id


async def test_a_debounced_run_is_of_the_version_that_its_last_input_is_for(
    world: World, clock: FakeClock
) -> None:
    def of(field: str) -> dict[str, Any]:
        node = {"id": "a", "type": "transform", "config": {"value": f"@input.{field}"}}
        inputs = {"type": "object", "properties": {field: {}}, "required": [field]}
        policy = {"debounce": {"wait": "5s"}}
        return graph(nodes=[node], inputs=inputs, policy=policy, output="@a")

    async with world([]) as sw:
        await sw.definitions.publish(of("old"))
        first = await sw.start("paced", {"old": 1})
        await sw.definitions.publish(of("new"))
        assert (await sw.start("paced", {"new": 2})).id == first.id
        async with sw.worker(lease="1h"), flowing(clock, "0.1s"):
            assert await first.result() == 2


def keyed(**policy: Any) -> dict[str, Any]:
    wait = {"id": "a", "type": "wait_event", "config": {"event": "go"}}
    return {"name": "keyed", "nodes": [wait], "policy": {"debounce": {"wait": "5s"}, **policy}}


async def test_a_debounced_run_is_all_that_its_last_start_would_be(
    world: World, clock: FakeClock
) -> None:
    async with world([]) as sw:
        policy = {"concurrency": {"key": "@input.who", "limit": 1}, "timeout": "1h"}
        await sw.definitions.publish(keyed(**policy, priority=1))
        first = await sw.start("keyed", {"who": "ann"})
        clock.advance("1s")
        await sw.definitions.publish(keyed(**policy, priority=7, retention="2h"))
        last = await sw.start("keyed", {"who": "bob"})
        assert (last.id, last.created) == (first.id, False)
        found = await sw.get_run(first.id)
        assert (found.concurrency_key, found.priority) == ("keyed:bob", 7)
        assert (found.version, found.retention_seconds) == (2, 7200)
        assert found.deadline_at == to_datetime(clock.now() + 3600 * SECOND)


async def test_a_debounced_run_queues_for_the_key_of_its_last_input(
    world: World, clock: FakeClock
) -> None:
    @workflow
    async def waits(ctx: Any, input: Any) -> Any:
        return await ctx.wait_for_event("go")

    debounce = {"wait": "5s"}
    async with world([waits]) as sw, sw.worker(lease="1h"):
        ann, bob, other = [
            await sw.start("waits", who, concurrency_key=who) for who in ("ann", "bob", "other")
        ]
        for run in (ann, bob):
            await until(sw, run.id, "waiting")
        run = await sw.start("waits", 1, debounce=debounce, concurrency_key="ann")
        behind = await sw.start("waits", 2, concurrency_key="ann")
        async with flowing(clock, "0.1s"):
            await until_code(sw, run.id, "slot")
        await sw.start("waits", 3, debounce=debounce, concurrency_key="bob")
        await until_code(sw, run.id, "slot")
        assert "bob" in (await sw.explain(run.id)).details["limit"]
        await sw.cancel(ann.id)
        await until(sw, behind.id, "waiting")
        assert (await sw.get_run(run.id)).status == "pending"
        await sw.cancel(bob.id)
        assert (await until(sw, run.id, "waiting")).input == 3
        await sw.cancel(other.id)


async def test_time_in_the_queue_counts_from_when_a_run_may_begin(
    world: World, clock: FakeClock
) -> None:
    debounce = {"wait": "10m"}
    async with world([quick]) as sw:
        delayed = await sw.start("quick", 0, delay="10m", ttl="5m")
        run = await sw.start("quick", 1, debounce=debounce, ttl="5m")
        clock.advance("6m")
        await sw.start("quick", 2, debounce=debounce, ttl="5m")
        async with sw.worker(lease="1h"), flowing(clock, "1s"):
            assert await delayed.result() == 0
            assert await run.result() == 2
        late = await sw.start("quick", 3, debounce=debounce, ttl="5m")
        clock.advance("16m")
        async with sw.worker(lease="1h"):
            await until(sw, late.id, "timed_out")


async def test_a_run_whose_time_is_up_before_it_may_begin_is_refused(world: World) -> None:
    async with world([quick]) as sw:
        with pytest.raises(InvalidDefinition, match=r"policy\.timeout"):
            await sw.definitions.publish(keyed(timeout="5s"))
        with pytest.raises(InvalidInput, match="deadline"):
            await sw.start("quick", 1, deadline="5m", debounce={"wait": "10m"})


async def test_a_retry_of_a_debounced_run_begins_at_once(world: World, clock: FakeClock) -> None:
    async with world([]) as sw, sw.worker(lease="1h"):
        await sw.definitions.publish(keyed())
        first = await sw.start("keyed")
        await sw.cancel(first.id)
        await until(sw, (await sw.retry(first.id)).id, "waiting")


async def test_starts_that_a_debounced_run_stood_for_are_forgotten_with_it(
    world: World, clock: FakeClock
) -> None:
    debounce: dict[str, Any] = {"debounce": {"wait": "1s"}, "retention": "1h"}
    async with world([quick]) as sw:
        for key in "ab":
            run = await sw.start("quick", 1, idempotency_key=key, **debounce)
        async with sw.worker(lease="1h"), flowing(clock, "0.1s"):
            await run.result()
        clock.advance("2h")
        await prune_once(sw.store)
        assert (await sw.start("quick", 1, idempotency_key="b", **debounce)).created


@pytest.mark.parametrize("other", [{"delay": "1h"}, {"throttle": {"limit": 1, "per": "1s"}}])
async def test_a_debounce_is_alone_in_saying_when_a_run_begins(
    world: World, other: dict[str, Any]
) -> None:
    async with world([quick]) as sw:
        with pytest.raises(InvalidInput, match="throttle or a delay"):
            await sw.start("quick", 1, debounce={"wait": "5s"}, **other)


async def test_many_who_start_at_once_make_one_debounced_run(
    store_url: str, clock: FakeClock
) -> None:
    def process() -> Stepwell:
        return Stepwell(workflows=[quick], store=store_for(store_url, clock))

    async with process() as one, process() as two, process() as three:
        handles = await asyncio.gather(
            *(
                sw.start("quick", n, debounce={"wait": "5s", "key": str(n % 3)})
                for n in range(30)
                for sw in (one, two, three)
            )
        )
        assert len({handle.id for handle in handles}) == 3
        assert sum(handle.created for handle in handles) == 3


async def test_a_policy_limits_runs_for_each_value_of_its_key(
    world: World, clock: FakeClock
) -> None:
    wait = {"id": "a", "type": "wait_event", "config": {"event": "go"}}
    document = {
        "name": "keyed", "nodes": [wait],
        "policy": {"concurrency": {"key": "@input.who", "limit": 1}, "priority": 5, "ttl": "1h"},
    }  # fmt: skip
    async with world([]) as sw, sw.worker(lease="1h"):
        await sw.definitions.publish(document)
        a, b, other = [await sw.start("keyed", {"who": who}) for who in ("a", "a", "b")]
        for run in (a, other):
            await until(sw, run.id, "waiting")
        assert (await sw.explain(b.id)).code == "slot"
        found = await sw.get_run(b.id)
        assert (found.priority, found.concurrency_key) == (5, "keyed:a")


@pytest.mark.parametrize(
    ("settings", "limit"),
    [({"max_runs_per_user": 2}, "user"), ({"max_runs": 2}, "workspace")],
)
async def test_runs_of_a_user_and_of_all_are_limited(
    store_url: str, clock: FakeClock, settings: Any, limit: str
) -> None:
    def process() -> Stepwell:
        return Stepwell(
            workflows=[waits], store=store_for(store_url, clock), settings=Settings(**settings)
        )

    async with process() as sw, sw.worker(lease="1h"):
        runs = [await sw.start("waits", user="ann") for _ in range(4)]
        for run in runs[:2]:
            await until(sw, run.id, "waiting")
        await until_code(sw, runs[2].id, "slot")
        explained = await sw.explain(runs[2].id)
        assert explained.details["limit"].startswith(f"{limit}:")
        other = await sw.start("waits", user="bob")
        if limit == "user":
            await until(sw, other.id, "waiting")
        await sw.cancel(runs[0].id)
        await until(sw, runs[2].id, "waiting")


async def test_runs_of_all_workspaces_are_limited_together(
    store_url: str, clock: FakeClock
) -> None:
    def at(workspace: str) -> Stepwell:
        store, settings = store_for(store_url, clock), Settings(max_runs_in_all=1)
        return Stepwell(workflows=[waits], store=store, settings=settings, workspace=workspace)

    async with at("a") as a, at("b") as b, a.worker(lease="1h"), b.worker(lease="1h"):
        first = await a.start("waits")
        await until(a, first.id, "waiting")
        second = await b.start("waits")
        await until_code(b, second.id, "slot")
        explained = await b.explain(second.id)
        assert "1 of 1 runs of all workspaces" in explained.message
        assert explained.details["held_by"] == []  # by whom is nobody's business elsewhere
        await a.cancel(first.id)
        async with flowing(clock):
            await until(b, second.id, "waiting")


async def test_workspaces_of_one_process_hear_of_slots_they_share(
    store_url: str, clock: FakeClock
) -> None:
    settings = Settings(max_runs_in_all=1)
    premises = Premises(store_for(store_url, clock), settings)

    def at(workspace: str) -> Stepwell:
        return Stepwell(
            workflows=[waits], settings=settings, workspace=workspace, premises=premises
        )

    await premises.open()
    async with at("a") as a, at("b") as b, a.worker(lease="1h"), b.worker(lease="1h"):
        first = await a.start("waits")
        await until(a, first.id, "waiting")
        second = await b.start("waits")
        await until_code(b, second.id, "slot")
        await a.signal(first.id, "go")
        await until(b, second.id, "waiting")  # while time stands still: nobody has to look for it
    await premises.finish()
    await premises.close()


@pytest.mark.parametrize("again", ["runs.retry", "runs.fork"])
async def test_a_copy_of_a_run_counts_for_whoever_makes_it(
    store_url: str, clock: FakeClock, again: str
) -> None:
    settings = Settings(max_runs_per_user=1)
    copying, ann = operations()[again], Caller("ann", "run")
    async with (
        Stepwell(workflows=[waits], store=store_for(store_url, clock), settings=settings) as sw,
        sw.worker(lease="1h"),
    ):
        origin = await sw.start("waits", user="bob")
        await until(sw, origin.id, "waiting")
        await sw.cancel(origin.id)
        arguments: dict[str, Any] = {"run_id": origin.id}
        if again == "runs.fork":
            [step] = await sw.steps(origin.id)
            arguments["from_step"] = step.key
        first, second = [await copying.call(sw, ann, arguments) for _ in range(2)]
        await until(sw, first.id, "waiting")
        await until_code(sw, second.id, "slot")
        assert (await sw.explain(second.id)).details["limit"].startswith("user:")
        other = await copying.call(sw, Caller("cleo", "run"), arguments)
        await until(sw, other.id, "waiting")


@pytest.mark.parametrize(
    "options",
    [
        {"throttle": 5}, {"throttle": {"limit": 0, "per": "1s"}}, {"throttle": {"limit": 1}},
        {"throttle": {"limit": 1, "per": "soon"}}, {"debounce": {"wait": 0}},
        {"debounce": {"wait": "5s", "max": "1s"}}, {"debounce": {"wait": "5s", "kye": "x"}},
        {"debounce": {"wait": "5s", "key": 5}}, {"user": ""},
    ],
    ids=str,
)  # fmt: skip
async def test_what_makes_no_sense_is_refused(store_url: str, options: Any) -> None:
    async with Stepwell(store_url, [quick]) as sw:
        with pytest.raises(StepwellError):
            await sw.start("quick", 1, **options)
        assert (await sw.list_runs()).items == []

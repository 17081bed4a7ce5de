"""Starting: idempotency, versions, priority, delay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import RunTimedOut, workflow
from stepwell.errors import (
    DuplicateDefinition,
    InputTooLarge,
    InvalidCursor,
    InvalidDuration,
    InvalidInput,
    InvalidName,
    NotSerialisable,
    UnknownDefinition,
)
from tests.conftest import World
from tests.engine.support import until, until_code


@workflow
async def hold(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("go")


async def test_the_same_idempotency_key_gives_the_same_run(world: World) -> None:
    async with world([hold]) as sw:
        starts = [sw.start("hold", {"n": n}, idempotency_key="k") for n in range(50)]
        runs = await asyncio.gather(*starts)
        assert len({run.id for run in runs}) == 1
        assert [run.created for run in runs].count(True) == 1
        other = await sw.start("hold", idempotency_key="other")
        assert other.created
        many = await sw.start_many(
            [{"definition": "hold", "idempotency_key": key} for key in ("k", "new", "new")]
        )
        assert [run.created for run in many] == [False, True, False]
        assert many[1].id == many[2].id
        assert len((await sw.list_runs()).items) == 3


async def test_idempotency_holds_between_processes(world: World) -> None:
    async with world([hold]) as one, world([hold]) as two:
        starts = [sw.start("hold", idempotency_key=f"k{n}") for n in range(30) for sw in (one, two)]
        runs = await asyncio.gather(*starts)
        assert len({run.id for run in runs}) == 30
        assert sum(run.created for run in runs) == 30


async def test_a_misspelt_definition_is_told_which_was_meant(world: World) -> None:
    async def other(ctx: Any, input: Any) -> None: ...

    others = [workflow(name=f"other-{n:02}")(other) for n in range(12)]
    async with world([hold, *others]) as sw:
        with pytest.raises(UnknownDefinition) as refused:
            await sw.start("hodl")
    assert "in this store. Did you mean 'hold'? It has hold, other-00, " in refused.value.message
    assert "other-08 and 3 more. Pass" in refused.value.message


async def test_a_delayed_run_waits_for_its_time(world: World, clock: Any) -> None:
    @workflow
    async def quick(ctx: Any, input: Any) -> Any:
        return "ran"

    async with world([quick]) as sw, sw.worker():
        run = await sw.start("quick", delay="1h")
        now = await sw.start("quick")
        assert await now.result() == "ran"
        assert (await sw.get_run(run.id)).status == "pending"
        assert (await sw.explain(run.id)).code == "delay"
        clock.advance("1h")
        assert await run.result() == "ran"


async def test_higher_priority_goes_first_then_order_of_start(world: World) -> None:
    order = []

    @workflow
    async def note(ctx: Any, input: Any) -> Any:
        order.append(input)

    async with world([note]) as sw:
        runs = [
            await sw.start("note", name, priority=priority)
            for name, priority in [("a", 0), ("b", 5), ("c", 0), ("d", -1), ("e", 5)]
        ]
        async with sw.worker(concurrency=1):
            await asyncio.gather(*(run.result() for run in runs))
    assert order == ["b", "e", "a", "c", "d"]


async def test_a_run_pending_longer_than_its_time_to_live_times_out(
    world: World, clock: Any
) -> None:
    @workflow(max_concurrent_runs=1)
    async def one(ctx: Any, input: Any) -> Any:
        return await ctx.wait_for_event("go")

    async with world([one]) as sw, sw.worker():
        first = await sw.start("one", ttl="1m")
        await until(sw, first.id, "waiting")
        second = await sw.start("one", ttl="1m")
        await until_code(sw, second.id, "slot")
        clock.advance("61s")
        with pytest.raises(RunTimedOut) as expired:
            await second.result()
        assert expired.value.error.type == "ttl_expired"
        assert (await sw.get_run(first.id)).status == "waiting"


async def test_new_runs_take_the_highest_version_and_old_ones_keep_theirs(world: World) -> None:
    def version(n: int) -> Any:
        @workflow(name="versioned", version=n)
        async def body(ctx: Any, input: Any) -> Any:
            await ctx.wait_for_event("go")
            return n

        return body

    async with world([version(1)]) as sw, sw.worker():
        old = await sw.start("versioned")
        await until(sw, old.id, "waiting")
    async with world([version(2), version(3)]) as sw, sw.worker():
        new = await sw.start("versioned")
        second = await sw.start("versioned", version=2)
        for run in (old, new, second):
            await sw.signal(run.id, "go")
        assert await new.result() == 3
        assert await second.result() == 2
        await until_code(sw, old.id, "unknown_version")
        explanation = await sw.explain(old.id)
        assert explanation.details["version"] == 1
    async with world([version(1), version(3)]) as sw, sw.worker():
        assert await sw.result(old.id) == 1


async def test_a_worker_leaves_runs_of_definitions_it_does_not_have(world: World) -> None:
    @workflow
    async def other(ctx: Any, input: Any) -> Any:
        return "other"

    async with world([hold, other]) as both:
        run = await both.start("other")
        assert (await both.explain(run.id)).code == "no_worker"
        async with world([hold]) as partial, partial.worker():
            await until_code(partial, run.id, "unknown_definition")
            async with both.worker():
                assert await both.result(run.id) == "other"


async def test_bad_starts_are_refused_with_a_code_and_write_nothing(world: World) -> None:
    async with world([hold]) as sw:
        for options, error in [
            ({"delay": "soon"}, InvalidDuration),
            ({"delay": -1}, InvalidDuration),
            ({"deadline": "x"}, InvalidDuration),
            ({"ttl": ""}, InvalidDuration),
            ({"retention": True}, InvalidDuration),
            ({"priority": "high"}, InvalidInput),
            ({"concurrency_key": "k", "concurrency_limit": 0}, InvalidInput),
            ({"concurrency_key": "k", "concurrency_limit": -3}, InvalidInput),
            ({"concurrency_limit": 2}, InvalidInput),
            ({"concurrency_key": ""}, InvalidName),
            ({"idempotency_key": "x" * 300}, InvalidName),
            ({"idempotency_key": "a\x00b"}, InvalidName),
            ({"version": 0}, InvalidInput),
            ({"input": object()}, NotSerialisable),
            ({"input": {"bad": "\ud800"}}, NotSerialisable),
            ({"input": "x" * 2_000_000}, InputTooLarge),
            ({"unknown_option": 1}, InvalidInput),
        ]:
            with pytest.raises(error) as refused:
                await sw.start("hold", **options)
            assert refused.value.code
        for name, error in [("nope", UnknownDefinition), ("", InvalidName), (None, InvalidName)]:
            with pytest.raises(error):
                await sw.start(name)
        with pytest.raises(UnknownDefinition):
            await sw.start_many([{"definition": "hold"}, {"definition": "nope"}])
        with pytest.raises(InvalidInput):
            await sw.start_many([{"input": 1}])
        with pytest.raises(InvalidCursor):
            await sw.list_runs(cursor="ü")
        with pytest.raises(InvalidInput):
            await sw.list_runs(status="done")
        with pytest.raises(InvalidInput):
            await sw.list_runs(limit=0)
        assert (await sw.list_runs()).items == []


async def test_bad_definitions_are_refused() -> None:
    async def body(ctx: Any, input: Any) -> Any: ...

    from stepwell import Stepwell

    for options in [
        {"name": ""}, {"name": "x" * 500}, {"version": 0}, {"version": "1"},
        {"retention": "long"}, {"max_concurrent_runs": -1}, {"max_concurrent_runs": 0},
        {"deadline": "?"}, {"retry": 3},
    ]:  # fmt: skip
        with pytest.raises(InvalidInput):
            workflow(**options)(body)
    one, two = workflow(name="same")(body), workflow(name="same")(body)
    with pytest.raises(DuplicateDefinition):
        Stepwell("sqlite:///x.db", workflows=[one, two])
    with pytest.raises(InvalidInput):
        Stepwell("sqlite:///x.db", workflows=[body])


async def test_a_list_of_runs_can_be_filtered_and_paged(world: World, clock: Any) -> None:
    @workflow
    async def quick(ctx: Any, input: Any) -> Any:
        return None

    async with world([quick, hold]) as sw:
        runs = []
        for n in range(7):
            runs.append(await sw.start("quick", {"n": n, "who": {"id": n % 2, "x": 1}}))
            clock.advance("1m")
        held = await sw.start("hold")
        async with sw.worker():
            await asyncio.gather(*(run.result() for run in runs))
            await until(sw, held.id, "waiting")
        page = await sw.list_runs(definition="quick", limit=3)
        seen = [run.id for run in page.items]
        while page.next_cursor:
            with pytest.raises(InvalidCursor):
                await sw.list_runs(definition="other", limit=3, cursor=page.next_cursor)
            page = await sw.list_runs(definition="quick", limit=3, cursor=page.next_cursor)
            seen += [run.id for run in page.items]
        assert seen == [run.id for run in reversed(runs)]
        assert [r.id for r in (await sw.list_runs(status="waiting")).items] == [held.id]
        both = await sw.list_runs(status=["waiting", "completed"])
        assert len(both.items) == 8
        found = await sw.list_runs(input={"who": {"id": 1}})
        assert [run.input["n"] for run in found.items] == [5, 3, 1]
        middle = (await sw.get_run(runs[3].id)).created_at
        assert len((await sw.list_runs(definition="quick", since=middle)).items) == 4
        assert len((await sw.list_runs(until=middle)).items) == 3
        assert await sw.count_runs() == {"quick": {"completed": 7}, "hold": {"waiting": 1}}


async def test_workspaces_do_not_see_each_other(world: World) -> None:
    async with world([hold], workspace="a") as a, world([hold], workspace="b") as b:
        async with a.worker(), b.worker():
            run = await a.start("hold", idempotency_key="k")
            other = await b.start("hold", idempotency_key="k")
            assert run.id != other.id
            await until(a, run.id, "waiting")
            await until(b, other.id, "waiting")
            assert [r.id for r in (await b.list_runs()).items] == [other.id]
            await b.emit("go", 1)
            assert await other.result() == 1
            assert (await a.get_run(run.id)).status == "waiting"

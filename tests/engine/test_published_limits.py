"""What is published counts for runs that are queued, and for none that were given limits."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.kernel.clock import SECOND
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import flowing, until, until_code

HOURLY = {"throttle": {"limit": 1, "per": "1h"}}


def graph(policy: Any, days: int = 30) -> dict[str, Any]:
    """Runs of it begin and wait; another number of days is another revision."""
    wait = {"id": "a", "type": "delay", "config": {"duration": f"{days}d"}}
    return {"name": "g", "policy": policy, "nodes": [wait]}


@pytest.mark.parametrize("policy", [{}, {"throttle": {"limit": 50, "per": "1m"}}])
@pytest.mark.parametrize(
    "given",
    [
        HOURLY,
        {"concurrency_key": "gpu", "concurrency_limit": 1},
        {"concurrency_key": "g:mine", "concurrency_limit": 1},
    ],
)
async def test_limits_that_a_start_was_given_are_not_those_of_the_definition(
    world: World, clock: FakeClock, given: Any, policy: Any
) -> None:
    async with world([]) as sw:
        await sw.definitions.publish(graph(policy))
        runs = [await sw.start("g", **given) for _ in range(3)]
        async with sw.worker(lease="1h"):
            await until(sw, runs[0].id, "waiting")
            await sw.definitions.publish(graph({}, 31))
            begin = clock.now()
            async with flowing(clock, "1s"):
                while clock.now() < begin + 300 * SECOND:
                    await until(sw, runs[0].id, "waiting")
            found = [(await sw.get_run(run.id)).status for run in runs]
    assert found == ["waiting", "pending", "pending"]


async def test_limits_come_and_go_with_revisions(world: World, clock: FakeClock) -> None:
    one, none, two = (
        graph({} if limit is None else {"concurrency": {"key": "@input.k", "limit": limit}}, days)
        for limit, days in ((1, 30), (None, 31), (2, 32))
    )
    async with world([]) as sw:
        await sw.definitions.publish(one)
        runs = [await sw.start("g", {"k": "\n" * 300}) for _ in range(5)]
        await sw.definitions.publish(none)
        await sw.definitions.rollback("g", 1)
        async with sw.worker(lease="1h"):
            await until(sw, runs[0].id, "waiting")
            await sw.definitions.publish(none)
            await sw.definitions.publish(two)  # before anybody was called for what was published
            async with flowing(clock, "0.2s"):
                await until(sw, runs[1].id, "waiting")
                older = [await sw.start("g", {"k": "\n" * 300}, version=1) for _ in range(2)]
                found = [(await sw.get_run(run.id)).status for run in runs]
                assert found == ["waiting", "waiting", "pending", "pending", "pending"]
                await sw.definitions.publish(none)
                for run in (*runs, *older):
                    await until(sw, run.id, "waiting")


async def test_queues_of_other_definitions_and_workspaces_stay(
    world: World, clock: FakeClock
) -> None:
    fast = {"throttle": {"limit": 1000, "per": "1s"}}
    async with world([]) as sw, world([], workspace="other") as other:
        for each in (sw, other):
            await each.definitions.publish(graph(HOURLY))
            await each.definitions.publish(graph(HOURLY) | {"name": "g2"})
        runs = [(each, await each.start(name)) for each, name in
                [(sw, "g"), (sw, "g2"), (other, "g")] for _ in range(2)]  # fmt: skip
        async with sw.worker(lease="1h"), other.worker(lease="1h"), flowing(clock, "0.2s"):
            for each, run in runs[::2]:
                await until(each, run.id, "waiting")
            await sw.definitions.publish(graph(fast))
            await until(sw, runs[1][1].id, "waiting")
            begin = clock.now()
            while clock.now() < begin + 60 * SECOND:
                await until(sw, runs[1][1].id, "waiting")
            found = [(await each.get_run(run.id)).status for each, run in runs]
    assert found == ["waiting", "waiting", "waiting", "pending", "waiting", "pending"]


def keyed(limit: int, days: int, **policy: Any) -> dict[str, Any]:
    return graph({"concurrency": {"key": "@input.k", "limit": limit}, **policy}, days)


async def test_a_fork_with_another_input_has_the_key_of_that(world: World) -> None:
    async with world([]) as sw, sw.worker(lease="1h"):
        await sw.definitions.publish(keyed(1, 30))
        origin = await sw.start("g", {"k": "a"})
        await until(sw, origin.id, "waiting")
        [step] = await sw.steps(origin.id)
        fork = await sw.fork(origin.id, step.key, input={"k": "b"})
        await until(sw, fork.id, "waiting")  # while the one with the key a goes on
        assert (await sw.get_run(fork.id)).concurrency_key == "g:b"
        given = await sw.start("g", {"k": "c"}, concurrency_key="own", concurrency_limit=1)
        await until(sw, given.id, "waiting")
        again = await sw.fork(given.id, step.key, input={"k": "d"})
        assert (await sw.get_run(again.id)).concurrency_key == "own"


@pytest.mark.parametrize("limit", ["concurrency", "definition", "throttle"])
async def test_a_retry_counts_under_what_is_published_by_then(
    world: World, clock: FakeClock, limit: str
) -> None:
    def of(most: int, days: int) -> dict[str, Any]:
        return graph({
            "concurrency": {"concurrency": {"key": "@input.k", "limit": most}},
            "definition": {"max_concurrent_runs": most},
            "throttle": {"throttle": {"limit": most, "per": "1h"}},
        }[limit], days)  # fmt: skip

    async with world([]) as sw, sw.worker(lease="10h"):
        await sw.definitions.publish(of(3, 30))
        runs = [await sw.start("g", {"k": "a"}) for _ in range(3)]
        for run in runs:
            await until(sw, run.id, "waiting")
            await sw.cancel(run.id)
        await sw.definitions.publish(of(1, 31))
        clock.advance("2h")
        retries = [await sw.retry(run.id) for run in runs]
        older = await sw.start("g", {"k": "a"}, version=1)
        await until(sw, retries[0].id, "waiting")
        for run in (*retries[1:], older):
            await until_code(sw, run.id, "throttle" if limit == "throttle" else "slot")
        assert (await sw.get_run(retries[0].id)).version == 1


async def test_copies_of_runs_of_older_versions_are_keyed_by_what_is_published(
    world: World,
) -> None:
    async with world([]) as sw, sw.worker(lease="1h"):
        await sw.definitions.publish(graph({}, 30))
        await sw.definitions.publish(keyed(1, 31))
        run = await sw.start("g", {"k": "a"}, version=1)
        await until(sw, run.id, "waiting")
        assert (await sw.get_run(run.id)).concurrency_key == "g:a"
        [step] = await sw.steps(run.id)
        fork = await sw.fork(run.id, step.key, input={"k": "b"})
        assert (await sw.get_run(fork.id)).concurrency_key == "g:b"
        await sw.definitions.publish(keyed(5, 32))
        await sw.cancel(run.id)
        again = await sw.retry(run.id)
        await until(sw, again.id, "waiting")
        assert (await sw.get_run(again.id)).concurrency_limit == 5
        await sw.definitions.publish(graph({}, 33))
        await sw.cancel(again.id)
        last = await sw.retry(again.id)
        assert (await sw.get_run(last.id)).concurrency_key is None

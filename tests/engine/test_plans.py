"""Plans: what a workspace may have, exact whoever wants more, and each refusal says what it was."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from stepwell import Stepwell
from stepwell.catalog import store_for
from stepwell.errors import InvalidInput, QuotaExceeded, RateLimited, RunFailed, StepwellError
from stepwell.kernel.plans import PLANS, Plan, read_plan, read_plans
from stepwell.settings import Settings
from stepwell.testing.clock import FakeClock
from tests.engine.paced import graph, quick, waits
from tests.engine.support import flowing, until, until_code


def with_plan(store_url: str, clock: FakeClock, plan: Plan) -> Stepwell:
    return Stepwell(
        workflows=[quick, waits], store=store_for(store_url, clock), settings=Settings(plan=plan)
    )


def test_the_plans_are_those_of_the_table() -> None:
    table = (Path(__file__).parents[2] / "docs/triggers.md").read_text().partition("## Plans")[2]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("| ") and "`free`" not in line
    ]
    told: dict[str, dict[str, int | None]] = {name: {} for name in ("free", "pro", "enterprise")}
    for _, *cells, fields in rows:
        for plan, cell in zip(told, cells, strict=True):
            numbers = [None] if cell == "no limit" else re.findall(r"\d[\d,]*", cell)
            for field, number in zip(re.findall("`(.+?)`", fields), numbers, strict=True):
                told[plan][field] = None if number is None else int(number.replace(",", "").strip())
    for name, fields in told.items():
        assert fields | {"name": name} == msgspec.structs.asdict(PLANS[name])
    assert set(msgspec.structs.asdict(PLANS["unlimited"]).values()) == {"unlimited", None}


def test_a_plan_of_ones_own_is_json() -> None:
    custom = read_plan('{"name": "ours", "runs_per_month": 7}', "STEPWELL_PLAN")
    assert (custom.name, custom.runs_per_month, custom.definitions) == ("ours", 7, None)
    for wrong in ("gold", '{"runs": 1}', '{"runs_per_month": "x"}', '{"definitions": -1}', "{"):
        with pytest.raises(InvalidInput, match="STEPWELL_PLAN"):
            read_plan(wrong, "STEPWELL_PLAN")


async def test_a_workspace_may_have_a_plan_of_its_own(store_url: str, clock: FakeClock) -> None:
    settings = Settings.read({
        "STEPWELL_PLAN": '{"name": "small", "runs_per_month": 1}',
        "STEPWELL_PLANS": '{"team-7": "pro", "lab": {"runs_per_month": 0}}',
    })  # fmt: skip
    started = {}
    for workspace in ("default", "team-7", "lab"):
        async with Stepwell(
            workflows=[quick], store=store_for(store_url, clock), settings=settings,
            workspace=workspace,
        ) as stepwell:  # fmt: skip
            asked = [stepwell.start("quick") for _ in range(3)]
            found = await asyncio.gather(*asked, return_exceptions=True)
            refused = [each for each in found if isinstance(each, QuotaExceeded)]
            started[workspace] = 3 - len(refused), {each.details["plan"] for each in refused}
    assert started == {"default": (1, {"small"}), "team-7": (3, set()), "lab": (0, {"custom"})}


def test_plans_of_workspaces_are_read_or_refused() -> None:
    assert read_plans('{"a": "free", "b": {"name": "x"}}', "P") == {
        "a": PLANS["free"],
        "b": Plan("x"),
    }
    for wrong in ("free", '["free"]', '{"a": "gold"}', '{"a": 7}', '{"a": {"runs": 1}}', "{"):
        with pytest.raises(InvalidInput, match="STEPWELL_PLANS"):
            read_plans(wrong, "STEPWELL_PLANS")


async def test_definitions_are_counted_exactly_by_all_who_publish(
    store_url: str, clock: FakeClock
) -> None:
    plan = Plan("small", definitions=3)
    async with with_plan(store_url, clock, plan) as one, with_plan(store_url, clock, plan) as two:
        found = await asyncio.gather(
            *(sw.definitions.publish(graph(f"p{n}")) for n, sw in enumerate([one, two] * 5)),
            *(sw.definitions.create(f"c{n}") for n, sw in enumerate([one, two] * 5)),
            return_exceptions=True,
        )
        refused = [each for each in found if isinstance(each, Exception)]
        assert {type(each) for each in refused} == {QuotaExceeded}
        assert len(refused) == 17
        listed = await one.definitions.list()
        assert len(listed) == 3
        await one.definitions.publish(graph(listed[0].name))
        await one.definitions.delete(listed[0].name)
        await two.definitions.publish(graph("another"))
        with pytest.raises(QuotaExceeded):
            await two.definitions.publish(graph("more"))


async def test_runs_of_a_month_are_counted_exactly_by_all_who_start(
    store_url: str, clock: FakeClock
) -> None:
    plan = Plan("small", runs_per_month=20)
    async with with_plan(store_url, clock, plan) as one, with_plan(store_url, clock, plan) as two:
        found = await asyncio.gather(
            *(sw.start("quick", n) for n in range(20) for sw in (one, two)), return_exceptions=True
        )
        counted = Counter(type(each).__name__ for each in found)
        assert counted == {"RunHandle": 20, "QuotaExceeded": 20}
        error = next(each for each in found if isinstance(each, QuotaExceeded))
        assert "'small' allows 20 runs" in error.message
        clock.advance("31d")
        assert (await one.start("quick", 1)).created, "another month has begun"


async def test_an_idempotent_start_uses_nothing_up(store_url: str, clock: FakeClock) -> None:
    async with with_plan(store_url, clock, Plan("tiny", runs_per_month=1)) as sw:
        first = await sw.start("quick", 1, idempotency_key="k")
        again = await sw.start("quick", 1, idempotency_key="k")
        assert (again.id, again.created) == (first.id, False)
        with pytest.raises(QuotaExceeded):
            await sw.start("quick", 2)


LOOP = {
    "id": "l", "type": "loop", "config": {"until": "false", "max_iterations": 50},
    "body": [{"id": "b", "type": "transform", "config": {"value": 1}}],
}  # fmt: skip
HOOK = {"id": "hook", "type": "webhook", "path": "hook", "dedupe": False}


def names(error: StepwellError, limit: str, value: int) -> None:
    """Each refusal names limit, value and plan, in its message and in its details."""
    assert f"{value:,}" in error.message
    assert "'bounded'" in error.message
    assert error.details["plan"] == "bounded"
    assert (error.details["limit"], error.details["value"]) == (limit, value)


async def test_a_plan_bounds_definitions(store_url: str, clock: FakeClock) -> None:
    async with with_plan(store_url, clock, Plan("bounded", definitions=1)) as sw:
        await sw.definitions.publish(graph("only"))
        for more in (sw.definitions.publish(graph("another")), sw.definitions.create("another")):
            with pytest.raises(QuotaExceeded, match="allows 1 definitions") as refused:
                await more
            names(refused.value, "definitions", 1)


async def test_a_plan_bounds_how_often_schedules_fire(store_url: str, clock: FakeClock) -> None:
    async with with_plan(store_url, clock, Plan("bounded", schedule_seconds=3600)) as sw:
        often = {"id": "t", "type": "schedule", "cron": "*/5 * * * *"}
        with pytest.raises(
            QuotaExceeded, match=r"every 300 s; the plan 'bounded' allows .* 3,600"
        ) as refused:
            await sw.definitions.publish(graph(triggers=[often]))
        names(refused.value, "schedule_seconds", 3600)
        (problem,) = (await sw.definitions.validate(graph(triggers=[often]))).problems
        assert (problem.path, problem.code) == ("triggers[0]", "quota_exceeded")


async def test_a_plan_bounds_runs_of_a_month(store_url: str, clock: FakeClock) -> None:
    async with with_plan(store_url, clock, Plan("bounded", runs_per_month=2)) as sw:
        await sw.start_many([{"definition": "quick"}, {"definition": "quick"}])
        with pytest.raises(QuotaExceeded, match="allows 2 runs in") as refused:
            await sw.start("quick")
        names(refused.value, "runs_per_month", 2)


async def test_a_plan_bounds_runs_that_are_active(store_url: str, clock: FakeClock) -> None:
    plan = Plan("bounded", concurrent_runs=2)
    async with with_plan(store_url, clock, plan) as sw, sw.worker(lease="1h"):
        runs = [await sw.start("waits") for _ in range(3)]
        for run in runs[:2]:
            await until(sw, run.id, "waiting")
        await until_code(sw, runs[2].id, "slot")
        assert (await sw.explain(runs[2].id)).details["capacity"] == 2
        assert "the plan" in (await sw.explain(runs[2].id)).message
        async with with_plan(store_url, clock, plan):  # knows of no limit of the definition's own
            assert (await sw.explain(runs[2].id)).code == "slot"
        await sw.cancel(runs[0].id)
        await until(sw, runs[2].id, "waiting")


async def test_a_plan_bounds_the_nodes_that_a_run_executes(
    store_url: str, clock: FakeClock
) -> None:
    plan = Plan("bounded", steps_per_run=3)
    async with with_plan(store_url, clock, plan) as sw, sw.worker(lease="1h"):
        await sw.definitions.publish({"name": "only", "nodes": [LOOP]})
        run = await sw.start("only")
        with pytest.raises(RunFailed, match="3 nodes, as many as the plan 'bounded' allows"):
            await run.result()
        assert (await sw.get_run(run.id)).error.type == "step_budget_exceeded"


async def test_a_plan_bounds_requests_to_webhooks(store_url: str, clock: FakeClock) -> None:
    async with with_plan(store_url, clock, Plan("bounded", webhooks_per_minute=2)) as sw:
        await sw.definitions.publish(graph("only", triggers=[HOOK]))
        await sw.receive("hook")
        await sw.receive("hook")
        with pytest.raises(RateLimited, match="The plan 'bounded' allows 2 requests") as refused:
            await sw.receive("hook")
        names(refused.value, "webhooks_per_minute", 2)


async def test_a_limit_of_nothing_allows_nothing(store_url: str, clock: FakeClock) -> None:
    nothing = Plan("bounded", definitions=0)
    async with with_plan(store_url, clock, nothing) as sw:
        with pytest.raises(QuotaExceeded) as refused:
            await sw.definitions.publish(graph())
        names(refused.value, "definitions", 0)
    for limit in ("runs_per_month", "concurrent_runs"):
        async with with_plan(store_url, clock, Plan("bounded", **{limit: 0})) as sw:
            with pytest.raises(QuotaExceeded) as refused:
                await sw.start("quick")
            names(refused.value, limit, 0)
            assert (await sw.list_runs()).items == []
    nothing = Plan("bounded", steps_per_run=0)
    async with with_plan(store_url, clock, nothing) as sw, sw.worker(lease="1h"):
        await sw.definitions.publish(graph())
        with pytest.raises(RunFailed, match="0 nodes, as many as the plan 'bounded' allows"):
            await (await sw.start("paced")).result()


async def test_what_a_plan_refuses_to_a_trigger_is_listed_and_no_failure(
    store_url: str, clock: FakeClock
) -> None:
    async with with_plan(store_url, clock, Plan("tiny", runs_per_month=1)) as sw:
        await sw.triggers.create("quick", "schedule", {"every": "10s"}, name="t")
        await sw.triggers.create("quick", "event", {"event": "news"}, name="e")
        async with sw.housekeeping(), flowing(clock, "0.5s"):
            while len(refusals := await sw.triggers.refusals("quick/t")) < 4:
                await asyncio.sleep(0.001)
        assert {each.code for each in refusals} == {"quota_exceeded"}
        assert (await sw.triggers.get("quick/t")).paused is None
        await sw.emit("news", 1)
        async with sw.housekeeping():
            while not (refusals := await sw.triggers.refusals("quick/e")):
                await asyncio.sleep(0.001)
        assert refusals[0].code == "quota_exceeded"

"""What is measured, and what never gets into a label."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from stepwell import Retry, workflow
from stepwell.kernel.changes import ClaimedRun
from stepwell.telemetries import metrics
from stepwell.telemetries.prometheus import Prometheus
from stepwell.telemetry import Telemetry, step_name, told_to_all
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import double, eventually, flowing, until
from tests.operations.support import definition, node

SECRET = "hunter2-hunter2"


class Shown:
    """The samples of a scrape, by name and labels."""

    def __init__(self, text: bytes) -> None:
        self.text = text.decode()
        self._samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float | None:
        return self._samples.get((name, *sorted(labels.items())))

    @property
    def names(self) -> set[str]:
        return {key[0] for key in self._samples}


async def scraped(prometheus: Prometheus) -> Shown:
    return Shown(await prometheus.render())


@workflow
async def work(ctx: Any, input: Any) -> Any:
    first = await ctx.step("first", double, 1)
    for _ in range(3):
        await ctx.step("again", double, first)
    return await ctx.wait_for_event("go") if input == "wait" else first


async def test_runs_and_steps_are_counted_and_timed(world: World) -> None:
    prometheus = Prometheus()
    async with world([work], telemetry=[prometheus]) as sw, sw.worker(lease="1h"):
        assert await (await sw.start("work", SECRET)).result() == 2
        await sw.start("work", SECRET, idempotency_key="k")
        again = await sw.start("work", SECRET, idempotency_key="k")
        await again.result()
        shown = await scraped(prometheus)
    assert shown("workflow_runs_started_total", workflow="work") == 2
    assert shown("workflow_runs_completed_total", workflow="work", status="completed") == 2
    assert shown("workflow_run_duration_seconds_count", workflow="work") == 2
    assert shown("workflow_step_duration_seconds_count", workflow="work", step="first") == 2
    assert shown("workflow_step_duration_seconds_count", workflow="work", step="again") == 6
    assert shown("stepwell_claim_latency_seconds_count") == 2
    assert (shown("stepwell_commit_batch_size_count") or 0) > 2
    assert (shown("stepwell_commit_batch_size_sum") or 0) >= 2 * 7
    assert shown("stepwell_commit_seconds_count") == shown("stepwell_commit_batch_size_count")
    assert SECRET not in shown.text


async def test_a_run_is_in_flight_while_it_is_executed_and_in_the_queue_before(
    world: World,
) -> None:
    prometheus = Prometheus()
    begun, going = asyncio.Event(), asyncio.Event()

    @workflow
    async def held(ctx: Any, input: Any) -> None:
        begun.set()
        await ctx.step("hold", going.wait)

    async with world([held], telemetry=[prometheus]) as sw:
        run = await sw.start("held")
        shown = await scraped(prometheus)
        assert shown("stepwell_queue_depth", workspace="default") == 1
        assert shown("workflow_runs_in_flight", workflow="held") is None
        async with sw.worker(lease="1h"):
            await begun.wait()
            shown = await scraped(prometheus)
            assert shown("workflow_runs_in_flight", workflow="held") == 1
            # It is not asked for with every scrape.
            assert shown("stepwell_queue_depth", workspace="default") == 1
            going.set()
            await run.result()
            assert (await scraped(prometheus))("workflow_runs_in_flight", workflow="held") is None
    assert (await scraped(prometheus))("stepwell_queue_depth", workspace="default") is None


async def test_runs_that_others_end_are_counted_too(world: World, clock: FakeClock) -> None:
    prometheus = Prometheus()
    async with world([work], telemetry=[prometheus]) as sw, sw.worker(lease="1h"):
        cancelled = await sw.start("work", "wait")
        late = await sw.start("work", "wait", deadline="5s")
        for run in (cancelled, late):
            await until(sw, run.id, "waiting")
        await sw.cancel(cancelled.id)
        async with flowing(clock):
            await until(sw, late.id, "timed_out")
    shown = await scraped(prometheus)
    assert shown("workflow_runs_completed_total", workflow="work", status="cancelled") == 1
    assert shown("workflow_runs_completed_total", workflow="work", status="timed_out") == 1
    assert (shown("workflow_run_duration_seconds_sum", workflow="work") or 0) >= 5


async def test_signals_are_counted_by_their_names_once_they_have_reached_a_run(
    world: World,
) -> None:
    prometheus = Prometheus()
    async with world([work]) as elsewhere, world(telemetry=[prometheus]) as sw:
        async with elsewhere.worker(lease="1h"):
            run = await elsewhere.start("work", "wait")
            assert await sw.signal(run.id, "go", SECRET)
            await run.result()
            assert not await sw.signal(run.id, "go")
    shown = await scraped(prometheus)
    assert shown("workflow_signals_total", workflow="work", event="go") == 1
    assert SECRET not in shown.text


async def test_what_callers_make_up_takes_no_room_among_the_names_of_signals(
    world: World,
) -> None:
    prometheus = Prometheus()
    each = {"items": "@input", "concurrency": 60}
    chore = {**node("chores", "task", title="Do {{item}}"), "for_each": each}
    tasks = definition(chore, name="tasks")
    items = list(range(60))
    async with world([work], telemetry=[prometheus]) as sw, sw.worker(lease="1h"):
        await sw.definitions.publish(tasks, enabled=True)
        run = await sw.start("work", "wait")
        for number in range(60):
            await sw.signal(run.id, f"paid:{SECRET}-{number}")
        await sw.signal(run.id, "go")
        chores = await sw.start("tasks", items)
        while len(await sw.tasks(chores.id)) < len(items):
            pass
        for number in items:
            await sw.advance(chores.id, f"chores[{number}]")
        for started in (run, chores):
            await started.result()
        await eventually(lambda: sw._observer._looking is None)
        shown = await scraped(prometheus)
    name = "workflow_signals_total"
    assert shown(name, workflow="work", event="other") == 60
    assert shown(name, workflow="work", event="go") == 1
    assert shown(name, workflow="tasks", event="advance:chores") == 60
    assert SECRET not in shown.text


async def test_retries_are_counted_and_their_step_is_timed_once(
    world: World, clock: FakeClock
) -> None:
    prometheus = Prometheus()
    left = 2

    async def fails() -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise ValueError(SECRET)

    @workflow
    async def tries(ctx: Any, input: Any) -> None:
        await ctx.step("try", fails, retry=Retry(attempts=5, base="3s", jitter=0))

    async with world([tries], telemetry=[prometheus]) as sw, sw.worker(lease="1h"):
        run = await sw.start("tries")
        async with flowing(clock):
            await run.result()
    shown = await scraped(prometheus)
    assert shown("workflow_step_retries_total", workflow="tries", step="try") == 2
    assert shown("workflow_step_duration_seconds_count", workflow="tries", step="try") == 1
    assert (shown("workflow_step_duration_seconds_sum", workflow="tries", step="try") or 0) >= 9
    assert SECRET not in shown.text


async def test_iterations_of_a_graph_are_one_step(world: World) -> None:
    prometheus = Prometheus()
    each = {
        **node("each", "shell", command="echo {{item}}"),
        "for_each": {"items": "@input.items"},
    }
    body = {"nodes": [node("inner", "shell", command="true")]}
    loop = {**node("loop", "loop", until="true", max_iterations=3), "body": body}
    async with world(telemetry=[prometheus]) as sw, sw.worker(lease="1h"):
        run = await sw.start_document(definition(each, loop), {"items": [SECRET, 2, 3]})
        await run.result()
    shown = await scraped(prometheus)
    assert shown("workflow_step_duration_seconds_count", workflow="made", step="each") == 3
    assert shown("workflow_step_duration_seconds_count", workflow="made", step="inner") == 1
    assert SECRET not in shown.text


async def test_what_triggers_start_is_counted_and_how_late_they_were(
    world: World, clock: FakeClock
) -> None:
    prometheus = Prometheus()
    async with world([work], telemetry=[prometheus]) as sw:
        await sw.triggers.create("work", "schedule", {"cron": "* * * * *"}, name="minutely")
        await sw.triggers.create("work", "event", {"event": "news"}, name="told")
        await sw.emit("news", {})
        clock.advance("90s")
        async with sw.worker(lease="1h"):
            value = prometheus.registry.get_sample_value
            await eventually(lambda: value("stepwell_outbox_lag_seconds_count"))
            await eventually(lambda: value("stepwell_schedule_lateness_seconds_count"))
    shown = await scraped(prometheus)
    assert shown("workflow_runs_started_total", workflow="work") == 2
    assert shown("stepwell_outbox_lag_seconds_sum") == 90
    assert 30 <= (shown("stepwell_schedule_lateness_seconds_sum") or 0) <= 90


async def test_what_retention_deletes_is_counted(world: World, clock: FakeClock) -> None:
    prometheus = Prometheus()
    async with world([work], telemetry=[prometheus]) as sw:
        async with sw.worker(lease="1h"):
            await (await sw.start("work", retention="1s")).result()
        clock.advance("1h")
        assert await sw.prune() == 1
    assert (await scraped(prometheus))("workflow_retention_swept_total") == 1


async def test_labels_stay_within_bounds() -> None:
    prometheus = Prometheus()
    for number in range(300):
        prometheus.run_started(f"definition-{number}")
        prometheus.request_answered("GET", "runs.list", 200 + number, 0.1)
    shown = await scraped(prometheus)
    assert shown("workflow_runs_started_total", workflow="definition-199") == 1
    assert shown("workflow_runs_started_total", workflow="definition-200") is None
    assert shown("workflow_runs_started_total", workflow="other") == 100
    answered = {"method": "GET", "operation": "runs.list"}
    assert shown("stepwell_http_requests_total", **answered, status="2xx") == 100
    assert shown("stepwell_http_request_duration_seconds_count", **answered) == 300


async def test_every_metric_is_there_before_anything_happens_and_has_its_name() -> None:
    text = (await Prometheus().render()).decode()
    for metric in metrics.METRICS:
        assert f"# TYPE {metric.name} {metric.kind}\n" in text
        assert f"# HELP {metric.name} {metric.help}\n" in text


def test_a_step_is_called_by_its_name_alone() -> None:
    code = ClaimedRun("r", "d", 1, "p", 1, 1, "", 0, None, None, None)
    graph = ClaimedRun("r", "d", 1, "p", 1, 1, "", 0, None, None, None, "hash")
    assert step_name(code, "charge#2", "step") == "charge"
    assert step_name(code, "v1.2", "step") == "v1.2"
    assert step_name(graph, "fetch[3]", "step") == "fetch"
    assert step_name(graph, "loop[2].body.check[1]#3", "step") == "check"
    assert step_name(graph, "ok.decision[0a1b]", "gate") == "ok"
    assert step_name(graph, "build.task", "task") == "build"


def test_what_is_told_reaches_everybody() -> None:
    first, second = Prometheus(), Prometheus()
    several = told_to_all([first, second])
    several.run_started("work")
    several.close()
    for each in (first, second):
        assert each.registry.get_sample_value("workflow_runs_started_total", {"workflow": "work"})
    assert type(told_to_all([])) is Telemetry

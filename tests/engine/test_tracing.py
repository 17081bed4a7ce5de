"""Spans: one trace from a request to outgoing requests, whoever executes what is in between."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stepwell import Retry, Stepwell, workflow
from stepwell.errors import InvalidInput
from stepwell.kernel.tracing import run_span, step_span, trace_of
from stepwell.settings import Settings
from stepwell.telemetries import opentelemetry
from stepwell.telemetry import request_trace
from stepwell.testing.clock import FakeClock
from stepwell.testing.crash import crash
from tests.conftest import World
from tests.engine.support import double, flowing, until
from tests.nodes.web import Web, reply, serving
from tests.operations.support import definition, node

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"
SECRET = "hunter2-hunter2"


class Span(msgspec.Struct):
    """A span as a collector has received it."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    micros: tuple[int, int]
    failed: bool
    attributes: dict[str, Any]

    @property
    def step(self) -> tuple[Any, ...]:
        return tuple(self.attributes.get(f"step.{name}") for name in ("name", "kind", "attempt"))


def received(web: Web) -> list[Span]:
    """All spans that were sent, in the order in which they began."""
    found = []
    for asked in web.asked:
        if asked.path != "/v1/traces":
            continue
        request = ExportTraceServiceRequest.FromString(asked.body)
        spans = (s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans)
        found += [
            Span(
                each.name, each.trace_id.hex(), each.span_id.hex(), each.parent_span_id.hex(),
                (each.start_time_unix_nano // 1000, each.end_time_unix_nano // 1000),
                each.status.code == 2,
                {a.key: a.value.string_value or a.value.int_value for a in each.attributes},
            )
            for each in spans
        ]  # fmt: skip
    return sorted(found, key=lambda span: (span.micros[0], span.name, span.micros[1]))


@asynccontextmanager
async def collecting() -> AsyncIterator[tuple[Web, Settings]]:
    """A collector, and the settings that lead to it."""
    async with serving(lambda asked: reply()) as web:
        yield web, Settings(otlp_endpoint=web.url, http_allow_private=True)


@workflow(version=3)
async def work(ctx: Any, input: Any) -> Any:
    await ctx.step("first", double, input)
    await ctx.sleep("nap", "5s")
    await ctx.wait_for_event("go")
    return await ctx.step("last", double, input)


@workflow
async def once(ctx: Any, input: Any) -> Any:
    return await ctx.step("only", double, input)


async def test_a_run_is_a_span_and_so_is_whatever_it_did(world: World, clock: FakeClock) -> None:
    async with collecting() as (web, settings):
        async with world([work], settings=settings) as sw, sw.worker(lease="1h"):
            run = await sw.start("work", SECRET, traceparent=GIVEN)
            async with flowing(clock):
                await until(sw, run.id, "waiting")
                await sw.signal(run.id, "go", SECRET)
                await run.result()
        spans = received(web)
        assert {span.trace_id for span in spans} == {TRACE}
        (whole,) = [span for span in spans if span.name == "workflow.run"]
        assert (whole.parent_id, whole.span_id) == (SPAN, run_span(run.id))
        assert whole.attributes == {
            "workflow.name": "work", "workflow.version": 3, "run_id": run.id,
            "status": "completed",
        }  # fmt: skip
        steps = [span for span in spans if span.name == "workflow.step"]
        assert [span.step for span in steps] == [
            ("first", "run", 1), ("nap", "sleep", 1), ("go", "wait", 1), ("last", "run", 1),
        ]  # fmt: skip
        assert {span.parent_id for span in (*steps,)} == {whole.span_id}
        assert steps[1].micros[1] - steps[1].micros[0] >= 5_000_000
        (signal,) = [span for span in spans if span.name == "workflow.signal"]
        assert signal.attributes == {"workflow.name": "work", "run_id": run.id, "event": "go"}
        assert signal.parent_id == whole.span_id
        assert len(spans) == 6
        assert not any(SECRET.encode() in asked.body for asked in web.asked)


async def test_a_run_that_another_process_takes_over_stays_in_its_trace(
    world: World, clock: FakeClock
) -> None:
    reached, calls = asyncio.Event(), 0

    async def blocks() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            reached.set()
            await asyncio.Event().wait()

    @workflow
    async def survives(ctx: Any, input: Any) -> None:
        await ctx.step("before", double, 1)
        await ctx.step("during", blocks)
        await ctx.step("after", double, 1)

    async with collecting() as (web, settings):
        async with world([survives], settings=settings) as one:
            doomed = one.worker(lease="3s")
            await doomed.__aenter__()
            run = await one.start("survives", traceparent=GIVEN)
            await reached.wait()
            crash(one)
        async with world([survives], settings=settings) as two, two.worker(lease="3s"):
            async with flowing(clock):
                await two.result(run.id)
        spans = received(web)
    assert {span.trace_id for span in spans} == {TRACE}
    # What was replayed is told of once, and what was interrupted with the attempt that lasted.
    assert [span.attributes.get("step.name") for span in spans] == [
        None, "before", "during", "after",
    ]  # fmt: skip
    assert len({span.span_id for span in spans}) == 4


async def test_each_attempt_is_a_span_with_the_error_it_ended_in(
    world: World, clock: FakeClock
) -> None:
    async def fails() -> None:
        raise ValueError(SECRET)

    @workflow
    async def tries(ctx: Any, input: Any) -> None:
        await ctx.step("try", fails, retry=Retry(attempts=2, base="30s", jitter=0))

    async with collecting() as (web, settings):
        async with world([tries], settings=settings) as sw, sw.worker(lease="1h"):
            run = await sw.start("tries")
            async with flowing(clock):
                await until(sw, run.id, "failed")
        whole, first, second = received(web)
    assert (whole.failed, whole.attributes["status"]) == (True, "failed")
    assert (first.step, second.step) == (("try", "run", 1), ("try", "run", 2))
    assert first.failed
    assert second.failed
    assert first.attributes["error.type"] == "ValueError"
    assert second.micros[0] - first.micros[1] >= 30_000_000
    assert not any(SECRET.encode() in asked.body for asked in web.asked)


async def test_a_trace_goes_from_a_webhook_to_children_and_outgoing_requests(
    world: World,
) -> None:
    asks = node("ask", "http", url="{{input.url}}/asked")
    starts = node("child", "run", definition="inner", input={"url": "{{input.url}}"})
    async with collecting() as (web, settings):
        async with world(settings=settings) as sw, sw.worker(lease="1h"):
            await sw.definitions.publish(definition(asks, name="inner"), enabled=True)
            await sw.definitions.publish(definition(starts, name="outer"), enabled=True)
            hook = await sw.triggers.create("outer", "webhook", {}, name="hook")
            assert hook.path is not None
            got = await sw.receive(
                hook.path, headers={"Content-Type": "application/json", "TraceParent": GIVEN},
                body=msgspec.json.encode({"url": web.url}),
            )  # fmt: skip
            assert got.run_id is not None
            await sw.result(got.run_id)
            (child,) = (await sw.list_runs(definition="inner")).items
        spans = {span.span_id: span for span in received(web)}
    assert {span.trace_id for span in spans.values()} == {TRACE}
    asked = next(each for each in web.asked if each.path == "/asked")
    assert asked.headers["traceparent"] == f"00-{TRACE}-{step_span(child.id, 'ask', 1)}-01"
    # From what was asked for back to the request that began it.
    way, at = [], step_span(child.id, "ask", 1)
    while at in spans:
        way.append(spans[at].attributes.get("step.name", spans[at].attributes["workflow.name"]))
        at = spans[at].parent_id
    assert (way, at) == (["ask", "inner", "child", "outer"], SPAN)


async def test_a_start_inside_of_a_step_belongs_to_that_step(world: World) -> None:
    async with collecting() as (web, settings):
        async with world([work], settings=settings) as sw:

            @workflow
            async def starts(ctx: Any, input: Any) -> Any:
                async def begin() -> str:
                    assert ctx.traceparent is not None
                    return str((await sw.start("work")).id)

                return await ctx.step("begin", begin)

            async with world([starts], settings=settings) as other, other.worker(lease="1h"):
                outer = await other.start("starts")
                inner = await sw.get_run(await outer.result())
        trace = trace_of(outer.id, None)
        assert inner.trigger["traceparent"] == trace.at(step_span(outer.id, "begin", 1))
        assert {span.trace_id for span in received(web)} == {trace.trace_id}


async def test_a_start_that_a_request_asks_for_belongs_to_its_trace(world: World) -> None:
    async with world([once]) as sw:
        token = request_trace.set(GIVEN)
        by_request = await sw.noun("runs").start("once", 1)  # type: ignore[attr-defined]
        said = await sw.start("once", traceparent=GIVEN.replace(TRACE, SPAN * 2))
        request_trace.reset(token)
        others = [await sw.start("once"), await sw.start("once", traceparent="nonsense")]
        assert (await sw.get_run(by_request.id)).trigger["traceparent"] == GIVEN
        assert (await sw.get_run(said.id)).trigger["traceparent"] != GIVEN
        assert [(await sw.get_run(run.id)).trigger for run in others] == [None, None]


OTHER = GIVEN.replace(TRACE, SPAN * 2)


async def test_whatever_makes_a_run_for_a_request_joins_its_trace(world: World) -> None:
    @workflow
    async def fails(ctx: Any, input: Any) -> None:
        await ctx.step("only", double, 1)
        raise ValueError("no")

    async with world([fails]) as sw, sw.worker(lease="1h"):
        origin = await sw.start("fails", traceparent=GIVEN)
        await until(sw, origin.id, "failed")
        trigger = await sw.triggers.create("fails", "manual")

        async def traces() -> list[Any]:
            made = [
                (await sw.retry(origin.id)).id, (await sw.fork(origin.id, "only")).id,
                (await sw.triggers.fire(trigger.id)).run_id,
            ]  # fmt: skip
            return [(await sw.get_run(each)).trigger.get("traceparent") for each in made]

        token = request_trace.set(OTHER)
        assert await traces() == [OTHER, OTHER, OTHER]
        request_trace.reset(token)
        # A copy stays in the trace of the run that it is made of, if nobody is part of another.
        assert await traces() == [GIVEN, GIVEN, None]


async def test_a_run_that_an_event_starts_joins_the_trace_of_who_emitted_it(world: World) -> None:
    @workflow
    async def emits(ctx: Any, input: Any) -> None:
        await ctx.emit("told", {"by": "code"})

    graph = definition(node("tell", "emit", event="told", payload={"by": "graph"}), name="graph")
    async with collecting() as (_, settings):
        async with world([once, emits], settings=settings) as sw, sw.worker(lease="1h"):
            await sw.triggers.create("once", "event", {"event": "told"})
            token = request_trace.set(GIVEN)
            await sw.emit("told", {"by": "request"})
            request_trace.reset(token)
            await sw.emit("told", {"by": "nobody"})
            code = await sw.start("emits", traceparent=GIVEN)
            await code.result()
            drawn = await sw.start_document(graph)
            await drawn.result()
            found: dict[str, Any] = {}
            while len(found) < 4:
                runs = (await sw.list_runs(definition="once")).items
                found = {run.input["by"]: run.trigger.get("traceparent") for run in runs}
                await asyncio.sleep(0)
    assert found == {
        "request": GIVEN, "nobody": None,
        "code": f"00-{TRACE}-{step_span(code.id, 'emit:told', 1)}-01",
        "graph": trace_of(drawn.id, None).at(step_span(drawn.id, "tell", 1)),
    }  # fmt: skip


async def test_what_is_not_sampled_is_not_sent_and_what_is_not_traced_is_passed_on(
    world: World,
) -> None:
    unsampled = f"00-{TRACE}-{SPAN}-00"
    asks = definition(node("ask", "http", url="{{input.url}}/asked"))
    async with collecting() as (web, settings):
        for each in (settings, Settings(http_allow_private=True)):
            async with world(settings=each) as sw, sw.worker(lease="1h"):
                run = await sw.start_document(asks, {"url": web.url}, traceparent=unsampled)
                await run.result()
                await (await sw.start_document(asks, {"url": web.url})).result()
        sent = [each.headers.get("traceparent") for each in web.asked if each.path == "/asked"]
        assert len(sent) == 4
        assert sent[0] is not None
        assert sent[0].endswith("-00")
        assert sent[1] is not None
        assert sent[2:] == [unsampled, None]
        assert TRACE not in {span.trace_id for span in received(web)}


async def test_a_collector_that_says_no_or_nothing_fails_no_run_and_holds_nobody_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opentelemetry, "CLOSE_SECONDS", 0.1)
    for answer in (reply(503), None):
        async with serving(lambda asked, answer=answer: answer) as web:
            settings = Settings(otlp_endpoint=web.url)
            async with world([once], settings=settings) as sw, sw.worker(lease="1h"):
                assert await (await sw.start("once", 1)).result() == 2
                began = time.monotonic()
            assert time.monotonic() - began < 5


def test_the_endpoint_is_a_setting_of_our_own_or_the_one_that_all_have() -> None:
    standard = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318"}
    assert Settings.read(standard).otlp_endpoint == "http://a:4318"
    own = {**standard, "STEPWELL_OTLP_ENDPOINT": "http://b:4318"}
    assert Settings.read(own).otlp_endpoint == "http://b:4318"
    assert Settings.read({}).otlp_endpoint is None
    with pytest.raises(InvalidInput, match="STEPWELL_OTLP_ENDPOINT"):
        Settings.read({"STEPWELL_OTLP_ENDPOINT": "localhost:4317"})


def test_what_is_not_asked_for_is_not_loaded(python: str) -> None:
    asked = (
        "import sys; from stepwell import Stepwell; Stepwell('sqlite:///x.db');"
        "print([name for name in sys.modules if name.startswith(('prom', 'opentel'))])"
    )
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_extra_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "stepwell.telemetries.opentelemetry")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(InvalidInput, match="extra `otel`"):
        Stepwell("sqlite:///x.db", settings=Settings(otlp_endpoint="http://localhost:4318"))

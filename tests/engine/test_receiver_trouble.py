"""Webhooks in trouble: what senders are told, what is kept of it, and who is to blame."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from stepwell import Stepwell, workflow
from stepwell.catalog import trigger_types
from stepwell.engine.receiver import BUDGET_SECONDS
from stepwell.errors import (
    DefinitionDisabled,
    InputInvalid,
    QuotaExceeded,
    RateLimited,
    RequestUnfit,
    SignatureInvalid,
    StoreUnavailable,
    WebhookUnready,
)
from stepwell.kernel.clock import SECOND
from stepwell.settings import Settings
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import Gate, eventually
from tests.engine.test_receiver import SECRET, github, hook, key, told

__all__ = ["key"]


@workflow
async def other(ctx: Any, input: Any) -> Any:
    return input


async def test_a_webhook_that_only_emits_has_fired_too(world: World, clock: FakeClock) -> None:
    async with world([told]) as sw:
        path = await hook(sw, becomes="events", event="ping")
        with pytest.raises(Exception, match="not JSON"):
            await sw.receive(path, body=b"{")
        broken = await sw.triggers.get("told/hook")
        assert (broken.failures, broken.last_fired_at) == (1, None)
        await sw.receive(path, body=b"{}")
        fired = await sw.triggers.get("told/hook")
        assert (fired.failures, fired.last_error, fired.last_run_id) == (0, None, None)
        assert fired.last_fired_at == clock.now()


async def test_two_webhooks_do_not_swallow_each_others_events(world: World) -> None:
    event = {"specversion": "1.0", "type": "ping", "source": "/s", "id": "1"}
    ways: list[dict[str, Any]] = [
        {"body": b"{}"},
        {"body": b"{}", "headers": [("idempotency-key", "1")]},
        {"body": json.dumps(event).encode(),
         "headers": [("content-type", "application/cloudevents+json")]},
    ]  # fmt: skip
    async with world([told, other]) as sw:
        one = await hook(sw, becomes="events", event="ping")
        made = await sw.triggers.create(
            "other", "webhook", {"becomes": "events", "event": "ping"}, name="hook"
        )
        for way in ways:
            for path in (one, made.path):
                assert (await sw.receive(path, **way)).events == 1
                assert (await sw.receive(path, **way)).events == 0, "it came to this one before"
        assert len((await sw.events.list("ping")).items) == 6


async def test_what_reports_nothing_is_said_to(world: World) -> None:
    async with world([told]) as sw:
        await sw.secrets.set("hook-secret", SECRET)
        path = await hook(sw, verify="github", secret="hook-secret", becomes="events")
        found = await sw.receive(path, **github(b'{"zen": "Anything"}', "1"))
        assert (found.run_id, found.created, found.events) == (None, False, 0)
        assert found.note is not None
        assert "no event" in found.note
        await sw.triggers.update("told/hook", {"becomes": "events"})
        with pytest.raises(RequestUnfit, match="Give it an `event`"):
            await sw.receive(path, body=b"{}")


async def test_nobody_can_blame_a_webhook_by_forged_requests(world: World) -> None:
    async with world([told]) as sw:
        await sw.secrets.set("hook-secret", SECRET)
        path = await hook(sw, verify="github", secret="hook-secret")
        for _ in range(5):
            with pytest.raises(SignatureInvalid):
                await sw.receive(path, **github(b"{}", "1", "forged"))
            with pytest.raises(RequestUnfit):
                await sw.receive(path, method="PUT")
        found = await sw.triggers.get("told/hook")
        assert (found.failures, found.last_error) == (0, None)
        kept = await sw.triggers.refusals("told/hook")
        assert sum(each.count for each in kept) == 10
        # A secret that cannot be used is nobody else's fault.
        await sw.secrets.set("hook-secret", "    ")
        sw.store.clock.advance("10s")
        with pytest.raises(SignatureInvalid):
            await sw.receive(path, **github(b"{}", "1"))
        assert (await sw.triggers.get("told/hook")).failures == 1


async def test_a_sender_is_not_told_what_secrets_are_called(world: World) -> None:
    async with world([told]) as sw:
        path = await hook(sw, verify="github", secret="the-payroll-secret")
        with pytest.raises(WebhookUnready) as refused:
            await sw.receive(path, **github(b"{}", "1"))
        assert "payroll" not in refused.value.message + str(refused.value.details)
        (kept,) = await sw.triggers.refusals("told/hook")
        assert "the-payroll-secret" in kept.message


async def test_a_secret_that_was_just_set_is_used_at_once(world: World) -> None:
    async with world([told]) as sw:
        path = await hook(sw, verify="github", secret="hook-secret")
        with pytest.raises(WebhookUnready):
            await sw.receive(path, **github(b"{}", "1"))
        await sw.secrets.set("hook-secret", SECRET)
        assert (await sw.receive(path, **github(b"{}", "2"))).created
        await sw.secrets.delete("hook-secret")
        with pytest.raises(WebhookUnready):
            await sw.receive(path, **github(b"{}", "3"))


@pytest.mark.parametrize("other", [None, "x" * 43 + "="])
async def test_a_process_without_the_key_of_secrets_says_so(
    world: World, other: str | None
) -> None:
    async with world([told]) as sw:
        await sw.secrets.set("hook-secret", SECRET)
        path = await hook(sw, verify="github", secret="hook-secret")
    async with world([told], settings=Settings(secret_key=other)) as sw:
        with pytest.raises(WebhookUnready, match="not set up rightly"):
            await sw.receive(path, **github(b"{}", "1"))
        (kept,) = await sw.triggers.refusals("told/hook")
        assert kept.code == "secret_key_invalid"
        assert "STEPWELL_SECRET_KEY" in kept.message


async def test_a_sender_is_not_told_how_a_definition_is_enabled(world: World) -> None:
    document = {
        "name": "payroll",
        "triggers": [{"id": "t", "type": "webhook", "path": "pay"}],
        "nodes": [{"id": "a", "type": "transform", "config": {"value": 1}}],
    }
    async with world() as sw:
        await sw.definitions.publish(document)
        await sw.definitions.set_enabled("payroll", False)
        with pytest.raises(DefinitionDisabled) as refused:
            await sw.receive("pay", body=b"{}")
        assert refused.value.message == "This webhook is disabled."
        assert refused.value.details == {}
        (kept,) = await sw.triggers.refusals("payroll/t")
        assert "stepwell definitions enable payroll" in kept.message


async def test_a_refusal_keeps_nothing_of_what_was_sent(world: World) -> None:
    text = {"type": "string", "maxLength": 3}
    document = {
        "name": "graph",
        "inputs": {
            "type": "object", "required": ["who"],
            "properties": {"password": text, "pin": {"enum": [1, 2]}, "who": {"type": "string"}},
        },
        "triggers": [{"id": "t", "type": "webhook", "path": "graph"}],
        "nodes": [{"id": "a", "type": "transform", "config": {"value": 1}}],
    }  # fmt: skip
    async with world() as sw:
        await sw.definitions.publish(document)
        with pytest.raises(InputInvalid, match="hunter2"):  # whoever has sent it may read it
            await sw.receive("graph", body=b'{"password": "hunter2", "pin": 4711}')
        (kept,) = await sw.triggers.refusals("graph/t")
        found = await sw.triggers.get("graph/t")
        assert "hunter2" not in f"{kept.message} {found.last_error}"
        assert "4711" not in f"{kept.message} {found.last_error}"
        for named in ("password: the value is longer than 3", "pin: ", '"who" is a required'):
            assert named in kept.message


class Broken(Exception):
    """What no trigger type should raise."""


@pytest.mark.parametrize("verb", ["secrets", "receive", "rate"])
async def test_a_type_that_throws_refuses_and_harms_nobody_else(
    world: World, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    async with world([told]) as sw:
        path = await hook(sw)

        def throw(*_: Any) -> Any:
            raise Broken("hunter2")

        with monkeypatch.context() as patch:
            patch.setattr(type(trigger_types()["webhook"]), verb, throw)
            with pytest.raises(WebhookUnready) as refused:
                await sw.receive(path)
        assert "hunter2" not in refused.value.message
        (kept,) = await sw.triggers.refusals("told/hook")
        assert kept.code == "trigger_invalid"
        assert "Broken" in kept.message
        assert "hunter2" not in kept.message
        assert (await sw.receive(path)).created


async def test_a_sender_is_answered_in_time_and_its_delivery_is_not_doubled(
    world: World, clock: FakeClock
) -> None:
    async with world([told]) as sw:
        path, gate = await hook(sw), Gate(sw.store)
        gate.shut()
        late = asyncio.ensure_future(sw.receive(path, body=b"{}"))
        await eventually(lambda: gate.waiting)
        clock.advance(BUDGET_SECONDS)
        with pytest.raises(StoreUnavailable, match="Send the request again"):
            await late
        again = asyncio.ensure_future(sw.receive(path, body=b"{}"))
        gate.open()
        found = await again
        assert found.run_id is not None
        assert not found.created, "it was durable in the end"
        assert (await sw.count_runs())["told"] == {"pending": 1}
        trigger = await sw.triggers.get("told/hook")
        assert trigger.last_run_id == found.run_id
        assert await sw.triggers.refusals("told/hook") == [], "nobody has refused it"


async def test_a_store_that_does_not_even_know_the_webhook_in_time_is_away(
    world: World, clock: FakeClock
) -> None:
    async with world([told]) as sw:
        path, asked = await hook(sw), asyncio.Event()

        async def never(*_: Any) -> Any:
            asked.set()
            await asyncio.get_running_loop().create_future()

        real, sw.store.triggers.trigger_at = sw.store.triggers.trigger_at, never
        late = asyncio.ensure_future(sw.receive(path))
        await asked.wait()
        clock.advance(BUDGET_SECONDS)
        with pytest.raises(StoreUnavailable):
            await late
        sw.store.triggers.trigger_at = real
        assert (await sw.receive(path)).created


async def test_a_rate_that_was_raised_helps_at_once(world: World) -> None:
    async with world([told]) as sw:
        path = await hook(sw, rate="1/1h", dedupe=False)
        await sw.receive(path)
        with pytest.raises(RateLimited):
            await sw.receive(path)
        await sw.triggers.update("told/hook", {"rate": "5/1h", "dedupe": False})
        for _ in range(5):
            await sw.receive(path)
        with pytest.raises(RateLimited):
            await sw.receive(path)


async def test_a_rate_does_not_last_longer_because_the_clock_was_set_back(
    world: World, clock: FakeClock
) -> None:
    async with world([told]) as sw:
        path = await hook(sw, rate="2/10s", dedupe=False)
        for _ in range(2):
            await sw.receive(path, body=b"{}")
        with pytest.raises(RateLimited):
            await sw.receive(path, body=b"{}")
        clock._now -= 3600 * SECOND
        assert (await sw.receive(path, body=b"{}")).created
        with pytest.raises(RateLimited) as refused:
            await sw.receive(path, body=b"{}")
        assert refused.value.details["retry_after"] == 5


async def test_a_rate_is_a_bucket_that_holds_as_many_and_fills_evenly(
    world: World, clock: FakeClock
) -> None:
    async with world([told]) as sw:
        path = await hook(sw, rate="6/1m", dedupe=False)
        taken = 0
        for _ in range(60):  # a minute of one request each second
            try:
                await sw.receive(path)
                taken += 1
            except RateLimited:
                pass
            clock.advance("1s")
        # Six that it held, and one every ten seconds.
        assert taken == 11


async def test_a_plan_without_webhooks_refuses_all_of_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWELL_PLAN", '{"name": "none", "webhooks_per_minute": 0}')
    async with world([told]) as sw:
        path = await hook(sw)
        for _ in range(2):
            with pytest.raises(QuotaExceeded, match="plan 'none' allows 0 webhook requests"):
                await sw.receive(path)
        assert await sw.store.triggers.take("any", 0, 60, 0) == 60
        await _refused(sw, "quota_exceeded")


async def _refused(sw: Stepwell, code: str) -> None:
    kept = await sw.triggers.refusals("told/hook")
    assert {each.code for each in kept} == {code}

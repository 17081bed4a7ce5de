"""Webhooks: a request that is believed starts one run; whatever is not is refused, and says why."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import random
from typing import Any

import pytest

from stepwell import Stepwell, workflow
from stepwell.engine.receiver import Received
from stepwell.errors import (
    RateLimited,
    RequestUnfit,
    SignatureInvalid,
    StepwellError,
    TriggerDisabled,
    TriggerExists,
    TriggerNotFound,
    WebhookUnready,
)
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.triggers.signing import signed

SECRET = "a very long secret"


@workflow
async def told(ctx: Any, input: Any) -> Any:
    return input


def github(body: bytes, delivery: str, secret: str = SECRET) -> dict[str, Any]:
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "body": body,
        "headers": [
            ("X-GitHub-Event", "push"), ("X-GitHub-Delivery", delivery),
            ("X-Hub-Signature-256", f"sha256={signature}"), ("Content-Type", "application/json"),
        ],
    }  # fmt: skip


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWELL_SECRET_KEY", "k" * 43 + "=")


async def hook(sw: Stepwell, **config: Any) -> str:
    """The path of a webhook with that config."""
    made = await sw.triggers.create("told", "webhook", config, name="hook")
    assert made.path is not None
    return made.path


async def test_a_request_starts_a_run_with_what_it_says(world: World) -> None:
    async with world([told]) as sw:
        path = await hook(sw)
        assert len(path) >= 32, "nobody can guess it"
        found = await sw.receive(
            path, headers=[("content-type", "application/json"), ("authorization", "hidden")],
            body=b'{"n": 1}', query=b"a=1&a=2",
        )  # fmt: skip
        run = await sw.get_run(found.run_id)
        assert found.created
        assert run.input == {
            "n": 1, "query": {"a": ["1", "2"]}, "headers": {"content-type": "application/json"},
        }  # fmt: skip
        assert run.trigger["name"] == "hook"
        trigger = await sw.triggers.get("told/hook")
        assert trigger.last_run_id == run.id


async def test_the_same_delivery_starts_one_run(world: World) -> None:
    async with world([told]) as sw:
        path = await hook(sw)
        one = await sw.receive(path, body=b"{}", headers=[("idempotency-key", "1")])
        same = await sw.receive(path, body=b'{"other": 1}', headers=[("idempotency-key", "1")])
        other = await sw.receive(path, body=b"{}", headers=[("idempotency-key", "2")])
        assert (same.run_id, same.created) == (one.run_id, False)
        assert other.run_id != one.run_id
        # Without an id, what it says has to do.
        first = await sw.receive(path, body=b'{"n": 1}')
        again = await sw.receive(path, body=b'{"n": 1}')
        assert (again.run_id, again.created) == (first.run_id, False)


async def test_requests_that_all_count_do_so(world: World) -> None:
    async with world([told]) as sw:
        path = await hook(sw, dedupe=False)
        found = {(await sw.receive(path, body=b"{}")).run_id for _ in range(3)}
        assert len(found) == 3


async def test_events_of_requests_that_all_count_do_so_too(world: World) -> None:
    async with world([told]) as sw:
        path = await hook(sw, dedupe=False, becomes="events", event="ping")
        assert [(await sw.receive(path, body=b"{}")).events for _ in range(3)] == [1, 1, 1]
        assert len((await sw.events.list("ping")).items) == 3


async def test_whoever_is_not_believed_is_refused_and_that_is_listed(
    world: World, clock: FakeClock
) -> None:
    async with world([told]) as sw:
        await sw.secrets.set("hook-secret", SECRET)
        path = await hook(sw, verify="github", secret="hook-secret", path="gh/push")
        assert path == "gh/push"
        with pytest.raises(SignatureInvalid):
            await sw.receive(path, **github(b"{}", "1", "another secret"))
        with pytest.raises(SignatureInvalid):
            await sw.receive(path, body=b"{}")
        with pytest.raises(RequestUnfit, match="takes POST"):
            await sw.receive(path, method="PUT", **github(b"{}", "1"))
        with pytest.raises(StepwellError) as wrong:
            await sw.receive(path, **github(b"{", "2"))
        assert wrong.value.code == "body_invalid"
        with pytest.raises(TriggerNotFound):
            await sw.receive("gh/pull")
        assert (await sw.receive(path, **github(b'{"n": 1}', "3"))).created
        refusals = await sw.triggers.refusals("told/hook")
        assert sorted((each.code, each.count) for each in refusals) == [
            ("body_invalid", 1), ("request_unfit", 1), ("signature_invalid", 1),
            ("signature_invalid", 1),
        ]  # fmt: skip
        assert SECRET not in str(refusals)
        await sw.triggers.disable("told/hook")
        with pytest.raises(TriggerDisabled):
            await sw.receive(path, **github(b'{"n": 1}', "4"))
        assert (await sw.triggers.refusals("told/hook"))[0].code == "trigger_disabled"


async def test_a_secret_can_be_changed_without_a_gap(world: World) -> None:
    async with world([told]) as sw:
        await sw.secrets.set("new", "the new secret")
        path = await hook(sw, verify="github", secret=["new", "old"])
        with pytest.raises(WebhookUnready):
            await sw.receive(path, **github(b"{}", "1", "the new secret"))
        await sw.secrets.set("old", "the old secret")
        sw.store.clock.advance("10s")
        for number, secret in enumerate(("the new secret", "the old secret")):
            assert (await sw.receive(path, **github(b"{}", f"{number}", secret))).created


async def test_more_requests_than_the_rate_are_refused_until_it_is_time(
    world: World, clock: FakeClock
) -> None:
    async with world([told]) as sw:
        path = await hook(sw, rate="3/30s", dedupe=False)
        for _ in range(3):
            await sw.receive(path)
        for _ in range(5):
            with pytest.raises(RateLimited) as limited:
                await sw.receive(path)
            assert 0 < limited.value.details["retry_after"] <= 10
        clock.advance("10s")
        await sw.receive(path)
        with pytest.raises(RateLimited):
            await sw.receive(path)
        refusals = await sw.triggers.refusals("told/hook")
        assert sum(each.count for each in refusals) == 6


async def test_a_rate_holds_across_processes(world: World) -> None:
    async with world([told]) as one, world([told]) as two:
        path = await hook(one, rate="10/1h", dedupe=False)
        found = await asyncio.gather(
            *(sw.receive(path) for sw in (one, two) for _ in range(20)), return_exceptions=True
        )
        taken = [each for each in found if not isinstance(each, Exception)]
        assert len(taken) == 10


async def test_two_webhooks_cannot_have_one_path(world: World) -> None:
    async with world([told]) as sw:
        await hook(sw, path="same")
        with pytest.raises(TriggerExists, match="told/hook"):
            await sw.triggers.create("told", "webhook", {"path": "same"}, name="other")
        graph = {
            "name": "graph", "triggers": [{"id": "t", "type": "webhook", "path": "same"}],
            "nodes": [{"id": "a", "type": "transform", "config": {"value": 1}}],
        }  # fmt: skip
        with pytest.raises(TriggerExists, match="told/hook"):
            await sw.definitions.publish(graph)


async def test_deliveries_of_github_become_events(world: World) -> None:
    merged = {
        "action": "closed", "repository": {"full_name": "a/b"},
        "pull_request": {"merged": True, "number": 7, "title": "T", "user": {"login": "ann"}},
    }  # fmt: skip
    body = json.dumps(merged).encode()
    async with world([told]) as sw:
        await sw.secrets.set("hook-secret", SECRET)
        path = await hook(sw, verify="github", secret="hook-secret", becomes="events")
        request = github(body, "77")
        request["headers"][0] = ("X-GitHub-Event", "pull_request")
        found = await sw.receive(path, **request)
        assert (found.run_id, found.events) == (None, 1)
        assert (await sw.receive(path, **request)).events == 0, "it was delivered before"
        request["headers"][1] = ("X-GitHub-Delivery", "78")
        assert (await sw.receive(path, **request)).events == 1, "another one may say the same"
        events = (await sw.events.list("pr_merged")).items
        assert [event.payload["number"] for event in events] == [7, 7]


async def test_cloudevents_become_events(world: World) -> None:
    async with world([told]) as sw:
        path = await hook(sw, becomes="both")
        binary = [("ce-specversion", "1.0"), ("ce-type", "a.b"), ("ce-source", "/s"),
                  ("ce-id", "1"), ("content-type", "application/json")]  # fmt: skip
        found = await sw.receive(path, headers=binary, body=b'{"n": 1}')
        assert found.created
        structured = {"specversion": "1.0", "type": "a.b", "source": "/s", "id": "2", "data": 5}
        await sw.receive(
            path, headers=[("content-type", "application/cloudevents+json")],
            body=json.dumps(structured).encode(),
        )  # fmt: skip
        events = (await sw.events.list("a.b")).items
        about = {"type": "a.b", "source": "/s", "id": "1", "datacontenttype": "application/json"}
        assert [each.payload for each in events] == [
            {"data": 5, "cloudevent": {"type": "a.b", "source": "/s", "id": "2"}},
            {"n": 1, "cloudevent": about},
        ]


SIZES = [0] * 12 + [300] * 6 + [5_000] * 3 + [60_000]


def traffic(rng: random.Random) -> list[tuple[int, dict[str, Any]]]:
    """10,000 requests with the number that each is about, None of those that are forged.

    3,000 are sent again, right behind the first or much later; some bodies are those of others,
    under an id of their own. 1,000 are forged, in different ways.
    """
    good = []
    for n in range(6_000):
        body = json.dumps({"n": n - n % 2, "pad": "x" * rng.choice(SIZES)}).encode()
        good.append((float(n), n, github(body, f"d{n}")))
    again = []
    for at, n, request in rng.sample(good, 3_000):
        later = rng.choice([0.1, rng.uniform(0, 20), rng.uniform(0, 6_000)])
        again.append((at + later, n, request))
    forged = []
    for number in range(1_000):
        request = github(json.dumps({"n": -1 - number}).encode(), f"f{number}", "another secret")
        if number % 3 == 1:  # the signature of something else
            request["headers"] = rng.choice(good)[2]["headers"]
        elif number % 3 == 2:  # none at all
            request["headers"] = request["headers"][:2]
        forged.append((rng.uniform(0, 6_000), -1, request))
    return [each[1:] for each in sorted([*good, *again, *forged], key=lambda each: each[0])]


async def test_ten_thousand_deliveries_start_exactly_the_right_runs(world: World) -> None:
    """To three receivers on one store, on each of the two, many hundred at a time."""
    requests = traffic(random.Random(7))
    assert len(requests) == 10_000
    async with world([told]) as one, world([told]) as two, world([told]) as three:
        await one.secrets.set("hook-secret", SECRET)
        path = await hook(one, verify="github", secret="hook-secret", map={"n": "$.n"})
        started: dict[int, set[str]] = {}
        created = forged = 0
        for begin in range(0, len(requests), 500):
            part = requests[begin : begin + 500]
            outcomes = await asyncio.gather(
                *(sw.receive(path, **request)
                  for (_, request), sw in zip(part, itertools.cycle([one, two, three]))),
                return_exceptions=True,
            )  # fmt: skip
            for (n, _), outcome in zip(part, outcomes, strict=True):
                if n < 0:
                    assert isinstance(outcome, SignatureInvalid)
                    forged += 1
                else:
                    assert isinstance(outcome, Received)
                    created += outcome.created
                    started.setdefault(n, set()).add(str(outcome.run_id))
        assert created == len(started) == 6_000
        assert {len(ids) for ids in started.values()} == {1}
        assert (await two.count_runs())["told"] == {"pending": 6_000}
        for n in range(0, 6_000, 100):
            assert (await three.get_run(*started[n])).input == {"n": n - n % 2}
        for sw in (two, three):
            await sw.triggers.refusals("told/hook")  # what it has gathered is written first
        refusals = await one.triggers.refusals("told/hook", 1000)
        assert sum(each.count for each in refusals) == forged == 1_000


QUESTION = b'{"token": "t", "type": "url_verification", "challenge": "3eZbrw1aB"}'


@pytest.mark.parametrize("becomes", ["run", "both", "events"])
async def test_slack_hears_what_it_asks_for_and_nothing_comes_of_it(
    world: World, clock: FakeClock, becomes: str
) -> None:
    async with world([told]) as sw:
        await sw.secrets.set("hook", SECRET)
        path = await hook(
            sw, verify="slack", secret="hook", becomes=becomes,
            **({} if becomes == "run" else {"event": "said"}),
        )  # fmt: skip
        seconds = clock.now() // 1_000_000

        def sent(body: bytes) -> dict[str, Any]:
            return {"body": body, "headers": signed("slack", body, seconds, SECRET).pairs}

        with pytest.raises(SignatureInvalid):
            await sw.receive(path, body=QUESTION, headers=signed("slack", QUESTION, seconds).pairs)
        before = await sw.triggers.get("told/hook")
        found = await sw.receive(path, **sent(QUESTION))
        assert found == Received(None, False, challenge="3eZbrw1aB")
        assert await sw.triggers.get("told/hook") == before
        assert len(await sw.triggers.refusals("told/hook")) == 1, "of the wrong signature"
        assert ((await sw.list_runs()).items, (await sw.events.list()).items) == ([], [])
        # Whatever else it may be is no question.
        other = await sw.receive(path, **sent(b'{"type": "url_verification", "challenge": 5}'))
        assert other.challenge is None
        assert other.created

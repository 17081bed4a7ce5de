"""Requests that count once, and edits that undo nobody else's: Idempotency-Key and If-Match."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepwell import RunFailed, workflow
from tests.surfaces.serving import Served, served

pytestmark = pytest.mark.anyio


@workflow(name="double")
async def double(ctx: Any, input: Any) -> Any:
    return await ctx.step("twice", lambda: input["n"] * 2)


@pytest.fixture
async def server(store_url: str) -> AsyncIterator[Served]:
    async with served(store_url, [double]) as found:
        yield found


async def test_a_start_with_a_key_that_was_used_gives_back_its_run(server: Served) -> None:
    async def start() -> tuple[int, Any]:
        answer = await server.ask(
            "POST", "/api/definitions/double/runs", {"input": {"n": 1}},
            headers={"Idempotency-Key": "once"},
        )  # fmt: skip
        return answer.status_code, answer.json()["id"]

    found = await asyncio.gather(*(start() for _ in range(10)))
    assert sorted(status for status, _ in found) == [200] * 9 + [201]
    assert len({run_id for _, run_id in found}) == 1


async def test_a_repeated_start_says_how_its_run_is_now(server: Served) -> None:
    path, headers = "/api/definitions/double/runs", {"Idempotency-Key": "again"}
    first = await server.ask("POST", path, {"input": {"n": 4}}, headers=headers)
    await server.host.first.result(first.json()["id"], timeout=30)
    again = await server.ask("POST", path, {"input": {"n": 9}}, headers=headers)
    assert again.status_code == 200
    assert again.json() == {
        "id": first.json()["id"], "created": False, "status": "completed", "output": 8,
        "error": None,
    }  # fmt: skip


async def test_whatever_makes_a_run_does_so_once_for_a_key(server: Served) -> None:
    made = await server.ask("POST", "/api/definitions/double/runs", {"input": {}})
    run_id = made.json()["id"]
    with pytest.raises(RunFailed):
        await server.host.first.result(run_id, timeout=30)
    await server.ask(
        "POST", "/api/triggers", {"definition": "double", "type": "manual", "name": "by-hand"}
    )
    for path, body in (
        (f"/api/runs/{run_id}/retry", {}),
        (f"/api/runs/{run_id}/fork", {"from_step": "twice", "input": {"n": 1}}),
        ("/api/triggers/double%2Fby-hand/fire", {"payload": {"n": 2}}),
        ("/api/definitions/double/runs", {"input": {"n": 3}}),
    ):
        found = []
        for key in ("one", "one", "two"):
            answer = await server.ask("POST", path, body, headers={"Idempotency-Key": key})
            assert answer.status_code == (201 if answer.json()["created"] else 200), answer.text
            found.append(answer.headers["location"])
        assert found[0] == found[1] != found[2]
    runs = await server.host.first.list_runs(definition="double")
    assert len(runs.items) == 1 + 4 * 2


@pytest.mark.parametrize("key", ["", "x" * 201])
async def test_a_key_that_names_nothing_is_refused(server: Served, key: str) -> None:
    made = await server.ask("POST", "/api/definitions/double/runs", {"input": {}})
    run_id = made.json()["id"]
    with pytest.raises(RunFailed):
        await server.host.first.result(run_id, timeout=30)
    await server.ask(
        "POST", "/api/triggers", {"definition": "double", "type": "manual", "name": "by-hand"}
    )
    for path, body in (
        ("/api/definitions/double/runs", {"input": {"n": 3}}),
        (f"/api/runs/{run_id}/retry", {}),
        (f"/api/runs/{run_id}/fork", {"from_step": "twice", "input": {"n": 1}}),
        ("/api/triggers/double%2Fby-hand/fire", {"payload": {"n": 2}}),
        ("/api/events", {"type": "paid"}),
    ):
        answer = await server.ask("POST", path, body, headers={"Idempotency-Key": key})
        assert (answer.status_code, answer.json().get("code")) == (422, "invalid_name"), path
    runs = await server.host.first.list_runs(definition="double")
    assert len(runs.items) == 1


async def test_an_event_is_emitted_once_for_a_key(server: Served) -> None:
    for key, new in (("one", True), ("one", False), ("two", True)):
        answer = await server.ask(
            "POST", "/api/events", {"type": "paid", "key": "order-7"},
            headers={"Idempotency-Key": key},
        )  # fmt: skip
        assert (answer.status_code, answer.json()) == (202, {"emitted": new})
    found = (await server.ask("GET", "/api/events?type=paid")).json()["items"]
    assert [each["key"] for each in found] == ["order-7"] * 2


async def test_an_edit_of_what_was_changed_meanwhile_is_refused_with_412(server: Served) -> None:
    document = {
        "name": "shape",
        "nodes": [{"id": "a", "type": "transform", "config": {"value": 1}}],
    }
    made = await server.ask("POST", "/api/definitions", {"name": "shape", "document": document})
    assert made.status_code == 201
    draft = await server.ask("GET", "/api/definitions/shape/draft")
    tag = draft.headers["etag"]
    changed = {**document, "title": "One"}
    first = await server.ask(
        "PUT", "/api/definitions/shape/draft", {"document": changed}, headers={"If-Match": tag}
    )
    assert first.status_code == 200
    second = await server.ask(
        "PUT", "/api/definitions/shape/draft", {"document": {**document, "title": "Two"}},
        headers={"If-Match": tag},
    )  # fmt: skip
    assert (second.status_code, second.json()["code"]) == (412, "conflict")
    assert second.json()["details"]["etag"] == first.json()["etag"]


async def test_definitions_and_triggers_change_their_etag_with_every_change(
    server: Served,
) -> None:
    node = {"id": "a", "type": "transform", "config": {"value": 1}}
    document = {"name": "shape", "nodes": [node]}
    await server.ask("POST", "/api/definitions/publish", {"document": document})
    trigger = {"definition": "shape", "type": "schedule", "config": {"cron": "0 9 * * *"}}
    made = await server.ask("POST", "/api/triggers", trigger)
    place = f"/api/triggers/{made.json()['id']}"
    on, off = {"enabled": True}, {"enabled": False}
    nine, ten = ({"config": {"cron": f"0 {hour} * * *"}} for hour in (9, 10))
    enabled = "/api/definitions/shape/enabled"
    for where, method, path, body, other, another in (
        ("/api/definitions/shape", "PUT", enabled, off, enabled, on),
        ("/api/definitions/shape", "PUT", enabled, on, enabled, off),
        (place, "PUT", place, ten, place, nine),
        (place, "POST", f"{place}/disable", {}, f"{place}/enable", {}),
        (place, "POST", f"{place}/enable", {}, f"{place}/disable", {}),
    ):
        old = (await server.ask("GET", where)).headers["etag"]
        done = await server.ask(method, path, body, headers={"If-Match": f'"other", {old}'})
        assert done.status_code == 200, done.text
        assert done.headers["etag"] == (await server.ask("GET", where)).headers["etag"] != old
        # What is so already is no conflict: its answer may have got lost.
        again = await server.ask(method, path, body, headers={"If-Match": old})
        assert again.status_code == 200
        for stale in (old, f'{old}, "other"'):
            late = await server.ask(method, other, another, headers={"If-Match": stale})
            assert (late.status_code, late.json()["code"]) == (412, "conflict"), path
    gone = await server.ask("DELETE", place, headers={"If-Match": made.headers["etag"]})
    assert gone.status_code == 412
    found = await server.ask("GET", place)
    gone = await server.ask("DELETE", place, headers={"If-Match": found.headers["etag"]})
    assert gone.status_code == 204


async def test_what_a_definition_is_published_from_is_named_by_its_etag_or_hash(
    server: Served,
) -> None:
    async def publish(value: int, **headers: str) -> Any:
        node = {"id": "a", "type": "transform", "config": {"value": value}}
        document = {"name": "shape", "nodes": [node]}
        path = "/api/definitions/publish"
        return await server.ask("POST", path, {"document": document}, headers=headers)

    def tags(answer: Any) -> tuple[str, str]:
        return answer.headers["etag"], f'"{answer.json()["revision"]["hash"]}"'

    first = done = await publish(0)
    for value in (1, 2):
        # Editing goes on from what publishing has answered, or from what is there.
        done = await publish(value, **{"If-Match": tags(done)[value % 2]})
        assert done.status_code == 200, done.text
        assert (
            done.headers["etag"]
            == ((await server.ask("GET", "/api/definitions/shape")).headers["etag"])
        )
    for stale in tags(first):
        late = await publish(3, **{"If-Match": stale})
        assert (late.status_code, late.json()["code"]) == (412, "conflict")


async def test_a_repeated_start_gives_back_its_run_even_if_it_would_be_refused_now(
    server: Served,
) -> None:
    document = {
        "name": "strict", "inputs": {"properties": {"n": {"type": "integer"}}},
        "nodes": [{"id": "x", "type": "transform", "config": {"value": 1}}],
    }  # fmt: skip
    await server.ask("POST", "/api/definitions/publish", {"document": document})

    async def start(input: Any, key: str) -> tuple[int, Any]:
        answer = await server.ask(
            "POST", "/api/definitions/strict/runs", {"input": input},
            headers={"Idempotency-Key": key},
        )  # fmt: skip
        return answer.status_code, answer.json().get("id")

    status, run_id = await start({"n": 1}, "lost")
    assert status == 201
    assert await start({"n": "none"}, "lost") == (200, run_id)
    assert await start({"n": "none"}, "new") == (422, None)
    await server.host.first.definitions.set_enabled("strict", enabled=False)
    assert await start({"n": 1}, "lost") == (200, run_id)
    assert await start({"n": 1}, "new") == (409, None)


async def test_a_condition_that_names_nothing_is_refused_and_writes_nothing(
    server: Served,
) -> None:
    node = {"id": "a", "type": "transform", "config": {"value": 1}}
    document = {"name": "shape", "nodes": [node]}
    await server.ask("POST", "/api/definitions/publish", {"document": document})
    many = ", ".join(f'"{number}"' for number in range(11))
    for tags, status in {
        "": 422, '""': 422, 'W/""': 422, ",": 422, '"a", ""': 422, '"a", *': 422,
        many: 422, '"*"': 412,
    }.items():  # fmt: skip
        answer = await server.ask(
            "PUT", "/api/definitions/shape/enabled", {"enabled": False}, headers={"If-Match": tags}
        )
        assert answer.status_code == status, tags
        assert "If-Match" in answer.json()["detail"] or status == 412
        found = await server.ask("GET", "/api/definitions/shape")
        assert found.json()["enabled"], tags
    done = await server.ask(
        "PUT", "/api/definitions/shape/enabled", {"enabled": False}, headers={"If-Match": "*"}
    )
    assert done.status_code == 200

"""Requests and answers: what every path has in common, over a real connection."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepwell import workflow
from stepwell.kernel.clock import SECOND
from tests.surfaces.serving import ELSEWHERE, Served, served
from tests.triggers.signing import SECRET, signed

pytestmark = pytest.mark.anyio


@workflow(name="double")
async def double(ctx: Any, input: Any) -> Any:
    return await ctx.step("twice", lambda: input["n"] * 2)


@workflow(name="patient")
async def patient(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("word", "word")


@pytest.fixture
async def server(store_url: str) -> AsyncIterator[Served]:
    async with served(store_url, [double, patient], hosts=["steps.example"]) as found:
        yield found


async def test_a_start_that_waits_answers_with_the_output(server: Served) -> None:
    answer = await server.ask(
        "POST", "/api/definitions/double/runs", {"input": {"n": 21}}, headers={"Prefer": "wait=30"}
    )
    assert answer.status_code == 201
    assert answer.headers["preference-applied"] == "wait"
    run = answer.json()
    assert (run["status"], run["output"], run["created"]) == ("completed", 42, True)
    assert answer.headers["location"] == f"/api/runs/{run['id']}"
    found = (await server.ask("GET", answer.headers["location"])).json()
    assert (found["definition"], found["input"], found["output"]) == ("double", {"n": 21}, 42)
    assert found["created_at"].endswith("Z")


async def test_a_start_whose_run_takes_longer_answers_with_202(server: Served) -> None:
    answer = await server.ask(
        "POST", "/api/definitions/patient/runs", {}, headers={"Prefer": "respond-async, wait=0.01"}
    )
    assert answer.status_code == 202
    run = answer.json()
    sent = await server.ask("POST", f"/api/runs/{run['id']}/signals/word", {"payload": "go"})
    assert (sent.status_code, sent.json()) == (202, {"delivered": True})
    assert await server.host.first.result(run["id"], timeout=30) == "go"
    late = await server.ask("POST", f"/api/runs/{run['id']}/signals/word", {"payload": "go"})
    assert (late.status_code, late.json()["code"]) == (409, "signal_not_delivered")


async def test_runs_are_filtered_and_paged(server: Served) -> None:
    for number in range(5):
        await server.ask("POST", "/api/definitions/double/runs", {"input": {"n": number}})
    await server.ask("POST", "/api/definitions/patient/runs", {})

    async def numbers(query: str) -> list[Any]:
        answer = await server.ask("GET", f"/api/runs?{query}")
        assert answer.status_code == 200, answer.text
        return [run["input"] and run["input"]["n"] for run in answer.json()["items"]]

    assert await numbers("definition=double") == [4, 3, 2, 1, 0]
    assert await numbers("input.n=3") == [3]
    assert await numbers("definition=patient") == [None]
    assert len(await numbers("status=pending,running,completed,waiting")) == 6
    assert await numbers("until=2020-01-01T00:00:00Z") == []
    assert await numbers("until=2020-01-01") == []
    assert len(await numbers("since=2020-01-01")) == 6
    first = (await server.ask("GET", "/api/definitions/double/runs?limit=3")).json()
    rest = await server.ask(
        "GET", f"/api/definitions/double/runs?limit=3&cursor={first['next_cursor']}"
    )
    assert [run["input"]["n"] for run in rest.json()["items"]] == [1, 0]
    assert rest.json()["next_cursor"] is None


LARGE = b'{"input": "' + b"x" * 2**21 + b'"}'
PROBLEMS: list[tuple[str, str, bytes | None, int, str]] = [
    ("GET", "/api/nothing", None, 404, "route_not_found"),
    ("GET", "/api/runs/../../x", None, 404, "route_not_found"),
    ("PATCH", "/api/runs", None, 405, "method_not_allowed"),
    ("GET", "/api/runs/none", None, 404, "run_not_found"),
    ("GET", "/api/runs?limit=0", None, 422, "invalid_input"),
    ("GET", "/api/runs?limit=null", None, 422, "invalid_input"),
    ("GET", "/api/runs?staus=failed", None, 422, "invalid_input"),
    ("GET", "/api/runs?status=odd", None, 422, "invalid_input"),
    ("GET", "/api/runs?since=yesterday", None, 422, "invalid_input"),
    ("GET", "/api/runs?%ff=1", None, 422, "invalid_input"),
    ("GET", "/api/runs?limit=1&limit=2", None, 422, "invalid_input"),
    ("GET", "/api/definitions/none", None, 404, "unknown_definition"),
    ("POST", "/api/definitions/none/runs", b"{}", 404, "unknown_definition"),
    ("POST", "/api/definitions/double/runs", b"{", 400, "body_invalid"),
    ("POST", "/api/definitions/double/runs", b"\xff\xfe", 400, "body_invalid"),
    ("POST", "/api/definitions/double/runs", b"[1]", 422, "invalid_input"),
    ("POST", "/api/definitions/double/runs", b'{"inptu": 1}', 422, "invalid_input"),
    ("POST", "/api/definitions/double/runs", b'{"priority": "high"}', 422, "invalid_input"),
    ("POST", "/api/definitions/double/runs", b'{"input": ' + b"[" * 100_000, 400, "body_invalid"),
    ("POST", "/api/definitions/double/runs", LARGE, 413, "input_too_large"),
    ("POST", "/api/definitions/double/runs", b"x" * (9 * 2**20), 413, "body_too_large"),
    ("GET", "/api/gates/%00", None, 422, "invalid_input"),
    ("GET", "/api/gates?run_id=%00", None, 422, "invalid_input"),
    ("GET", "/api/triggers?definition=%0A", None, 422, "invalid_input"),
    ("GET", "/api/triggers/%1B", None, 422, "invalid_input"),
    ("GET", "/api/runs?input.n=%00", None, 422, "invalid_input"),
    ("GET", "/api/runs?input.%00=1", None, 422, "invalid_input"),
    ("DELETE", "/api/secrets/%00", None, 422, "invalid_input"),
    ("POST", "/api/gates/%00/decide", b'{"decision": "deny"}', 422, "invalid_input"),
    ("POST", "/api/gates", b'{"token": "\\u0000.x", "decision": "deny"}', 422, "invalid_input"),
    ("GET", "/api/definitions/none/runs", None, 404, "unknown_definition"),
    ("HEAD", "/login/once", None, 405, ""),
    ("POST", "/hooks/%00", b"{}", 404, "trigger_not_found"),
    ("POST", "/hooks/none", b"{}", 404, "trigger_not_found"),
    ("POST", "/hooks/@nowhere/none", b"{}", 404, "trigger_not_found"),
]  # fmt: skip


async def test_what_cannot_be_answered_is_a_problem(server: Served) -> None:
    for method, path, body, status, code in PROBLEMS:
        headers = {"content-type": "application/json"}
        answer = await server.ask(method, path, headers=headers, content=body)
        if method == "HEAD":
            assert (answer.status_code, answer.content) == (status, b"")
            continue
        found = answer.json()
        assert (answer.status_code, found["status"], found["code"]) == (status, status, code)
        assert answer.headers["content-type"] == "application/problem+json"
        assert found["request_id"] == answer.headers["x-request-id"]
        assert len(found["detail"]) < 2000


async def test_what_stands_in_the_path_is_not_said_again(server: Served) -> None:
    for query, said in (
        ("definition=double", "'definition' stands in the path; leave it out of the query."),
        ("definitions=double", "There is no query parameter 'definitions'."),
        ("limits=2", "There is no query parameter 'limits'. Did you mean 'limit'?"),
    ):
        answer = await server.ask("GET", f"/api/definitions/double/runs?{query}")
        assert (answer.status_code, answer.json()["detail"]) == (422, said)


async def test_head_is_answered_like_get_without_a_body(server: Served) -> None:
    run = await server.host.first.start("patient")
    for path in ("/healthz", "/readyz", "/api/runs", "/api/openapi.json", "/api/definitions/none"):
        get, head = await server.ask("GET", path), await server.ask("HEAD", path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
    live = await server.ask("HEAD", f"/api/runs/{run.id}/events")
    assert (live.status_code, live.headers["content-type"]) == (200, "text/event-stream")


async def test_runs_are_listed_of_every_definition_that_there_is_or_was(server: Served) -> None:
    await server.ask("POST", "/api/definitions", {"name": "sketch"})
    for name in ("double", "sketch"):
        answer = await server.ask("GET", f"/api/definitions/{name}/runs")
        assert (answer.status_code, answer.json()["items"]) == (200, [])
    node = {"id": "a", "type": "transform", "config": {"value": 1}}
    document = {"name": "brief", "nodes": [node]}
    started = await server.ask("POST", "/api/runs", {"document": document})
    assert started.status_code == 201, started.text
    found = await server.ask("GET", "/api/definitions/brief/runs?status=failed&input.x=1")
    assert (found.status_code, found.json()["items"]) == (200, [])


async def test_a_place_is_only_named_if_something_can_be_got_there(server: Served) -> None:
    definition = {"definition": "double", "type": "manual", "name": "by-hand"}
    for path, body, named in (
        ("/api/definitions", {"name": "sketch"}, True),
        ("/api/triggers", definition, True),
        ("/api/definitions/double/runs", {"input": {"n": 1}}, True),
        ("/api/tokens", {"name": "ci", "permission": "read"}, False),
        (
            "/api/users",
            {"name": "ada", "role": "viewer"},
            False,
        ),
    ):
        answer = await server.ask("POST", path, body)
        assert answer.status_code == 201, answer.text
        assert ("location" in answer.headers) is named, path
        if named:
            found = await server.ask("GET", answer.headers["location"])
            assert found.status_code == 200


async def test_a_body_of_another_kind_is_refused(server: Served) -> None:
    path = "/api/definitions/double/runs"
    for headers in ({"content-type": "text/plain"}, {}):
        answer = await server.ask("POST", path, headers=headers, content=b'{"input": {"n": 1}}')
        assert (answer.status_code, answer.json()["code"]) == (415, "body_unsupported")
    packed = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = await server.ask("POST", path, headers=packed, content=b"\x1f\x8b")
    assert (answer.status_code, answer.json()["code"]) == (415, "body_unsupported")


async def test_a_body_with_half_a_character_is_refused_for_that(server: Served) -> None:
    kind = {"content-type": "application/json"}
    for half in ("\\ud800", "\\udc00", "\\ud800 and more", "\\ud800\\u0041"):
        body = f'{{"input": "{half}"}}'.encode()
        answer = await server.ask(
            "POST", "/api/definitions/double/runs", headers=kind, content=body
        )
        assert (answer.status_code, answer.json()["code"]) == (400, "body_invalid")
        assert "half a character (a lone surrogate)" in answer.json()["detail"]
    cut = await server.ask(
        "POST", "/api/definitions/double/runs", headers=kind, content=b'{"input": "\\\\ud800'
    )
    assert "half" not in cut.json()["detail"]


async def test_what_is_wrong_with_a_body_is_said_in_few_words(server: Served) -> None:
    await server.ask(
        "POST", "/api/definitions/publish",
        {"document": {
            "name": "strict", "inputs": {"type": "object", "properties": {"n": {}}},
            "nodes": [{"id": "a", "type": "transform", "config": {"value": 1}}],
        }},
    )  # fmt: skip
    wide = dict.fromkeys(map(str, range(20_000)), 1)
    path, odd = "/api/definitions/strict/runs", "x" * 500_000
    node = {"id": "a", "type": "transform", "config": {"value": 1, odd: 1}}
    for place, body, code in (
        (path, {"input": [[]] * 2_600_000}, "input_too_large"),
        (path, {"input": [[]] * 100_000}, "input_invalid"),
        (path, {"input": wide}, "input_invalid"),
        (path, {odd: 1}, "invalid_input"),
        ("/api/definitions/validate", {"document": {"name": "a", "nodes": [node]}}, None),
        ("/api/definitions/validate", {"document": {"name": odd, "nodes": [], odd: odd}}, None),
    ):
        answer = await server.ask("POST", place, body)
        assert answer.json().get("code") == code, answer.text[:1000]
        said = {key: each for key, each in answer.json().items() if key != "document"}
        assert len(json.dumps(said)) < 10_000, place


async def test_a_request_keeps_its_id_unless_logs_could_not_show_it(server: Served) -> None:
    kept = await server.ask("GET", "/healthz", headers={"X-Request-Id": "abc-1"})
    assert kept.headers["x-request-id"] == "abc-1"
    for odd in ("a b", "x" * 101, "<script>", ""):
        answer = await server.ask("GET", "/healthz", headers={"X-Request-Id": odd})
        assert answer.headers["x-request-id"] not in (odd, "abc-1")


async def test_answers_are_data_and_are_not_kept(server: Served) -> None:
    for path in ("/healthz", "/api/runs", "/api/nothing"):
        answer = await server.ask("GET", path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "server" not in answer.headers


async def test_a_server_answers_only_to_names_it_goes_by(server: Served) -> None:
    for name in ("localhost", "steps.example:8787", "127.0.0.1:1", "[::1]:2", "192.0.2.7"):
        assert (await server.ask("GET", "/healthz", headers={"Host": name})).status_code == 200
    for name in (
        "evil.example", "localhost.evil.example", "", "steps.example.evil:8787", "localhost:x",
        "localhost:1@evil.example", "127.0.0.1:80/x", "::1%@evil.example:80",
    ):  # fmt: skip
        answer = await server.ask("GET", "/api/runs", headers={"Host": name})
        assert (answer.status_code, answer.json()["code"]) == (400, "host_unknown")


async def test_more_headers_than_anybody_needs_are_refused(server: Served) -> None:
    answer = await server.ask("GET", "/api/runs", headers={"X-Long": "x" * 40_000})
    assert (answer.status_code, answer.json()["code"]) == (431, "headers_too_large")
    answer = await server.ask("GET", "/api/runs?cursor=" + "x" * 10_000)
    assert (answer.status_code, answer.json()["code"]) == (431, "headers_too_large")


async def test_names_in_a_path_may_have_slashes(server: Served) -> None:
    made = await server.ask(
        "POST", "/api/triggers", {"definition": "double", "type": "manual", "name": "by-hand"}
    )
    assert made.status_code == 201
    found = await server.ask("GET", "/api/triggers/double%2Fby-hand")
    assert found.json()["id"] == made.json()["id"]
    fired = await server.ask("POST", "/api/triggers/double%2Fby-hand/fire", {"payload": {"n": 4}})
    assert fired.status_code == 201
    assert await server.host.first.result(fired.json()["run_id"], timeout=30) == 8


async def test_a_webhook_starts_its_run(server: Served) -> None:
    # As deep as a path can be, too.
    for name, path in (("near", "in/here"), ("far", "/".join("d" * 100))):
        webhook = {"type": "webhook", "name": name, "config": {"path": path}}
        made = await server.ask("POST", "/api/triggers", {"definition": "double", **webhook})
        assert made.status_code == 201, made.text
        found = await server.ask("GET", f"/api/triggers/{made.json()['id']}")
        assert made.json() == found.json()
        assert not made.json().keys() & {"since", "place", "next_at"}
        assert made.json()["webhook_url"] == f"/hooks/{path}"
        sent = await server.http.post(f"/hooks/{path}", json={"n": 5})
        assert sent.status_code == 202, sent.text
        run = sent.json()
        assert run == {"run_id": run["run_id"], "created": True, "events": 0, "note": None}
        assert await server.host.first.result(run["run_id"], timeout=30) == 10


async def test_a_webhook_answers_what_slack_asks(server: Served) -> None:
    await server.host.first.secrets.set("hook", SECRET)
    config = {"path": "slack", "verify": "slack", "secret": "hook"}
    webhook = {"type": "webhook", "name": "in", "config": config}
    await server.ask("POST", "/api/triggers", {"definition": "double", **webhook})
    body = b'{"type": "url_verification", "challenge": "3eZbrw1aB"}'
    now = server.host.first.store.clock.now() // SECOND
    for secret, status, said in ((SECRET, 200, {"challenge": "3eZbrw1aB"}), ("other", 401, None)):
        headers = dict(signed("slack", body, now, secret).pairs)
        answer = await server.http.post("/hooks/slack", headers=headers, content=body)
        assert answer.status_code == status, answer.text
        assert said in (None, answer.json())


async def test_a_webhook_takes_packed_bodies_and_lists_those_it_cannot_unpack(
    server: Served,
) -> None:
    webhook = {"type": "webhook", "name": "in", "config": {"path": "in"}}
    await server.ask("POST", "/api/triggers", {"definition": "double", **webhook})

    async def send(packing: str, body: bytes) -> Any:
        headers = {"content-type": "application/json", "content-encoding": packing}
        return await server.http.post("/hooks/in", headers=headers, content=body)

    body = b'{"n": 21}'
    for packing, packed in (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body))):
        taken = await send(packing, packed)
        assert taken.status_code == 202, taken.text
        assert await server.host.first.result(taken.json()["run_id"], timeout=30) == 42
    for packing, packed, status, code in (
        ("br", b"x", 415, "body_unsupported"),
        ("gzip", b"x", 400, "body_invalid"),
        ("gzip", gzip.compress(bytes(2**21)), 413, "body_too_large"),
        ("gzip", bytes(2**21), 413, "body_too_large"),
    ):
        answer = await send(packing, packed)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    listed = await server.ask("GET", "/api/triggers/double%2Fin/refusals")
    assert [each["code"] for each in listed.json()["items"]] == [
        "body_too_large", "body_too_large", "body_invalid", "body_unsupported",
    ]  # fmt: skip


async def test_a_webhook_of_another_workspace_says_where_it_is(server: Served) -> None:
    elsewhere = await server.host.workspace(ELSEWHERE)
    await elsewhere.definitions.publish(
        {"name": "hi", "nodes": [{"id": "a", "type": "transform", "config": {"value": 1}}]}
    )
    webhook = {"definition": "hi", "type": "webhook", "config": {"path": "in"}}
    made = (await server.ask("POST", "/api/triggers", webhook, role="stranger")).json()
    assert made["webhook_url"] == f"/hooks/@{ELSEWHERE}/in"
    assert (await server.http.post(made["webhook_url"], json={})).status_code == 202


async def test_details_of_problems_have_times_as_such_and_nothing_internal(server: Served) -> None:
    document: dict[str, Any] = {"name": "strict", "nodes": [], "inputs": {"type": "object"}}
    document["nodes"] = [{"id": "a", "type": "transform", "config": {"value": 1}}]
    published = await server.ask("POST", "/api/definitions/publish", {"document": document})
    assert published.status_code == 200, published.text
    document["nodes"][0]["config"]["value"] = 2
    draft, stale = "/api/definitions/strict/draft", {"if-match": '"stale"'}
    await server.ask("PUT", draft, {"document": document})
    late = await server.ask("PUT", draft, {"document": {}}, headers=stale)
    assert late.status_code == 412
    discarded = await server.ask("DELETE", draft, headers=stale)
    for answer in (late, discarded):
        assert answer.json()["details"]["at"].endswith("Z")
    published = await server.ask(
        "POST", "/api/definitions/publish", {"document": document}, headers=stale
    )
    assert published.json()["details"]["at"].endswith("Z")
    wrong = await server.ask("POST", "/api/definitions/strict/runs", {"input": 1})
    assert (wrong.status_code, wrong.json()["details"].keys()) == (422, {"problems"})


async def test_health_says_whether_the_store_answers(server: Served) -> None:
    assert (await server.http.get("/healthz")).json() == {"status": "ok"}
    ready = await server.http.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ok", "workers": 1})


async def test_what_is_documented_is_json_of_openapi(server: Served) -> None:
    answer = await server.http.get("/api/openapi.json")
    found = json.loads(answer.content)
    assert found["openapi"] == "3.1.0"
    assert "/api/definitions/{ref}/runs" in found["paths"]

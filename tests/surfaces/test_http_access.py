"""Who may ask for what: every operation, every role, no token, and somebody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from stepwell import workflow
from stepwell.catalog import operations
from stepwell.operation import PERMISSIONS, ROLES, Operation, allows
from tests.operations.support import open_gate
from tests.surfaces.serving import Served, served

pytestmark = pytest.mark.anyio


@workflow(name="double")
async def double(ctx: Any, input: Any) -> Any:
    return 2


@pytest.fixture
async def server(store_url: str) -> AsyncIterator[Served]:
    async with served(store_url, [double], worker=False) as found:
        yield found


def path_of(operation: Operation, values: dict[str, str]) -> str:
    """The path of an operation, with values for what stands in it."""
    path = operation.path
    for name in operation.parameters:
        path = path.replace("{" + name + "}", quote(values.get(name, "none"), safe=""))
    return f"/api{path}"


async def test_without_a_token_nothing_is_answered(server: Served) -> None:
    wrong = [None, "", "Bearer", "Bearer x", "Basic b3duZXI6eA==", f"Bearer {'x' * 5000}"]
    wrong.append(f"Bearer {server.tokens['owner'][:-1]}~")
    for operation in operations().values():
        for given in wrong[: 1 if operation.needs != "own" else None]:
            headers = {} if given is None else {"authorization": given}
            answer = await server.http.request(
                operation.method, path_of(operation, {}), headers=headers, content=b"{}"
            )
            # Wrong ones are counted, and at some point not even looked at.
            assert answer.status_code in (401, 429), operation.name
            assert answer.json()["code"] in ("unauthenticated", "rate_limited")


async def test_every_operation_refuses_every_role_below_it(server: Served) -> None:
    for operation in operations().values():
        for role, permission in ROLES.items():
            answer = await server.ask(operation.method, path_of(operation, {}), {}, role=role)
            refused = answer.status_code == 403 and answer.json()["code"] == "permission_denied"
            assert refused is not allows(permission, operation.needs), (operation.name, role)
            assert answer.status_code < 500


async def test_there_is_something_for_every_permission() -> None:
    needed = {operation.needs for operation in operations().values()}
    assert needed == set(PERMISSIONS)


async def test_what_belongs_to_another_workspace_is_not_found(server: Served) -> None:
    document = {
        "name": "shape",
        "policy": {"proposals": True},
        "nodes": [{"id": "ok", "type": "approval", "config": {"prompt": "Go on?"}}],
    }
    place = server.host.first
    await place.definitions.publish(document)
    await place.definitions.save_draft("shape", {**document, "title": "Other"})
    change = [{"op": "set_meta", "set": {"title": "Better"}}]
    proposal = await place.proposals.propose("shape", change, author="ada")
    trigger = await place.triggers.create("shape", "manual")
    await place.secrets.set("key", "a secret value")
    run = await place.start("shape")
    async with place.worker():
        gate = await open_gate(place, run.id)
    values = {
        "name": "shape", "ref": "shape", "definition": "shape", "run_id": run.id,
        "gate_id": gate.id, "trigger": trigger.id, "proposal_id": proposal.id,
        "step": "ok", "event": "x",
    }  # fmt: skip
    values |= await theirs(server)
    asked = set()
    for operation in operations().values():
        mine = [name for name in operation.parameters if "{" + name + "}" in operation.path]
        if not mine or operation.noun == "secrets":
            continue
        assert set(mine) <= values.keys(), operation.name
        asked.add(operation.noun)
        body = dict(operation.example) if operation.method != "GET" else None
        body = {name: each for name, each in (body or {}).items() if name not in mine} or None
        query = "?a=draft&b=draft" if operation.name == "definitions.diff" else ""
        path = path_of(operation, values) + query
        answer = await server.ask(operation.method, path, body, role="stranger")
        assert answer.status_code == 404, (operation.name, answer.text)
    assert asked >= {"definitions", "runs", "gates", "triggers", "users", "tokens", "workspaces"}
    assert (await server.ask("GET", "/api/users/me")).json()["role"] == "owner", "nothing was done"
    assert (await server.ask("DELETE", "/api/secrets/key", role="stranger")).status_code == 404
    assert (await server.ask("GET", "/api/secrets", role="stranger")).json() == {"items": []}
    assert (await server.ask("GET", "/api/runs", role="stranger")).json()["items"] == []
    assert (await server.ask("GET", "/api/gates", role="stranger")).json() == {"items": []}
    assert (await place.get_run(run.id)).status == "waiting"
    assert (await place.definitions.get("shape")).title == ""


async def theirs(server: Served) -> dict[str, str]:
    """Somebody of the first workspace, with a session, the token that they use, and where."""
    await server.host.doorkeeper.login_with_link(
        await server.host.doorkeeper.new_link("owner-1"), "203.0.113.9"
    )
    [session] = (await server.ask("GET", "/api/users/me/sessions")).json()["items"]
    me = (await server.ask("GET", "/api/users/me")).json()
    return {
        "user_id": me["id"], "token_id": me["token_id"], "session_id": session["id"],
        "workspace_id": me["workspace_id"],
    }  # fmt: skip


async def test_a_token_acts_in_no_other_workspace_than_its_own(server: Served) -> None:
    async def asked(workspace: str) -> tuple[int, Any]:
        headers = {"Stepwell-Workspace": workspace}
        answer = await server.ask("GET", "/api/runs", headers=headers)
        return answer.status_code, answer.json().get("code")

    assert await asked("default") == (200, None)
    assert await asked("other") == (404, "workspace_not_found")


async def test_metrics_are_for_owners_of_the_first_workspace(server: Served) -> None:
    reads = {"name": "prometheus", "permission": "read"}
    server.tokens["prometheus"] = (await server.ask("POST", "/api/tokens", reads)).json()["text"]
    for role, status in {
        "owner": 200, "prometheus": 200, "admin": 403, "viewer": 403, "stranger": 403, None: 401,
    }.items():  # fmt: skip
        answer = await server.ask("GET", "/metrics", role=role)
        assert answer.status_code == status, role
        assert ("stepwell_" in answer.text) is (status == 200)


async def test_a_session_acts_only_for_pages_of_the_server(server: Served) -> None:
    link = await server.host.doorkeeper.new_link("owner-1")
    entered = await server.http.get(f"/login/{link}")
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    own = server.url
    sent = {"type": "ping"}
    for headers, status in [
        ({"origin": own}, 202),
        ({"sec-fetch-site": "same-origin"}, 202),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"origin": f"{own}/"}, 403),
        ({"origin": own.replace("http", "ftp")}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({}, 403),
    ]:
        answer = await server.ask("POST", "/api/events", sent, role=None, headers=headers)
        assert answer.status_code == status, headers
    assert (await server.ask("GET", "/api/runs", role=None)).status_code == 200
    assert "owner-1" in (await server.http.get("/")).text
    out = await server.http.post("/api/logout", headers={"origin": own})
    assert out.status_code == 204
    server.http.cookies.set("stepwell_session", cookie.partition("=")[2].partition(";")[0])
    assert (await server.ask("GET", "/api/runs", role=None)).status_code == 401
    again = await server.http.get(f"/login/{link}")
    assert again.status_code == 401


async def test_what_somebody_changed_is_written_down(server: Served) -> None:
    secret = "a value that nobody may see"
    answer = await server.ask("PUT", "/api/secrets/key", {"value": secret}, role="admin")
    assert answer.status_code == 204
    await server.ask("POST", "/api/events", {"type": "ping"}, role="member")
    started = await server.ask("POST", "/api/definitions/double/runs", {}, role="member")
    run_id = started.json()["id"]
    await server.ask("POST", f"/api/runs/{run_id}/signals/go", {"payload": secret}, role="member")
    found = await server.host.first.store.access.audit(server.host.first_id, None, 10)
    assert [(each.operation, each.actor, each.subject) for each in found] == [
        ("runs.signal", "member-1", f"{run_id}/go"),
        ("events.emit", "member-1", "ping"),
        ("secrets.set", "admin-1", "key"),
    ]
    assert secret not in str(found)


async def test_a_run_says_who_started_it(server: Served) -> None:
    path = "/api/definitions/double/runs"
    sent = {"input": 1, "user": "somebody else"}
    assert (await server.ask("POST", path, sent)).status_code == 422, "nobody chooses who they are"
    run_id = (await server.ask("POST", path, {"input": 1}, role="member")).json()["id"]
    await server.ask("POST", f"/api/runs/{run_id}/cancel", role="member")
    again = (await server.ask("POST", f"/api/runs/{run_id}/retry", role="admin")).json()["id"]
    for found, by in [(run_id, "member-1"), (again, "admin-1")]:
        run = (await server.ask("GET", f"/api/runs/{found}")).json()
        assert run["trigger"] == {"type": "manual", "by": by}
    place = server.host.first
    copy = await place.retry(run_id)
    assert (await place.get_run(copy.id)).trigger == {"type": "manual"}
